#include "torch/environment.h"

#include <cstring>

#include <torch/csrc/utils/pybind.h>

namespace causeway {

namespace {

std::string g_prefix;
PyObject* g_changed = nullptr;

// Python audits what a program does to its environment. Other events, such as those of open() and id(), pay for two
// comparisons of a letter.
int audit(const char* event, PyObject* args, void*) {
  if (C10_LIKELY(event[0] != 'o' || event[1] != 's' || event[2] != '.')) {
    if (C10_UNLIKELY(std::strcmp(event, "cpython._PySys_ClearAuditHooks") == 0)) g_changed = nullptr;  // at exit
    return 0;
  }
  if (std::strcmp(event, "os.putenv") != 0 && std::strcmp(event, "os.unsetenv") != 0) return 0;
  if (!g_changed || !PyTuple_Check(args) || PyTuple_GET_SIZE(args) < 1) return 0;
  PyObject* name = PyTuple_GET_ITEM(args, 0);
  if (!PyBytes_Check(name) || std::strncmp(PyBytes_AS_STRING(name), g_prefix.c_str(), g_prefix.size()) != 0) return 0;
  PyObject* result = PyObject_CallFunction(g_changed, "s", PyBytes_AS_STRING(name));
  if (!result) {
    PyErr_WriteUnraisable(g_changed);  // an error here would forbid the change
    return 0;
  }
  Py_DECREF(result);
  return 0;
}

}  // namespace

void watch_environment(std::string prefix, pybind11::object changed) {
  const bool first = g_changed == nullptr;
  g_prefix = std::move(prefix);
  Py_XDECREF(g_changed);
  g_changed = changed.release().ptr();
  if (first && PySys_AddAuditHook(audit, nullptr) != 0) throw pybind11::error_already_set();
}

}  // namespace causeway

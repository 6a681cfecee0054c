// What stands in place of a function of torch's while CUDA is redirected: a callable without a frame
// of its own. Warnings are then filed under the program's line, as filters by module need it, and a
// traceback shows the program and torch only. It costs a look at one argument.
#include "torch/redirect.h"

#include <array>
#include <vector>

#include <pybind11/pybind11.h>
#include <structmember.h>
#include <torch/csrc/Device.h>

namespace py = pybind11;

namespace causeway {

namespace {

struct Redirect {
  PyObject_HEAD vectorcallfunc call;
  PyObject* original;
  PyObject* table;  // dict: a device of CUDA's to the target's
  PyObject* find;   // the same for what is not in the table: the target's device, or None
  PyObject* name;   // of the argument
  PyObject* found;  // called when the argument was a device of CUDA's
  Py_ssize_t position;  // of the argument, -1 where it comes by its name only
  PyObject* dict;
  PyObject* weak;
};

// The target's device for `value`; an empty object where it is no device of CUDA's; throws.
py::object look_up(Redirect* self, PyObject* value) {
  const bool text = PyUnicode_Check(value);
  if (!text && !THPDevice_Check(value) && !PyLong_CheckExact(value)) return {};
  if (PyObject* there = PyDict_GetItemWithError(self->table, value)) return py::reinterpret_borrow<py::object>(there);
  if (PyErr_Occurred()) throw py::error_already_set();
  if (!text) return {};
  auto there = py::reinterpret_steal<py::object>(PyObject_CallOneArg(self->find, value));
  if (!there) throw py::error_already_set();
  return there.is_none() ? py::object() : there;
}

// Which of the arguments is the device; -1 where it is not given, -2 on an error.
Py_ssize_t place(Redirect* self, Py_ssize_t given, PyObject* names) {
  if (self->position >= 0 && given > self->position) return self->position;
  if (!names) return -1;
  const Py_ssize_t n = PyTuple_GET_SIZE(names);
  for (Py_ssize_t i = 0; i < n; ++i)
    if (PyTuple_GET_ITEM(names, i) == self->name) return given + i;
  for (Py_ssize_t i = 0; i < n; ++i) {  // a name that was made at run time
    const int same = PyObject_RichCompareBool(PyTuple_GET_ITEM(names, i), self->name, Py_EQ);
    if (same < 0) return -2;
    if (same) return given + i;
  }
  return -1;
}

PyObject* call(PyObject* object, PyObject* const* args, size_t flagged, PyObject* names) {
  auto* self = reinterpret_cast<Redirect*>(object);
  const Py_ssize_t given = PyVectorcall_NARGS(flagged);
  const Py_ssize_t at = place(self, given, names);
  if (at == -2) return nullptr;
  if (at == -1) return PyObject_Vectorcall(self->original, args, flagged, names);
  try {
    const py::object there = look_up(self, args[at]);
    if (!there) return PyObject_Vectorcall(self->original, args, flagged, names);
    const auto noted = py::reinterpret_steal<py::object>(PyObject_CallNoArgs(self->found));
    if (!noted) return nullptr;
    const size_t count = given + (names ? PyTuple_GET_SIZE(names) : 0);
    std::array<PyObject*, 16> few;
    std::vector<PyObject*> many;
    PyObject** changed = few.data();
    if (count >= few.size()) {
      many.resize(count + 1);
      changed = many.data();
    }
    ++changed;  // the place before the first is the callee's, by PY_VECTORCALL_ARGUMENTS_OFFSET
    std::copy(args, args + count, changed);
    changed[at] = there.ptr();
    return PyObject_Vectorcall(self->original, changed, given | PY_VECTORCALL_ARGUMENTS_OFFSET, names);
  } catch (py::error_already_set& error) {
    error.restore();
    return nullptr;
  }
}

PyObject* make(PyTypeObject* type, PyObject* args, PyObject* kwargs) {
  static const char* names[] = {"original", "table", "find", "name", "found", "position", nullptr};
  PyObject *original, *table, *find, *name, *found;
  Py_ssize_t position = -1;
  if (!PyArg_ParseTupleAndKeywords(args, kwargs, "OO!OUO|n", const_cast<char**>(names), &original, &PyDict_Type, &table,
                                   &find, &name, &found, &position))
    return nullptr;
  auto* self = reinterpret_cast<Redirect*>(type->tp_alloc(type, 0));
  if (!self) return nullptr;
  self->call = call;
  self->original = Py_NewRef(original);
  self->table = Py_NewRef(table);
  self->find = Py_NewRef(find);
  self->name = Py_NewRef(name);
  PyUnicode_InternInPlace(&self->name);
  self->found = Py_NewRef(found);
  self->position = position;
  self->dict = PyDict_New();
  return reinterpret_cast<PyObject*>(self);
}

int traverse(PyObject* object, visitproc visit, void* arg) {
  auto* self = reinterpret_cast<Redirect*>(object);
  Py_VISIT(Py_TYPE(object));
  Py_VISIT(self->original);
  Py_VISIT(self->table);
  Py_VISIT(self->find);
  Py_VISIT(self->found);
  Py_VISIT(self->dict);
  return 0;
}

int clear(PyObject* object) {
  auto* self = reinterpret_cast<Redirect*>(object);
  Py_CLEAR(self->original);
  Py_CLEAR(self->table);
  Py_CLEAR(self->find);
  Py_CLEAR(self->name);
  Py_CLEAR(self->found);
  Py_CLEAR(self->dict);
  return 0;
}

void destroy(PyObject* object) {
  PyTypeObject* type = Py_TYPE(object);
  PyObject_GC_UnTrack(object);
  if (reinterpret_cast<Redirect*>(object)->weak) PyObject_ClearWeakRefs(object);
  clear(object);
  type->tp_free(object);
  Py_DECREF(type);
}

// A method, where it stands in a class.
PyObject* bind(PyObject* object, PyObject* instance, PyObject*) {
  return instance ? PyMethod_New(object, instance) : Py_NewRef(object);
}

// Copied and pickled by its name, as a function is.
PyObject* reduce(PyObject* object, PyObject*) { return PyObject_GetAttrString(object, "__qualname__"); }

PyObject* describe(PyObject* object) { return PyObject_Repr(reinterpret_cast<Redirect*>(object)->original); }

PyMethodDef methods[] = {{"__reduce__", reduce, METH_NOARGS, nullptr}, {nullptr, nullptr, 0, nullptr}};

PyMemberDef members[] = {{"__dictoffset__", T_PYSSIZET, offsetof(Redirect, dict), READONLY, nullptr},
                         {"__weaklistoffset__", T_PYSSIZET, offsetof(Redirect, weak), READONLY, nullptr},
                         {"__vectorcalloffset__", T_PYSSIZET, offsetof(Redirect, call), READONLY, nullptr},
                         {nullptr, 0, 0, 0, nullptr}};

PyGetSetDef fields[] = {{"__dict__", PyObject_GenericGetDict, PyObject_GenericSetDict, nullptr, nullptr},
                        {nullptr, nullptr, nullptr, nullptr, nullptr}};

PyType_Slot slots[] = {{Py_tp_new, reinterpret_cast<void*>(make)},
                       {Py_tp_dealloc, reinterpret_cast<void*>(destroy)},
                       {Py_tp_traverse, reinterpret_cast<void*>(traverse)},
                       {Py_tp_clear, reinterpret_cast<void*>(clear)},
                       {Py_tp_call, reinterpret_cast<void*>(PyVectorcall_Call)},
                       {Py_tp_descr_get, reinterpret_cast<void*>(bind)},
                       {Py_tp_repr, reinterpret_cast<void*>(describe)},
                       {Py_tp_methods, methods},
                       {Py_tp_members, members},
                       {Py_tp_getset, fields},
                       {0, nullptr}};

PyType_Spec spec = {"causeway._C.Redirect", sizeof(Redirect), 0,
                    Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC | Py_TPFLAGS_HAVE_VECTORCALL | Py_TPFLAGS_METHOD_DESCRIPTOR,
                    slots};

}  // namespace

py::object redirect_type() {
  auto type = py::reinterpret_steal<py::object>(PyType_FromSpec(&spec));
  if (!type) throw py::error_already_set();
  return type;
}

}  // namespace causeway

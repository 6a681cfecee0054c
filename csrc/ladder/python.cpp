#include "ladder/python.h"

#include <ATen/core/LegacyTypeDispatch.h>
#include <torch/csrc/jit/python/pybind_utils.h>

#include <atomic>

#include "ladder/observe.h"

namespace causeway {

namespace {

std::atomic<PyObject*> g_decomposer{nullptr}, g_composer{nullptr}, g_describer{nullptr};

// The last arguments on the stack as Python's, positional ones and those by name. The GIL is held. `enums`: dtypes and the
// like are torch's; decompositions take them as numbers.
std::pair<py::tuple, py::dict> arguments_of(const Operator& op, const Stack& stack, bool enums) {
  const auto& schema = op.handle.schema().arguments();
  std::vector<py::object> positional;
  py::dict by_name;
  for (size_t i = 0; i < op.args.size(); ++i) {
    const c10::IValue& given = stack[stack.size() - op.args.size() + i];
    py::object value = enums ? to_python(given, schema[i].real_type()) : torch::jit::toPyObject(given);
    if (schema[i].kwarg_only())
      by_name[schema[i].name().c_str()] = value;
    else
      positional.push_back(value);
  }
  py::tuple all(positional.size());
  for (size_t i = 0; i < positional.size(); ++i) all[i] = positional[i];
  return {all, by_name};
}

// What a function gives for the last arguments on the stack.
py::object call_python(const py::object& function, const Operator& op, const Stack& stack, bool enums = false) {
  const auto [positional, by_name] = arguments_of(op, stack, enums);
  try {
    return function(*positional, **by_name);
  } catch (py::error_already_set& e) {
    e.restore();
    python_error error;
    error.persist();
    throw error;
  }
}

// An operator's results, of which Python gives a single one as itself.
std::vector<c10::IValue> results_of(const py::object& result, const Operator& op) {
  const auto& returns = op.handle.schema().returns();
  std::vector<c10::IValue> results;
  for (size_t r = 0; r < returns.size(); ++r)
    results.push_back(torch::jit::toIValue(returns.size() == 1 ? result : py::object(result.cast<py::sequence>()[r]),
                                           returns[r].type()));
  return results;
}

}  // namespace

void set_decomposer(PyObject* f) { g_decomposer.store(f); }
bool has_decomposer() { return g_decomposer.load() != nullptr; }
void set_composer(PyObject* f) { g_composer.store(f); }
void set_describer(PyObject* f) { g_describer.store(f); }

std::shared_ptr<PyObject> plan_in_python(const Operator& op, const Stack& stack, bool in_capture) {
  PyObject* decomposer = g_decomposer.load();
  if (!decomposer) return nullptr;
  py::gil_scoped_acquire gil;
  const auto [positional, by_name] = arguments_of(op, stack, /*enums=*/false);
  py::object program = py::reinterpret_borrow<py::object>(decomposer)(op.name, positional, by_name, in_capture);
  if (program.is_none()) return nullptr;
  return {program.release().ptr(), [](PyObject* p) {
            if (!Py_IsInitialized()) return;
            py::gil_scoped_acquire inner;
            Py_DECREF(p);
          }};
}

std::vector<c10::IValue> run_in_python(PyObject* program, const Operator& op, const Stack& stack) {
  py::gil_scoped_acquire gil;
  return results_of(call_python(py::reinterpret_borrow<py::object>(program), op, stack), op);
}

bool compose(const Operator& op, Stack& stack) {
  PyObject* composer = g_composer.load();
  if (!composer) return false;
  py::gil_scoped_acquire gil;
  at::AutoDispatchBelowADInplaceOrView below;
  const py::object function = py::reinterpret_borrow<py::object>(composer)(op.name);
  if (function.is_none()) return false;
  std::vector<c10::IValue> results = results_of(call_python(function, op, stack, /*enums=*/true), op);
  torch::jit::drop(stack, op.args.size());
  for (auto& value : results) stack.push_back(std::move(value));
  return true;
}

bool describe_by_python(const Operator& op, const Stack& stack, std::vector<OutMeta>* outs) {
  PyObject* describer = g_describer.load();
  if (!describer) return false;
  py::gil_scoped_acquire gil;
  const py::object function = py::reinterpret_borrow<py::object>(describer)(op.name);
  if (function.is_none()) return false;
  const py::object results = call_python(function, op, stack);
  if (results.is_none()) return false;
  for (const py::handle one : results) {
    if (one.is_none()) {
      outs->push_back({{}, {}, c10::ScalarType::Undefined});
      continue;
    }
    const auto [sizes, strides, dtype, found] =
        one.cast<std::tuple<std::vector<int64_t>, std::vector<int64_t>, py::object, bool>>();
    outs->push_back(
        {c10::DimVector(sizes), c10::DimVector(strides), reinterpret_cast<THPDtype*>(dtype.ptr())->scalar_type});
    outs->back().found = found;
  }
  return outs->size() == op.return_of.size();
}

}  // namespace causeway

#include "ladder/observe.h"

#include <mutex>
#include <set>

#include <ATen/SequenceNumber.h>
#include <ATen/record_function.h>
#include <c10/core/InferenceMode.h>
#include <c10/core/impl/LocalDispatchKeySet.h>
#include <torch/csrc/DynamicTypes.h>
#include <torch/csrc/Exceptions.h>
#include <torch/csrc/Layout.h>
#include <torch/csrc/Storage.h>
#include <torch/csrc/Stream.h>
#include <torch/csrc/autograd/function.h>
#include <torch/csrc/autograd/graph_task.h>
#include <torch/csrc/jit/python/pybind_utils.h>
#include <torch/csrc/utils/tensor_memoryformats.h>

#include "runtime/watched.h"

namespace py = pybind11;

namespace causeway {

namespace {

std::atomic<PyObject*> g_begin{nullptr}, g_end{nullptr};
std::atomic<bool> g_see_values{false};
std::atomic<uint64_t> g_sequence{0};
thread_local bool t_paused = false;
thread_local Observation* t_innermost = nullptr;
thread_local int t_depth = 0;

std::mutex g_observers_mutex;
std::vector<OwnKernel*>& kernels() {
  static auto& list = *new std::vector<OwnKernel*>;
  return list;
}

// What torch has at the start of a thread: no mode, no transform, no inference; nothing an observer does is seen by
// autograd or by another tool. And nothing that it calls is observed.
class Aside {
 public:
  Aside() { t_paused = true; }
  ~Aside() { t_paused = false; }

 private:
  c10::InferenceMode no_inference_{false};
  c10::AutoGradMode no_grad_{false};
  c10::impl::ForceDispatchKeyGuard plain_{c10::default_included_set, c10::default_excluded_set};
};

bool going_down() {
#if PY_VERSION_HEX >= 0x030D0000
  return !Py_IsInitialized() || Py_IsFinalizing();
#else
  return !Py_IsInitialized() || _Py_IsFinalizing();
#endif
}

// A Python error becomes the C++ exception that torch turns back into it, on any thread.
template <class F>
auto translated(F f) {
  try {
    return f();
  } catch (py::error_already_set& e) {
    e.restore();
    python_error error;
    error.persist();
    throw error;
  }
}

}  // namespace

bool observers_are_running() { return t_paused; }

bool pause_observers(bool on) { return std::exchange(t_paused, on); }

Observation::Observation(Operator& op, std::vector<c10::IValue> args, bool own)
    : call_(std::make_shared<ObservedCall>()) {
  PyObject* begin = g_begin.load(std::memory_order_acquire);
  if (!begin || going_down()) {
    call_.reset();
    return;
  }
  ObservedCall& c = *call_;
  c.op = &op;
  c.args = std::move(args);
  c.own = own;
  c.sequence = g_sequence.fetch_add(1, std::memory_order_relaxed);
  c.depth = t_depth;
  c.backward = torch::autograd::get_current_graph_task_id() != -1;
  if (c.backward)
    if (auto node = torch::autograd::get_current_node()) {
      c.node = node->name();
      c.node_sequence = node->sequence_nr();
      c.node_thread = node->thread_id();
    }
  {
    py::gil_scoped_acquire gil;
    Aside aside;
    c.thread = PyThread_get_thread_ident();
    translated([&] {
      py::object token = py::reinterpret_borrow<py::object>(begin)(call_);
      if (token.is_none())
        op.observe(false);  // under the GIL, as set_observers is
      else
        token_ = token.release().ptr();
    });
  }
  if (!token_) {
    call_.reset();
    return;
  }
  outer_ = t_innermost;
  t_innermost = this;
  ++t_depth;
}

Observation::~Observation() {
  if (!token_) return;
  if (t_innermost == this) end();
  if (going_down()) return;
  py::gil_scoped_acquire gil;
  Py_DECREF(token_);
  call_.reset();  // its tensors may own Python objects
}

void Observation::end() {
  t_innermost = outer_;
  --t_depth;
}

void Observation::returned(std::vector<c10::IValue> results) {
  if (!token_ || t_innermost != this) return;
  end();
  call_->results = std::move(results);
  call_->after = true;
  PyObject* finish = g_end.load(std::memory_order_acquire);
  if (!finish || going_down()) return;
  py::gil_scoped_acquire gil;
  Aside aside;
  translated([&] {
    py::reinterpret_borrow<py::object>(finish)(call_, py::reinterpret_borrow<py::object>(token_));
    return 0;
  });
}

void Observation::raised() noexcept {
  if (!token_ || t_innermost != this) return;  // it was the observer that raised
  end();
  try {
    throw;
  } catch (const c10::Error& e) {
    call_->error = e.what_without_backtrace();
  } catch (const std::exception& e) {
    call_->error = e.what();
  } catch (...) {
    call_->error = "an exception that is no std::exception";
  }
  if (call_->error.empty()) call_->error = "an error without words";
  call_->after = true;
  PyObject* finish = g_end.load(std::memory_order_acquire);
  if (!finish || going_down()) return;
  py::gil_scoped_acquire gil;
  Aside aside;
  try {
    py::reinterpret_borrow<py::object>(finish)(call_, py::reinterpret_borrow<py::object>(token_));
  } catch (py::error_already_set& e) {
    // The operator's own error goes on; a second cannot.
    e.discard_as_unraisable("causeway: an observer of an operator that failed");
  } catch (const std::exception& e) {
    PySys_WriteStderr("causeway: an observer of an operator that failed: %s\n", e.what());
  }
}

void note_rung(const Operator& op, Rung rung) {
  if (t_innermost && !t_paused && t_innermost->call_->op->name == op.name)
    t_innermost->call_->rung = kRungNames[static_cast<int>(rung)];
}

OwnKernel::OwnKernel(std::string n) : name(std::move(n)) {
  std::lock_guard lock(g_observers_mutex);
  kernels().push_back(this);
}

Operator& OwnKernel::operator_of() {
  if (Operator* known = op.load(std::memory_order_acquire)) return *known;
  std::lock_guard lock(g_observers_mutex);
  if (Operator* known = op.load(std::memory_order_acquire)) return *known;
  const auto dot = name.find('.');
  auto handle = c10::Dispatcher::singleton().findSchemaOrThrow(name.substr(0, dot).c_str(),
                                                               dot == std::string::npos ? "" : name.c_str() + dot + 1);
  auto* made = new Operator(handle);  // not one of the ladder's: no rung serves it
  op.store(made, std::memory_order_release);
  return *made;
}

std::vector<std::string> own_kernels() {
  std::lock_guard lock(g_observers_mutex);
  std::set<std::string> names;
  for (const OwnKernel* k : kernels()) names.insert(k->name);
  return {names.begin(), names.end()};
}

bool observers_see_values() { return g_see_values.load(std::memory_order_relaxed); }

void set_observers(PyObject* begin, PyObject* end, const std::vector<std::string>& names, bool values) {
  // Replaced functions are never freed: a call on another thread may hold them.
  g_begin.store(begin, std::memory_order_release);
  g_end.store(end, std::memory_order_release);
  g_see_values.store(begin && values);
  watch(Watcher::Observer, begin != nullptr);
  const std::set<std::string> chosen(names.begin(), names.end());
  for (Operator* op : operators()) op->observe(begin && chosen.count(op->name) > 0);
  std::lock_guard lock(g_observers_mutex);
  for (OwnKernel* k : kernels()) k->observed.store(begin && chosen.count(k->name) > 0);
}

// As torch's Python takes it: dtypes, layouts and the like are numbers in an IValue.
py::object to_python(const c10::IValue& value, const c10::TypePtr& given) {
  c10::TypePtr type = given;
  if (value.isNone()) return py::none();
  if (auto o = type->cast<c10::OptionalType>()) type = o->getElementType();
  if (value.isInt()) {
    switch (type->kind()) {
      case c10::TypeKind::ScalarTypeType:
        return py::reinterpret_borrow<py::object>(
            reinterpret_cast<PyObject*>(torch::getTHPDtype(static_cast<at::ScalarType>(value.toInt()))));
      case c10::TypeKind::LayoutType:
        return py::reinterpret_borrow<py::object>(
            reinterpret_cast<PyObject*>(torch::getTHPLayout(static_cast<at::Layout>(value.toInt()))));
      case c10::TypeKind::MemoryFormatType:
        return py::reinterpret_borrow<py::object>(
            torch::utils::getTHPMemoryFormat(static_cast<at::MemoryFormat>(value.toInt())));
      default:
        break;
    }
  }
  if (value.isStorage()) return py::reinterpret_steal<py::object>(THPStorage_Wrap(value.toStorage()));
  return torch::jit::toPyObject(value);
}

}  // namespace causeway

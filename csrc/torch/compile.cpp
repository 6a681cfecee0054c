#include "torch/compile.h"

#include <memory>
#include <string>
#include <vector>

#include <pybind11/stl.h>
#include <torch/csrc/autograd/python_variable.h>
#include <torch/csrc/utils/object_ptr.h>
#include <torch/csrc/utils/pybind.h>

#include "ladder/call.h"
#include "ladder/forms.h"
#include "ladder/observe.h"
#include "portable/call.h"
#include "portable/epilogue.h"
#include "runtime/check.h"
#include "runtime/device.h"
#include "runtime/graph.h"
#include "runtime/profile.h"
#include "runtime/storage.h"
#include "runtime/stream.h"
#include "runtime/vendor.h"

namespace py = pybind11;

namespace causeway {

namespace {

using portable::KernelText;

portable::Device* compiler_of(int device_index) {
  find_portable_kernels();
  device(device_index);  // opened, and checked
  return portable::device_at(device_index);
}

py::object compiler_info(int index) {
  const portable::Device* d = compiler_of(index);
  if (!d) return py::none();
  py::dict info;
  const auto& languages = std::vector<const char*>{"", "c", "opencl", "cuda", "ascend_simt"};
  info["language"] = d->info.language < languages.size() ? languages[d->info.language] : "";
  info["in_turn"] = d->in_turn();
  info["flags"] = d->info.flags;
  info["compute_units"] = d->info.compute_units;
  info["group_limit"] = d->info.group_limit;
  info["simd_width"] = d->info.simd_width;
  info["local_memory"] = d->info.local_memory;
  info["arithmetic"] = d->info.arithmetic;
  info["driver"] = std::string(d->info.driver, strnlen(d->info.driver, sizeof d->info.driver));
  return info;
}

size_t n_tells(const KernelText& text) {
  size_t n = 0;
  for (const auto& p : text.parameters) n += p.kind == KernelText::Tells;
  return n;
}

const void* address(const KernelText& text, int32_t device, const KernelText::Parameter& p, PyObject* value) {
  if (!THPVariable_Check(value))
    fail(Kind::Causeway, "kernel ", text.name, ": ", p.name, " is a tensor, and a ", Py_TYPE(value)->tp_name,
         " was given");
  const at::Tensor& t = THPVariable_Unpack(value);
  if (!t.device().is_privateuseone() || t.device().index() != device)
    fail(Kind::Causeway, "kernel ", text.name, " runs on device ", device, ", and ", p.name, " is on ",
         t.device().str());
  return p.kind == KernelText::In ? t.const_data_ptr() : materialized_data(t);
}

void put_value(portable::Launch& launch, const KernelText::Parameter& p, PyObject* value) {
  if (p.type == "f32" || p.type == "f64") {
    const double v = PyFloat_AsDouble(value);
    if (v == -1 && PyErr_Occurred()) throw py::error_already_set();
    if (p.type == "f32")
      launch.value(static_cast<float>(v));
    else
      launch.value(v);
    return;
  }
  const int64_t v = PyLong_AsLongLong(value);
  if (v == -1 && PyErr_Occurred()) throw py::error_already_set();
  launch.value(v);
}

using Written = c10::SmallVector<c10::StorageImpl*, 4>;

// A kernel's parameters, from the second of `args` on: before them is `first`.
Written read_arguments(const KernelText& text, int32_t device, const char* first, const py::args& args,
                       portable::Launch& launch) {
  if (args.size() != text.parameters.size() - n_tells(text) + 1)
    fail(Kind::Causeway, "kernel ", text.name, " takes ", first, " and ", text.parameters.size() - n_tells(text),
         " arguments, and ", args.size(), " were given");
  Written written;
  size_t at = 1;
  for (const auto& p : text.parameters) {
    if (p.kind == KernelText::Tells) {
      check(launch.tells(text.name.c_str()), "compile", device);
      continue;
    }
    PyObject* value = PyTuple_GET_ITEM(args.ptr(), at++);
    if (p.kind == KernelText::Value) {
      put_value(launch, p, value);
    } else {
      launch.pointer(address(text, device, p, value));
      if (p.kind != KernelText::In) written.push_back(THPVariable_Unpack(value).storage().unsafeGetStorageImpl());
    }
  }
  return written;
}

// A kernel of a compiled graph. Called with the number of units of work, then its parameters in order.
class CompiledKernel {
 public:
  CompiledKernel(portable::Device* device, cw_function function, KernelText text, double cost, uint32_t lanes)
      : device_(device), function_(function), text_(std::move(text)), cost_(cost), lanes_(lanes) {}

  void call(py::args args) const {
    portable::Launch launch;
    const Written written = read_arguments(text_, device_->index, "the number of units", args, launch);
    const int64_t units = py::cast<int64_t>(args[0]);
    StreamState& stream = current_stream(device_->index);
    cw_status status = CW_OK;
    {
      py::gil_scoped_release no_gil;
      Profiled span(Work::Kernel, text_.name.c_str(), &stream);
      const Recording recording(graph_of(stream), text_.name.c_str());
      if (Recording::graph()) span.drop();
      status = lanes_ ? launch.run_groups(*device_, function_, units, lanes_, stream.handle, cost_ / lanes_)
                      : launch.run(*device_, function_, units, cost_, stream.handle);
      if (status == CW_OK && units > 0) stream.give();
      for (c10::StorageImpl* s : written) wrote(*s);
    }
    if (status == CW_UNSUPPORTED && device_->info.loop_limit)
      fail(Kind::Causeway, "torch.compile's kernel ", text_.name, " may take more turns of its loops than device ",
           device_->index, " makes (", device_->info.loop_limit,
           "): leave this part of the model out of the graph (torch.compiler.disable)");
    ++launches_;
    check(status, ("torch.compile's kernel " + text_.name).c_str(), device_->index);
  }

  const std::string& name() const { return text_.name; }
  int64_t launches() const { return launches_; }

 private:
  portable::Device* device_;
  cw_function function_;
  KernelText text_;
  double cost_;
  uint32_t lanes_;  // items of a group that takes a unit; 0: an item takes units of its own
  mutable int64_t launches_ = 0;
};

// "aten::addmm.out"; NULL: torch has none of that name.
Operator* operator_of(const std::string& name) {
  const size_t dot = name.find('.');
  const auto handle = c10::Dispatcher::singleton().findSchema(
      {name.substr(0, dot), dot == std::string::npos ? "" : name.substr(dot + 1)});
  return handle ? &operator_for(*handle) : nullptr;
}

// What a product of a compiled graph is finished with. Called with the product's call, a function without arguments, then the
// epilogue's parameters in order.
class CompiledEpilogue {
 public:
  CompiledEpilogue(int device, std::string before, std::string row, KernelText kernel, std::string name)
      : device_(device), name_(std::move(name)), op_(operator_of(name_)) {
    std::string all = name_ + before + row + kernel.body;
    for (const auto& p : kernel.parameters) all += std::to_string(p.kind) + p.type + p.name + ",";
    text_.before = std::move(before), text_.row = std::move(row), text_.kernel = std::move(kernel);
    text_.id = portable::family(all.c_str()) | 1;
  }

  // None where the product's kernel did it; else what the call gave, which is still to be finished.
  py::object call(py::args args) const {
    portable::Epilogue epilogue(text_, name_);
    const Written written = read_arguments(text_.kernel, device_, "a product", args, epilogue.arguments);
    py::object result;
    {
      // An observer is to see the product's own result.
      const bool is_watched = op_ && op_->observed.load() && observers_see_values();
      const portable::PendingEpilogue pending(is_watched || text_.refused.load() ? nullptr : &epilogue);
      result = args[0]();
    }
    if (!epilogue.taken) return result;
    for (c10::StorageImpl* s : written) wrote(*s);
    ++taken_;
    return py::none();
  }

  int64_t taken() const { return taken_; }

 private:
  int32_t device_;
  std::string name_;  // of the operator
  const Operator* op_;
  portable::EpilogueText text_;
  mutable int64_t taken_ = 0;
};

std::vector<KernelText> read_kernels(const py::list& given) {
  std::vector<KernelText> kernels;
  for (py::handle one : given) {
    KernelText k;
    k.name = py::cast<std::string>(one.attr("name"));
    for (py::handle p : one.attr("parameters")) {
      const auto kind = py::cast<std::string>(p[py::int_(0)]);
      k.parameters.push_back({kind == "in"      ? KernelText::In
                              : kind == "out"   ? KernelText::Out
                              : kind == "value" ? KernelText::Value
                                                : KernelText::Tells,
                              py::cast<std::string>(p[py::int_(1)]), py::cast<std::string>(p[py::int_(2)])});
    }
    k.body = py::cast<std::string>(one.attr("body"));
    kernels.push_back(std::move(k));
  }
  return kernels;
}

std::string compiled_source(int index, const std::string& before, const py::list& given) {
  const portable::Device* d = compiler_of(index);
  if (!d) fail(Kind::Causeway, "device ", index, " has no compiler (code.v1)");
  return portable::compiled_source(d->info, before, read_kernels(given));
}

std::vector<std::shared_ptr<CompiledKernel>> build_kernels(int index, const std::string& before,
                                                           const py::list& given) {
  portable::Device* d = compiler_of(index);
  if (!d) fail(Kind::Causeway, "device ", index, " has no compiler (code.v1)");
  std::vector<KernelText> kernels = read_kernels(given);
  const std::string source = portable::compiled_source(d->info, before, kernels);
  std::vector<cw_function> functions;
  cw_status status = CW_OK;
  {
    py::gil_scoped_release no_gil;
    status = portable::build_compiled(*d, source, kernels, &functions);
  }
  check(status, "code.v1's build of a compiled graph", index);
  std::vector<std::shared_ptr<CompiledKernel>> made;
  for (size_t i = 0; i < kernels.size(); ++i)
    made.push_back(std::make_shared<CompiledKernel>(d, functions[i], kernels[i],
                                                    py::cast<double>(given[i].attr("cost")),
                                                    py::cast<uint32_t>(given[i].attr("lanes"))));
  return made;
}

std::shared_ptr<CompiledEpilogue> epilogue(int index, const std::string& name, const std::string& before,
                                           const std::string& row, const py::object& given) {
  if (!compiler_of(index)) fail(Kind::Causeway, "device ", index, " has no compiler (code.v1)");
  py::list one;
  one.append(given);
  return std::make_shared<CompiledEpilogue>(index, before, row, read_kernels(one)[0], name);
}

// Whether a call of the operator goes to a portable kernel: no other rung comes before it.
bool goes_portable(const std::string& name, at::ScalarType dtype, int index) {
  compiler_of(index);
  Operator* op = operator_of(name);
  if (!op) return false;
  const Offers& offers = op->offers().of(index);
  return !takes(offers.own, dtype) && !takes(offers.out, dtype) && portable_serves(*op) &&
         (takes(offers.portable_own, dtype) || takes(offers.portable_out, dtype));
}

}  // namespace

void bind_compile(py::module_& m) {
  // Never freed: the profiler keeps names of kernels.
  py::class_<CompiledKernel, std::shared_ptr<CompiledKernel>>(m, "CompiledKernel")
      .def("__call__", &CompiledKernel::call)
      .def_property_readonly("name", &CompiledKernel::name)
      .def_property_readonly("launches", &CompiledKernel::launches);
  m.def("compiler_info", compiler_info);
  m.def("compiled_source", compiled_source);
  m.def("build_kernels", build_kernels);
  py::class_<CompiledEpilogue, std::shared_ptr<CompiledEpilogue>>(m, "CompiledEpilogue")
      .def("__call__", &CompiledEpilogue::call)
      .def_property_readonly("taken", &CompiledEpilogue::taken);
  m.def("epilogue", epilogue);
  m.def("goes_portable", goes_portable);
}

}  // namespace causeway

#include "torch/graph.h"

#include <memory>
#include <string>

#if __has_include(<ATen/core/GraphImplInterface.h>)
#include <ATen/core/GraphImplInterface.h>
#define CAUSEWAY_HAS_GRAPH_IMPL 1
#endif
#include <ATen/core/LegacyTypeDispatch.h>
#include <pybind11/stl.h>
#include <torch/csrc/autograd/python_variable.h>

#include "runtime/allocator.h"
#include "runtime/device.h"
#include "portable/device.h"
#include "runtime/graph.h"
#include "runtime/kernel_error.h"
#include "runtime/merged.h"
#include "runtime/packed.h"
#include "runtime/storage.h"

namespace py = pybind11;

namespace causeway {

#ifdef CAUSEWAY_HAS_GRAPH_IMPL

namespace {

// Capture modes say what other threads may do meanwhile: here all of them, as only work on captured streams is noted.
struct GraphImpl final : at::GraphImplInterface {
  explicit GraphImpl(const at::GraphImplArgs& args) : graph_(args.keep_graph) {}
  void capture_begin(c10::MempoolId_t pool, at::GraphCaptureMode) override { graph_.begin(pool); }
  void capture_end() override {
    graph_.end();
    if (!graph_.size())
      TORCH_WARN("nothing was captured: no work was put on the stream, nor on one that waited for it");
  }
  void instantiate() override { graph_.instantiate(/*by_program=*/true); }
  void replay() override { graph_.replay(); }
  void reset() override { graph_.reset(); }
  c10::MempoolId_t pool() const override { return graph_.pool(); }
  void enable_debug_mode() override { graph_.keep_dump(true); }
  void debug_dump(const std::string& path) override { graph_.dump(path); }

 private:
  Graph graph_;
};

}  // namespace

#endif

namespace {

// A call of torch.compile's as a graph: inputs are where they were or are copied to where the graph reads them, and
// results are tensors of the caller's own.
//
// A replay writes its results where the last one did. One that is still in use is given memory of its own first, under
// the tensors that have it, so results live as long as they would without a graph.
class GraphCall {
 public:
  // `inputs` as the graph read them, of which the `copied` ones are its own, and `mutated` ones it wrote. `outputs` as it
  // made them.
  GraphCall(std::shared_ptr<Graph> graph, py::list inputs, std::vector<bool> copied, std::vector<bool> mutated,
            py::list outputs)
      : graph_(std::move(graph)) {
    for (size_t i = 0; i < inputs.size(); ++i) {
      PyObject* value = PyList_GET_ITEM(inputs.ptr(), i);
      Input in;
      if (THPVariable_Check(value)) {
        in.tensor = THPVariable_Unpack(value);
        in.address = in.tensor.const_data_ptr();
        in.copied = copied[i];
        in.mutated = mutated[i];
      } else {
        in.number = py::reinterpret_borrow<py::object>(value);
      }
      inputs_.push_back(std::move(in));
    }
    for (py::handle value : outputs) {
      Output out;
      if (THPVariable_Check(value.ptr())) {
        out.tensor = THPVariable_Unpack(value.ptr());
        for (size_t i = 0; i < inputs_.size() && out.input < 0; ++i)
          if (const at::Tensor& t = inputs_[i].tensor; t.defined() && t.is_alias_of(out.tensor)) {
            out.same = t.is_same(out.tensor);
            // Of a copied input only the copy has what was written to it.
            if (out.same || !inputs_[i].copied) out.input = static_cast<int>(i);
          }
      } else {
        out.number = py::reinterpret_borrow<py::object>(value);
      }
      outputs_.push_back(std::move(out));
    }
  }

  // The results; or the place of an input that is elsewhere than it was and is not copied; or None, for inputs of other
  // sizes or numbers.
  py::object call(py::list args) {
    if (args.size() != inputs_.size()) return py::none();
    for (size_t i = 0; i < inputs_.size(); ++i) {
      PyObject* value = PyList_GET_ITEM(args.ptr(), i);
      const Input& in = inputs_[i];
      if (!in.tensor.defined()) {
        if (THPVariable_Check(value) || PyObject_RichCompareBool(value, in.number.ptr(), Py_EQ) != 1) return py::none();
        continue;
      }
      if (!THPVariable_Check(value)) return py::none();
      const at::Tensor& t = THPVariable_Unpack(value);
      if (t.sizes() != in.tensor.sizes() || t.scalar_type() != in.tensor.scalar_type() ||
          t.device() != in.tensor.device())
        return py::none();
      if (!in.copied && t.strides() != in.tensor.strides()) return py::none();
    }
    for (size_t i = 0; i < inputs_.size(); ++i) {
      const Input& in = inputs_[i];
      if (in.tensor.defined() && !in.copied &&
          THPVariable_Unpack(PyList_GET_ITEM(args.ptr(), i)).const_data_ptr() != in.address)
        return py::int_(i);
    }
    std::vector<at::Tensor> results(outputs_.size());
    {
      py::gil_scoped_release no_gil;
      at::AutoDispatchBelowADInplaceOrView below;
      move_results();
      for (size_t i = 0; i < inputs_.size(); ++i)
        if (inputs_[i].copied) inputs_[i].tensor.copy_(given(args, i));
      graph_->replay();
      for (size_t i = 0; i < inputs_.size(); ++i)
        if (inputs_[i].copied && inputs_[i].mutated) const_cast<at::Tensor&>(given(args, i)).copy_(inputs_[i].tensor);
      for (size_t o = 0; o < outputs_.size(); ++o) {
        const Output& out = outputs_[o];
        if (!out.tensor.defined()) continue;
        if (out.input < 0)
          results[o] = out.tensor.detach();
        else if (!out.same)
          results[o] = given(args, out.input)
                           .as_strided(out.tensor.sizes(), out.tensor.strides(),
                                       given(args, out.input).storage_offset() + out.tensor.storage_offset() -
                                           inputs_[out.input].tensor.storage_offset());
      }
    }
    py::list list(outputs_.size());
    for (size_t o = 0; o < outputs_.size(); ++o) {
      const Output& out = outputs_[o];
      if (out.input >= 0 && out.same)
        list[o] = args[out.input];
      else if (out.tensor.defined())
        list[o] = py::reinterpret_steal<py::object>(THPVariable_Wrap(std::move(results[o])));
      else
        list[o] = out.number;
    }
    return list;
  }

 private:
  struct Input {
    at::Tensor tensor;  // undefined: a number
    const void* address = nullptr;
    bool copied = false, mutated = false;
    py::object number;
  };
  struct Output {
    at::Tensor tensor;  // undefined: a number, or None
    int input = -1;  // whose memory it is
    bool same = false;  // it is that input
    py::object number;
  };

  static const at::Tensor& given(const py::list& args, size_t i) {
    return THPVariable_Unpack(PyList_GET_ITEM(args.ptr(), i));
  }

  void move_results() {
    for (size_t o = 0; o < outputs_.size(); ++o) {
      if (!outputs_[o].tensor.defined() || outputs_[o].input >= 0) continue;
      c10::StorageImpl* storage = outputs_[o].tensor.storage().unsafeGetStorageImpl();
      const size_t users = outputs_[o].tensor.storage().use_count();
      size_t ours = 0;
      bool before = false;
      for (const Input& in : inputs_) ours += in.copied && in.tensor.storage().unsafeGetStorageImpl() == storage;
      for (size_t p = 0; p < outputs_.size(); ++p)
        if (outputs_[p].tensor.defined() && outputs_[p].tensor.storage().unsafeGetStorageImpl() == storage)
          ++ours, before |= p < o;
      if (before || users <= ours || !storage->nbytes()) continue;
      // Those who have it keep the tensor and get other memory; the graph keeps the memory.
      const int index = storage->device().index();
      StreamState& stream = current_stream(index);
      c10::DataPtr moved = allocate(index, stream, storage->nbytes());
      const int32_t id = device(index).vendor_id;
      copy_on(stream, moved.get(), id, storage->data(), id, storage->nbytes());
      const size_t bytes = storage->nbytes();
      auto kept = make_storage(storage->set_data_ptr(std::move(moved)), bytes);
      replays_write(static_cast<DeviceStorage&>(*kept));
      for (Output& out : outputs_)
        if (out.tensor.defined() && out.tensor.storage().unsafeGetStorageImpl() == storage)
          out.tensor = with_storage(out.tensor, c10::Storage(kept));
      for (Input& in : inputs_)
        if (in.copied && in.tensor.storage().unsafeGetStorageImpl() == storage)
          in.tensor = with_storage(in.tensor, c10::Storage(kept));
    }
  }

  static at::Tensor with_storage(const at::Tensor& t, c10::Storage storage) {
    at::Tensor other = make_device_tensor(std::move(storage), t.key_set(), t.scalar_type());
    other.unsafeGetTensorImpl()->set_sizes_and_strides(t.sizes(), t.strides(), t.storage_offset());
    return other;
  }

  std::shared_ptr<Graph> graph_;
  std::vector<Input> inputs_;
  std::vector<Output> outputs_;
};

}  // namespace

void bind_graphs(py::module_& m) {
  using no_gil = py::call_guard<py::gil_scoped_release>;
  const auto pool_of = [](std::pair<uint64_t, uint64_t> id) { return c10::MempoolId_t{id.first, id.second}; };
  py::class_<GraphCall>(m, "GraphCall")
      .def(py::init<std::shared_ptr<Graph>, py::list, std::vector<bool>, std::vector<bool>, py::list>())
      .def("__call__", &GraphCall::call);
  py::class_<Graph, std::shared_ptr<Graph>>(m, "Graph")
      .def(py::init<bool>(), py::arg("keep_graph") = false)
      .def(
          "begin",
          [pool_of](Graph& g, std::pair<uint64_t, uint64_t> pool, std::vector<size_t> apart,
                    std::pair<uint64_t, uint64_t> apart_pool) {
            g.begin(pool_of(pool), {std::move(apart), pool_of(apart_pool)});
          },
          py::arg("pool") = std::pair<uint64_t, uint64_t>{0, 0}, py::arg("apart") = std::vector<size_t>{},
          py::arg("apart_pool") = std::pair<uint64_t, uint64_t>{0, 0}, no_gil())
      .def("allocations",
           [](const Graph& g) {
             std::vector<size_t> all;
             for (const auto& a : g.allocations()) all.push_back(reinterpret_cast<size_t>(a.start));
             return all;
           })
      .def("end", &Graph::end, no_gil())
      .def("abort", &Graph::abort, no_gil())
      .def(
          "instantiate", [](Graph& g) { g.instantiate(/*by_program=*/true); }, no_gil())
      .def("replay", &Graph::replay, no_gil())
      .def("run_step", &Graph::run_step, no_gil())
      .def("noted", &Graph::noted, no_gil())
      .def("reset", &Graph::reset, no_gil())
      .def("pool", &Graph::pool)
      .def("dump", &Graph::dump)
      .def("keep_dump", &Graph::keep_dump)
      .def("steps",
           [](const Graph& g) {
             // (kind, operator, function, grid, group, arguments, bytes, byte), an argument as an address or bytes
             py::list all;
             for (const auto& [name, v] : g.view()) {
               constexpr const char* kinds[] = {"", "launch", "copy", "fill"};
               py::list arguments;
               for (const auto& a : v.arguments)
                 arguments.append(a.value.empty() ? py::object(py::int_(reinterpret_cast<size_t>(a.address)))
                                                  : py::object(py::bytes(a.value)));
               all.append(py::make_tuple(kinds[v.kind], name, reinterpret_cast<size_t>(v.function),
                                         std::vector<uint32_t>(v.grid, v.grid + 3),
                                         std::vector<uint32_t>(v.group, v.group + 3), arguments, v.bytes, v.byte));
             }
             return all;
           })
      .def("memory",
           [](const Graph& g) {
             py::list all;
             for (const auto& a : g.allocations())
               all.append(py::make_tuple(reinterpret_cast<size_t>(a.start), a.bytes, a.step));
             return all;
           })
      .def("random", &Graph::random)
      .def("of_vendor", &Graph::size_of_vendor)
      .def("merged", &Graph::size_of_merged)
      .def("__len__", &Graph::size);
  // torch looks for it by the device's name, so after that is given.
  m.def("register_graph", [] {
#ifdef CAUSEWAY_HAS_GRAPH_IMPL
    const std::string key = c10::DeviceTypeName(kDeviceType, /*lower_case=*/false);
    if (!at::GraphImplRegistry()->Has(key))
      at::GraphImplRegistry()->Register(key,
                                        [](const at::GraphImplArgs& args) -> std::unique_ptr<at::GraphImplInterface> {
                                          return std::make_unique<GraphImpl>(args);
                                        });
#endif
  });
  m.def("on_first_capture", [](py::function f) {
    on_first_capture([f = f.release().ptr()] {  // kept for good
      py::gil_scoped_acquire gil;
      py::handle(f).operator()();
    });
  });
  // A source, the name of its kernel and the functions' numbers; or None.
  m.def("set_merger", [](py::function f) {
    set_merger([f = f.release().ptr()](const auto& functions, size_t addresses, bool split) {  // kept for good
      py::gil_scoped_acquire gil;
      const py::object made = py::handle(f).operator()(functions, addresses, split);
      std::optional<MergedSource> out;
      if (!made.is_none()) {
        auto [source, name, numbers] = made.cast<std::tuple<std::string, std::string, std::vector<int64_t>>>();
        out = MergedSource{std::move(source), std::move(name), std::move(numbers)};
      }
      return out;
    });
  });
  m.def("refuse_capture", [](const std::string& what, const std::string& instead) {
    if (Graph* graph = graph_of(current_stream(current_device()))) graph->refuse(what, instead);
  });
  m.def("keep_sources", &portable::keep_sources);
  m.def("source_of", [](size_t function) {
    const auto found = portable::source_of(reinterpret_cast<cw_function>(function));
    return std::pair(found.name, found.source ? *found.source : "");
  });
  m.def("block_of", [](int device, size_t address) {
    const auto [start, bytes] = block_of(device, reinterpret_cast<const void*>(address));
    return std::pair(reinterpret_cast<size_t>(start), bytes);
  });
  m.def("read_memory", [](int index, size_t address, size_t bytes) {
    std::string out(bytes, '\0');
    {
      py::gil_scoped_release no_gil;
      const DeviceState& d = device(index);
      StreamState& stream = current_stream(index);
      copy_on(stream, out.data(), CW_HOST, reinterpret_cast<const void*>(address), d.vendor_id, bytes);
      stream.wait();
    }
    return py::bytes(out);
  });
  m.def("write_memory", [](int index, size_t address, const std::string& data) {
    py::gil_scoped_release no_gil;
    const DeviceState& d = device(index);
    StreamState& stream = current_stream(index);
    copy_on(stream, reinterpret_cast<void*>(address), d.vendor_id, data.data(), CW_HOST, data.size());
    stream.wait();
  });
  m.def("told_at", [](int device) { return reinterpret_cast<size_t>(told_at(device)); });
  m.def("tellers", &tellers);
  m.def("new_pool_id", [] { return new_pool_id(true); });
  m.def("make_external", [](size_t event) { make_external(*reinterpret_cast<Event*>(event)); });
  m.def("is_capturing", [](int index) {
    if (index < 0) index = current_device();
    return device_opened(index) && graph_of(current_stream(index)) != nullptr;
  });
}

}  // namespace causeway

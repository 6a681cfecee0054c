#include "comm/module.h"

#include <pybind11/chrono.h>

#include "runtime/check.h"
#include "comm/backend.h"

namespace py = pybind11;

namespace causeway {

namespace {

// Python's function that makes a gloo, for the life of the process.
GlooMaker maker(py::function function) {
  static auto& kept = *new py::function;
  kept = std::move(function);
  return [](c10::intrusive_ptr<c10d::Store> store, int rank, int size, std::chrono::milliseconds timeout) {
    py::gil_scoped_acquire gil;
    return kept(store, rank, size, timeout).cast<c10::intrusive_ptr<c10d::Backend>>();
  };
}

CommBackend& ours(const c10::intrusive_ptr<c10d::Backend>& backend) {
  auto* b = dynamic_cast<CommBackend*>(backend.get());
  if (!b)
    fail(Kind::Causeway, "this process group's backend is ", backend->getBackendName(), ", which is not Causeway's");
  return *b;
}

}  // namespace

void bind_comm(py::module_& m) {
  py::class_<CommGroupOptions, c10::intrusive_ptr<CommGroupOptions>, c10d::Backend::Options>(m, "CommGroupOptions")
      .def("__deepcopy__",
           [](const CommGroupOptions& o, const py::dict&) { return c10::make_intrusive<CommGroupOptions>(o); });
  py::class_<CommBackend, c10::intrusive_ptr<CommBackend>, c10d::Backend>(m, "CommBackend")
      .def_property_readonly("options", &CommBackend::getBackendOptions)
      // torch calls it on ranks that are in no part of a split, where NCCL needs it.
      .def("perform_nocolor_split", [](CommBackend&, const py::object&) {});
  m.def("comm_backend",
        [](const c10::intrusive_ptr<c10d::Store>& store, int rank, int size, std::chrono::milliseconds timeout,
           py::function gloo, const std::string& name, const std::string& group, const std::vector<uint64_t>& ranks,
           size_t chunk_bytes, bool blocking, bool checked, bool through_host) {
          GlooMaker make = maker(std::move(gloo));
          py::gil_scoped_release released;
          return c10::make_intrusive<CommBackend>(
              store, rank, size, timeout, std::move(make),
              CommOptions{name, group, ranks, chunk_bytes, blocking, checked, through_host});
        });
  m.def("comm_group",
        [](const c10::intrusive_ptr<CommBackend>& backend, const c10::intrusive_ptr<c10d::Backend>& seen) {
          return CommBackend::group_of(backend, seen);
        });
  m.def("comm_report", [](const c10::intrusive_ptr<c10d::Backend>& backend) { return ours(backend).report(); });
  m.def("comm_routes", [](const c10::intrusive_ptr<c10d::Backend>& backend) { return ours(backend).routes(); });
  m.def("close_comm", close_comm, py::call_guard<py::gil_scoped_release>());
}

}  // namespace causeway

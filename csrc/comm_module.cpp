#include "comm_module.h"

#include <pybind11/chrono.h>

#include "check.h"
#include "comm_backend.h"

namespace py = pybind11;

namespace causeway {

namespace {

CommBackend& ours(const c10::intrusive_ptr<c10d::Backend>& backend) {
  auto* b = dynamic_cast<CommBackend*>(backend.get());
  if (!b)
    fail(Kind::Causeway, "this process group's backend is ", backend->getBackendName(), ", which is not Causeway's");
  return *b;
}

}  // namespace

void bind_comm(py::module_& m) {
  m.def(
      "comm_backend",
      [](const c10::intrusive_ptr<c10d::Store>& store, int rank, int size, std::chrono::milliseconds timeout,
         const c10::intrusive_ptr<c10d::Backend>& gloo, const std::string& name, const std::string& group,
         const std::vector<uint64_t>& ranks, size_t chunk_bytes, bool blocking, bool checked,
         int device) -> c10::intrusive_ptr<c10d::Backend> {
        return c10::make_intrusive<CommBackend>(
            store, rank, size, timeout, gloo, CommOptions{name, group, ranks, chunk_bytes, blocking, checked, device});
      },
      py::call_guard<py::gil_scoped_release>());
  m.def("comm_routes", [](const c10::intrusive_ptr<c10d::Backend>& backend) { return ours(backend).routes(); });
  m.def("close_comm", close_comm, py::call_guard<py::gil_scoped_release>());
}

}  // namespace causeway

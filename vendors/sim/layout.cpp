#include "layout.hpp"

#include "device.hpp"
#include "error.hpp"
#include "fault.hpp"
#include "ops/call.hpp"
#include "ops/matmul.hpp"
#include "stream.hpp"

namespace sim {

namespace {

const OpDef panels = {"panels", nullptr, floats};

const char* name(uint32_t layout) { return layout == 0 ? panels.name : nullptr; }

// Bytes of the form, 0 where there is none.
uint64_t bytes_of(const DLTensor& t) {
  return t.ndim == 2 ? panels_bytes(dtype_of(t.dtype), t.shape[0], t.shape[1]) : 0;
}

cw_status ask(const char* entry, int32_t device, uint32_t layout, const DLTensor* tensor, uint64_t* bytes) {
  if (cw_status status = injected_fault(entry, nullptr)) return status;
  if (device < 0 || device >= settings().devices) return fail(CW_INVALID, "%s: there is no device %d", entry, device);
  if (layout != 0) return fail(CW_INVALID, "%s: there is no layout %u", entry, layout);
  *bytes = bytes_of(*tensor);
  return *bytes ? CW_OK : fail(CW_UNSUPPORTED, "%s: panels are of matrices of floating-point numbers", entry);
}

cw_status packed_bytes(int32_t device, uint32_t layout, const DLTensor* tensor, uint64_t* bytes, uint32_t* uses) {
  TRY(ask("packed_bytes", device, layout, tensor, bytes));
  return *uses = 2, CW_OK;
}

// The work of pack and unpack: f(the tensor's memory and strides, its form).
template <class F>
cw_status convert(const char* entry, int32_t index, uint32_t layout, const DLTensor& tensor, const void* form,
                  cw_stream stream, F f) {
  uint64_t bytes = 0;
  TRY(ask(entry, index, layout, &tensor, &bytes));
  Device& device = *device_at(index);
  const cw_arg arg = {CW_TENSOR, 0, {.tensor = &tensor}};
  Tensor t;
  TRY(Call(panels, &arg, 1, device, stream).tensor(0, &t));
  char* memory = nullptr;
  TRY(resolve(device, form, bytes, entry, &memory));
  const Matrix m = {t.data, t.dtype, t.stride_bytes(0), t.stride_bytes(1)};
  return put(device, stream, entry, [=, k = t.shape[0], n = t.shape[1]] { return f(m, k, n, memory), CW_OK; });
}

cw_status pack(int32_t device, uint32_t layout, const DLTensor* tensor, void* packed, cw_stream stream) {
  return convert("pack", device, layout, *tensor, packed, stream, pack_panels);
}

cw_status unpack(int32_t device, uint32_t layout, const void* packed, const DLTensor* tensor, cw_stream stream) {
  return convert("unpack", device, layout, *tensor, packed, stream,
                 [](const Matrix& m, int64_t k, int64_t n, const char* form) { unpack_panels(form, k, n, m); });
}

const cw_layout_v1 table = {sizeof(cw_layout_v1), 1, name, packed_bytes, pack, unpack};

}  // namespace

const cw_layout_v1* layout_table() {
  const bool offered = settings().ops == Offer::all && !settings().without.count("layout.v1");
  return offered ? &table : nullptr;
}

}  // namespace sim

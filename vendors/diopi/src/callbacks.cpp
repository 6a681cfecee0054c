// The 27 functions that a library of DIOPI's asks its host for. They are the only symbols of this library beside cw_open_v1.
#include <cstring>

#include "causeway/op.hpp"
#include "error.hpp"
#include "handles.hpp"
#include "library.hpp"

int64_t diopiTensor::numel() const {
  int64_t n = 1;
  for (int64_t d = 0; d < ndim; ++d) n *= shape[d];
  return n;
}

int64_t diopiTensor::reach() const {
  int64_t n = 1;
  for (int64_t d = 0; d < ndim; ++d) {
    if (shape[d] == 0) return 0;
    n += (shape[d] - 1) * strides[d];
  }
  return n;
}

namespace diopi {

int64_t bytes_of(diopiDtype_t dtype) {
  switch (dtype) {
    case diopi_dtype_int8:
    case diopi_dtype_uint8:
    case diopi_dtype_bool:
      return 1;
    case diopi_dtype_int16:
    case diopi_dtype_uint16:
    case diopi_dtype_float16:
    case diopi_dtype_bfloat16:
      return 2;
    case diopi_dtype_int32:
    case diopi_dtype_uint32:
    case diopi_dtype_float32:
    case diopi_dtype_tfloat32:
    case diopi_dtype_complex32:
      return 4;
    case diopi_dtype_int64:
    case diopi_dtype_uint64:
    case diopi_dtype_float64:
    case diopi_dtype_complex64:
      return 8;
    case diopi_dtype_complex128:
      return 16;
    default:
      return 0;
  }
}

diopiDtype_t dtype_of(DLDataType type) {
  switch (cw::dtype_of_dl(type)) {
    case cw::Dtype::boolean:
      return diopi_dtype_bool;
    case cw::Dtype::uint8:
      return diopi_dtype_uint8;
    case cw::Dtype::int8:
      return diopi_dtype_int8;
    case cw::Dtype::uint16:
      return diopi_dtype_uint16;
    case cw::Dtype::int16:
      return diopi_dtype_int16;
    case cw::Dtype::uint32:
      return diopi_dtype_uint32;
    case cw::Dtype::int32:
      return diopi_dtype_int32;
    case cw::Dtype::uint64:
      return diopi_dtype_uint64;
    case cw::Dtype::int64:
      return diopi_dtype_int64;
    case cw::Dtype::float16:
      return diopi_dtype_float16;
    case cw::Dtype::bfloat16:
      return diopi_dtype_bfloat16;
    case cw::Dtype::float32:
      return diopi_dtype_float32;
    case cw::Dtype::float64:
      return diopi_dtype_float64;
    case cw::Dtype::complex32:
      return diopi_dtype_complex32;
    case cw::Dtype::complex64:
      return diopi_dtype_complex64;
    case cw::Dtype::complex128:
      return diopi_dtype_complex128;
    default:
      return diopi_dtype_unsupported;
  }
}

cw_status require(diopiContext& context, const diopiSize_t& size, const diopiSize_t* stride, diopiDtype_t dtype,
                  diopiDevice_t device, diopiTensor** out) {
  const int64_t bytes = bytes_of(dtype);
  if (size.len < 0 || !bytes) return fail(CW_INVALID, "a tensor of dtype %d was required", static_cast<int>(dtype));
  context.required.emplace_back();
  diopiTensor& t = context.required.back();
  t.ndim = size.len, t.dtype = dtype, t.device = device;
  t.own.resize(static_cast<size_t>(2 * size.len));
  int64_t* shape = t.own.data();
  int64_t* strides = shape + size.len;
  int64_t dense = 1;
  for (int64_t d = size.len - 1; d >= 0; --d) {
    shape[d] = size.data[d];
    strides[d] = stride && stride->data ? stride->data[d] : dense;
    dense *= shape[d];
  }
  t.shape = shape, t.strides = strides;
  const auto all = static_cast<uint64_t>(t.reach() * bytes);
  if (device == diopi_host) {
    t.memory.reset(new char[all ? all : 1]);
    t.data = t.memory.get();
  } else if (all) {
    TRY(host.scratch(context.device, context.stream, all, &t.data));
  }
  return *out = &t, CW_OK;
}

namespace {

diopiError_t refuse(const char* words) { return fail(CW_INVALID, "%s", words), diopiErrorOccurred; }

template <class T, class Value>
diopiError_t give(diopiConstTensorHandle_t t, T* out, Value value) {
  if (!t || !out) return refuse("a call-back was given no tensor");
  return *out = value(*t), diopiSuccess;
}

}  // namespace

}  // namespace diopi

#define CALLBACK extern "C" CW_EXPORT
#define GIVE(type, name, value)                                                      \
  CALLBACK diopiError_t diopiGetTensor##name(diopiConstTensorHandle_t t, type out) { \
    return diopi::give(t, out, [](const diopiTensor& x) { return value; });          \
  }

CALLBACK const char* diopiGetVersion() { return "DIOPI 1.0.0, by Causeway"; }

CALLBACK diopiError_t diopiGetTensorData(diopiTensorHandle_t t, void** out) {
  return diopi::give(t, out, [](const diopiTensor& x) { return x.data; });
}
GIVE(const void**, DataConst, x.data)
GIVE(diopiSize_t*, Shape, (diopiSize_t{x.shape, x.ndim}))
GIVE(diopiSize_t*, Stride, (diopiSize_t{x.strides, x.ndim}))
GIVE(diopiDtype_t*, Dtype, x.dtype)
GIVE(diopiDevice_t*, Device, x.device)
GIVE(int64_t*, Numel, x.numel())
GIVE(int64_t*, ElemSize, diopi::bytes_of(x.dtype))
// The core gives addresses of first elements: a storage begins there.
GIVE(void**, StoragePtr, x.data)
GIVE(int64_t*, StorageOffset, (static_cast<void>(x), int64_t{0}))
GIVE(size_t*, StorageNbytes, static_cast<size_t>(x.reach() * diopi::bytes_of(x.dtype)))
GIVE(diopiDeviceIndex_t*, DeviceIndex, (static_cast<void>(x), diopiDeviceIndex_t{0}))
#undef GIVE

// No sparse tensor comes to a kernel: the core takes them apart.
CALLBACK diopiError_t diopiGetTensorCrowIndices(diopiConstTensorHandle_t, diopiConstTensorHandle_t*) {
  return diopi::refuse("the tensor is not sparse");
}
CALLBACK diopiError_t diopiGetTensorColIndices(diopiConstTensorHandle_t, diopiConstTensorHandle_t*) {
  return diopi::refuse("the tensor is not sparse");
}
CALLBACK diopiError_t diopiGetTensorValues(diopiConstTensorHandle_t, diopiConstTensorHandle_t*) {
  return diopi::refuse("the tensor is not sparse");
}
CALLBACK diopiError_t diopiIsTensorSparse(diopiConstTensorHandle_t, bool* out) { return *out = false, diopiSuccess; }

CALLBACK diopiError_t diopiGetCurrentDeviceIndex(diopiDeviceIndex_t* out) { return *out = 0, diopiSuccess; }

CALLBACK diopiError_t diopiGetStream(diopiContextHandle_t context, diopiStreamHandle_t* out) {
  return *out = context->handle, diopiSuccess;
}

CALLBACK diopiError_t diopiRequireTensor(diopiContextHandle_t context, diopiTensorHandle_t* out,
                                         const diopiSize_t* size, const diopiSize_t* stride, const diopiDtype_t dtype,
                                         const diopiDevice_t device) {
  const diopiSize_t none = {nullptr, 0};
  const cw_status status = diopi::require(*context, size ? *size : none, stride, dtype, device, out);
  if (!status) return diopiSuccess;
  return context->status = status, diopiErrorOccurred;
}

CALLBACK diopiError_t diopiRequireBuffer(diopiContextHandle_t context, diopiTensorHandle_t* out, int64_t bytes,
                                         diopiDevice_t device) {
  const diopiSize_t size = {&bytes, 1};
  return diopiRequireTensor(context, out, &size, nullptr, diopi_dtype_uint8, device);
}

// As bytes, seed and offset: what CUDA's generators keep. Other states are a chip's own, and there is none to give.
CALLBACK diopiError_t diopiGeneratorGetState(diopiContextHandle_t context, diopiConstGeneratorHandle_t generator,
                                             diopiTensorHandle_t* out) {
  static_assert(sizeof(diopiGenerator) == 16);
  if (const diopiError_t result = diopiRequireBuffer(context, out, sizeof(*generator), diopi_host)) return result;
  return memcpy((*out)->data, generator, sizeof(*generator)), diopiSuccess;
}
CALLBACK diopiError_t diopiGeneratorSetState(diopiGeneratorHandle_t generator, diopiConstTensorHandle_t state) {
  const int64_t bytes = state ? state->numel() * diopi::bytes_of(state->dtype) : 0;
  if (bytes != sizeof(*generator) || state->device != diopi_host)
    return diopi::refuse("a generator's state is 16 bytes of the host, seed and offset");
  return memcpy(generator, state->data, sizeof(*generator)), diopiSuccess;
}
CALLBACK diopiError_t diopiGeneratorGetSeedAndOffset(diopiGeneratorHandle_t generator, uint64_t* seed,
                                                     uint64_t* offset) {
  return *seed = generator->seed, *offset = generator->offset, diopiSuccess;
}
CALLBACK diopiError_t diopiGeneratorSetSeedAndOffset(diopiGeneratorHandle_t generator, uint64_t seed, uint64_t offset) {
  return generator->seed = seed, generator->offset = offset, diopiSuccess;
}

// The core's profiler times each operator by itself.
CALLBACK diopiError_t diopiRecordStart(const char*, void** record) { return *record = nullptr, diopiSuccess; }
CALLBACK diopiError_t diopiRecordEnd(void**) { return diopiSuccess; }

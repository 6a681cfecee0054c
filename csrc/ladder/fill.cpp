#include "ladder/fill.h"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <optional>

#include "runtime/vendor.h"

namespace causeway {

namespace {

bool is_positive_zero(double x) { return x == 0 && !std::signbit(x); }

// The byte that an element with this value repeats, where it does.
std::optional<uint8_t> repeated_byte(const cw_arg& value, const DLDataType& type) {
  switch (value.tag) {
    case CW_DOUBLE:
      return is_positive_zero(value.v.d) ? std::optional<uint8_t>(0) : std::nullopt;
    case CW_COMPLEX:
      return is_positive_zero(value.v.complex[0]) && is_positive_zero(value.v.complex[1]) ? std::optional<uint8_t>(0)
                                                                                          : std::nullopt;
    case CW_INT:
    case CW_BOOLEAN:
      break;
    default:
      return std::nullopt;
  }
  const int64_t number = value.v.i;
  if (number == 0) return 0;
  if (type.code == kDLBool) return 1;
  // -1 is all ones, and an integer of one byte is that byte; what does not fit is torch's to refuse.
  const bool is_signed = type.code == kDLInt;
  if (!is_signed && type.code != kDLUInt) return std::nullopt;
  if (is_signed && number == -1) return 0xff;
  if (type.bits != 8 || number < (is_signed ? -128 : 0) || number > (is_signed ? 127 : 255)) return std::nullopt;
  return static_cast<uint8_t>(number);
}

// Whether the elements lie beside each other, in any order of dimensions.
bool is_dense(const DLTensor& t) {
  int order[64];
  if (t.ndim > 64) return false;
  std::iota(order, order + t.ndim, 0);
  std::sort(order, order + t.ndim, [&](int a, int b) { return t.strides[a] < t.strides[b]; });
  int64_t step = 1;
  for (int i = 0; i < t.ndim; ++i) {
    const int d = order[i];
    if (t.shape[d] == 1) continue;
    if (t.strides[d] != step) return false;
    step *= t.shape[d];
  }
  return true;
}

cw_status fill(const cw_arg* args, int32_t n, cw_stream stream) {
  const DLTensor& t = *args[0].v.tensor;
  const std::optional<uint8_t> byte = n > 1 ? repeated_byte(args[1], t.dtype) : std::optional<uint8_t>(0);
  if (!byte || !is_dense(t)) return CW_UNSUPPORTED;
  uint64_t bytes = static_cast<uint64_t>(t.dtype.bits) * t.dtype.lanes / 8;
  for (int d = 0; d < t.ndim; ++d) bytes *= static_cast<uint64_t>(t.shape[d]);
  return api().mem_set(t.device.device_id, static_cast<char*>(t.data) + t.byte_offset, *byte, bytes, stream);
}

}  // namespace

bool is_fill_kernel(cw_kernel kernel) { return kernel == fill; }

cw_op fill_kernel(const std::string& name) {
  if (!api().mem_set || (name != "aten::zero_" && name != "aten::fill_.Scalar")) return {};
  return {sizeof(cw_op), CW_NEEDS_ELEMENTS, CW_ALL_DTYPES, fill};
}

}  // namespace causeway

// Writing a value, and copying with strides and conversion: the operators that everything else leans on.
#include "ops/fill.hpp"

#include "ops/loop.hpp"
#include "ops/registry.hpp"

namespace sim {

namespace {

template <class Word>
void fill_rows(const Rows<1>& rows, const char* pattern) {
  Word word;
  memcpy(&word, pattern, sizeof(word));
  const bool zero = std::all_of(pattern, pattern + sizeof(word), [](char byte) { return byte == 0; });
  rows.each([&](const char* const* at, int64_t n) {
    char* to = const_cast<char*>(at[0]);
    const int64_t stride = rows.stride[0][0];
    if (stride == int64_t(sizeof(Word))) {
      if (zero)
        memset(to, 0, size_t(n) * sizeof(word));
      else
        std::fill_n(reinterpret_cast<Word*>(to), n, word);
    } else {
      for (int64_t i = 0; i < n; ++i) memcpy(to + i * stride, &word, sizeof(word));
    }
  });
}

struct Word16 {
  uint64_t low, high;
};

// The value is converted once; what is left is bytes of a width.
cw_status fill_with(Call& call, const Tensor& out, const char (&pattern)[16]) {
  Rows<1> rows;
  rows.make({&out});
  struct Pattern {
    alignas(16) char bytes[16];
  } kept;
  memcpy(kept.bytes, pattern, sizeof(kept.bytes));
  const int64_t size = size_of(out.dtype);
  return call.launch([rows, kept, size] {
    switch (size) {
      case 1:
        fill_rows<uint8_t>(rows, kept.bytes);
        break;
      case 2:
        fill_rows<uint16_t>(rows, kept.bytes);
        break;
      case 4:
        fill_rows<uint32_t>(rows, kept.bytes);
        break;
      case 8:
        fill_rows<uint64_t>(rows, kept.bytes);
        break;
      default:
        fill_rows<Word16>(rows, kept.bytes);
    }
    return CW_OK;
  });
}

cw_status fill_scalar(Call& call) {
  Tensor out;
  TRY(call.tensor(0, &out));
  alignas(16) char pattern[16] = {};
  if (is_floating(out.dtype) || call.is_double(1))
    store_one(pattern, call.number<double>(1), out.dtype);
  else
    store_one(pattern, call.number<int64_t>(1), out.dtype);
  return fill_with(call, out, pattern);
}

cw_status zero(Call& call) {
  Tensor out;
  TRY(call.tensor(0, &out));
  alignas(16) char pattern[16] = {};
  return fill_with(call, out, pattern);
}

cw_status copy(Call& call) {
  Tensor out, from;
  TRY(call.tensors_from(0, &out, &from));
  if (from.is_host_scalar && from.dtype == out.dtype) return fill_with(call, out, from.value);
  const bool converts = out.dtype != from.dtype;
  if (converts && (!(real >> out.dtype & 1) || !(real >> from.dtype & 1))) {
    return call.declined("converts only between real dtypes");
  }
  Rows<2> rows;
  if (!rows.make({&out, &from})) return fail(CW_INVALID, "aten::copy_: the shapes do not broadcast");
  return call.launch([rows] {
    copy_rows(rows);
    return CW_OK;
  });
}

template <class Word>
void move_rows(const Rows<2>& rows) {
  const int64_t to_stride = rows.stride[0][0], from_stride = rows.stride[1][0];
  rows.each([=](const char* const* at, int64_t n) {
    char* to = const_cast<char*>(at[0]);
    const char* from = at[1];
    if (to_stride == int64_t(sizeof(Word)) && from_stride == to_stride) {
      memmove(to, from, size_t(n) * sizeof(Word));
      return;
    }
    for (int64_t i = 0; i < n; ++i) memcpy(to + i * to_stride, from + i * from_stride, sizeof(Word));
  });
}

template <class Compute>
void convert_rows(const Rows<2>& rows) {
  map_rows<Compute, 1>(rows, [](Compute value) { return value; });
}

}  // namespace

void copy_rows(const Rows<2>& rows) {
  const Dtype to = rows.dtype[0], from = rows.dtype[1];
  if (to != from) {
    if (to == kDouble || from == kDouble) return convert_rows<double>(rows);
    if (is_floating(to) || is_floating(from)) return convert_rows<float>(rows);
    return convert_rows<int64_t>(rows);
  }
  switch (size_of(to)) {
    case 1:
      return move_rows<uint8_t>(rows);
    case 2:
      return move_rows<uint16_t>(rows);
    case 4:
      return move_rows<uint32_t>(rows);
    case 8:
      return move_rows<uint64_t>(rows);
    default:
      return move_rows<Word16>(rows);
  }
}

const OpList& fill_ops() {
  constexpr cw_dtypes every = (UINT64_C(1) << (kFloat8 + 5)) - 1;  // only bytes are moved
  static const OpList list = {
      {"aten::fill_.Scalar", fill_scalar, real},
      {"aten::zero_", zero, every},
      {"aten::copy_", copy, every},
  };
  return list;
}

}  // namespace sim

// causeway::qlinear_weight: floating-point rows times weights that are integers of 8 or 4 bits in memory, or float8, as
// aten/quantized.cpp has them. They are read packed, and never unpacked whole.
#include <algorithm>

#include "portable/program.h"
#include "portable/kernels/packed.cl.h"

namespace causeway::portable {

const char* vectors_of_16(const Device& device) {
  return device.info.language == CW_CODE_OPENCL_C ? texts::packed::vectors_open_cl : texts::packed::vectors_c;
}

namespace {

// The bytes of float8_e4m3fn, which no other kernel reads.
bool float8(const KernelCall& call, int i, Tensor* out) {
  if (call.tag(i) != CW_TENSOR || call.arg(i).v.tensor->dtype.code != kDLFloat8_e4m3fn) return false;
  DLTensor bytes = *call.arg(i).v.tensor;
  bytes.dtype.code = kDLUInt;
  return call.read(&bytes, out);
}

// out, self, weight, scale, zero_point, group, bits
cw_status qlinear_weight(KernelCall& call, const void*) {
  Tensor out, x, weight, scale, zero;
  const bool is_float8 = float8(call, 2, &weight);
  if (!call.tensor(0, &out) || !call.tensor(1, &x) || !(is_float8 || call.tensor(2, &weight)) ||
      !call.tensor(3, &scale) || !is_float(x.dtype) || x.dtype == kF64 || out.dtype != x.dtype || !out.contiguous() ||
      !x.contiguous() || !weight.contiguous() || !scale.contiguous())
    return CW_UNSUPPORTED;
  const bool zeros = call.tensor(4, &zero);
  if (zeros && !zero.contiguous()) return CW_UNSUPPORTED;
  const int64_t group = call.integer(5), bits = call.integer(6);
  const int64_t depth = x.shape[x.ndim - 1], outs = weight.shape[0];
  const int64_t rows = outs ? out.numel() / outs : 0, groups = depth / group;
  if (rows == 0 || depth == 0) return CW_UNSUPPORTED;
  const Device& device = *call.device;
  const void* wide = x.data;
  if (x.dtype != kF32) {
    void* made = nullptr;
    TRY(scratch(device, call.stream, static_cast<uint64_t>(rows * depth * 4), &made));
    Program copy(call, "packed_input");
    copy.out("to", made, kF32).in("x", x.data, x.dtype);
    TRY(copy.run(rows * depth, "to_p[u] = (f32)x(u);", 2));
    wide = made;
  }
  const auto begin = [&](Program& p, const void* from, const void* to) -> Program& {
    p.define("BITS_", bits).define("ZEROS", zeros).define("SIGNED", bits == 4 && weight.dtype == kI8);
    const bool bytes = bits == 4 || is_float8;
    p.define("FLOAT8", is_float8).define("STORE", bytes ? "u8" : "i8").before(texts::packed::packed_number);
    p.in("x", from, kF32).in("weight", weight.data, bytes ? kU8 : kI8).in("scale", scale.data, kF32);
    p.out("out", to, out.dtype);
    if (zeros) p.in("zero", zero.data, kF32);
    p.value("bytes", weight.shape[1]).value("groups", groups).value("size", group).value("depth", depth);
    return p.value("outs", outs);
  };
  if (!device.in_turn()) {
    Program p(call, "packed_elements");
    return begin(p, wide, out.data).run(rows * outs, texts::packed::packed_elements, static_cast<double>(depth) * 2);
  }
  const char* wide_vectors = vectors_of_16(device);
  const char* vectors = device.info.language == CW_CODE_OPENCL_C ? texts::packed::packed_vectors_open_cl
                                                                 : texts::packed::packed_vectors_c;
  constexpr int64_t kMany = 16, kTogether = 4;
  if (rows >= kMany) {
    void* workspace = nullptr;
    const int64_t items = int64_t{device.info.compute_units} * 4;
    TRY(scratch(device, call.stream, static_cast<uint64_t>(items * 4 * depth * 4), &workspace));
    Program p(call, "packed_tiles");
    begin(p, wide, out.data).out("workspace", workspace, kF32).value("rows", rows).before(wide_vectors).before(vectors);
    return p.run((outs + 3) / 4, texts::packed::packed_tiles, static_cast<double>(rows * depth) / 2);
  }
  for (int64_t first = 0; first < rows; first += kTogether) {
    const int64_t some = std::min(kTogether, rows - first);
    Program p(call, "packed_rows");
    begin(p, static_cast<const char*>(wide) + first * depth * 4, out.data + first * outs * size_of(out.dtype));
    const int64_t together = some == 1 ? 4 : 1;
    p.define("ROWS", some).define("OUTS", together).before(wide_vectors).before(vectors);
    TRY(p.run((outs + together - 1) / together, texts::packed::packed_rows,
              static_cast<double>(together * some * depth) / 4));
  }
  return CW_OK;
}

}  // namespace

Kernels packed_kernels() {
  constexpr uint32_t dense = CW_NEEDS_CONTIGUOUS | CW_NEEDS_ELEMENTS;
  constexpr cw_dtypes floats = kFloats & ~CW_FLOAT64;  // it sums in float32
  return {{"causeway::qlinear_weight", qlinear_weight, floats | kInts | CW_FLOAT8_E4M3FN, dense}};
}

}  // namespace causeway::portable

// Softmax and its logarithm, and their gradients, along any dimension of a dense tensor.
#include <algorithm>
#include <cstring>

#include "portable/rows.h"
#include "portable/kernels/softmax.cl.h"

namespace causeway::portable {

namespace {

struct Softmax {
  const char* name;
  bool log, backward;
};

// out, self, dim, half_to_float; or grad_input, grad_output, output, dim, input_dtype
cw_status softmax(KernelCall& call, const void* data) {
  const Softmax& op = *static_cast<const Softmax*>(data);
  Tensor out, in, grad;
  int at = 1;
  if (!call.tensor(0, &out)) return CW_UNSUPPORTED;
  if (op.backward && !call.tensor(at++, &grad)) return CW_UNSUPPORTED;
  if (!call.tensor(at++, &in) || !is_float(in.dtype) || !is_float(out.dtype)) return CW_UNSUPPORTED;
  const Dtype type = compute_of(in.dtype);
  if (type == kF64 && !(call.device->info.arithmetic & CW_FLOAT64)) return CW_UNSUPPORTED;
  int64_t dim = call.integer(at), inner = 1;
  if (dim < 0) dim += in.ndim;
  const int64_t n = in.ndim ? in.shape[dim] : 1;
  for (int d = static_cast<int>(dim) + 1; d < in.ndim; ++d) inner *= in.shape[d];
  const bool dense = inner == 1, keeps = !op.log && !op.backward && out.dtype == type;
  const auto bits = static_cast<uint64_t>(in.dtype) | static_cast<uint64_t>(out.dtype) << 8 |
                    static_cast<uint64_t>(op.backward ? grad.dtype : 0) << 16 | static_cast<uint64_t>(dense) << 24;
  const int64_t rows = in.numel() / n;
  const Teams teams = teams_of(*call.device, rows, n, !dense, dense && n <= 4096);
  // Halves are computed on in a row of float32, where one is not too long.
  constexpr int64_t kHeld = 4096;
  const bool held = in.dtype != kF32 || out.dtype != kF32;
  const bool vectors = call.device->in_turn() && dense && !op.backward && type == kF32 && (!held || n <= kHeld) &&
                       call.device->info.language != CW_CODE_CUDA_C;
  constexpr int64_t kWidth = 64, kFew = 8;  // rows side by side, and how many are worth it
  const bool columns = call.device->in_turn() && inner >= kFew;
  cw_function function = nullptr;
  TRY(call.device->function(
      {reinterpret_cast<uint64_t>(&op),
       bits | static_cast<uint64_t>(columns) << 25 | static_cast<uint64_t>(vectors) << 26, teams.bits(), 0},
      [&] {
        Source s(call.device->info);
        s.before(std::string("typedef ") + name_of(type) + " T;\n");
        if (teams)
          s.before("typedef T A;\n" + teams_text(teams, type) + fold_text("team_max", "T", "MAXIMUM(a, b)") +
                   fold_text("team_sum", "T", "a + b"));
        else
          s.define("ABREAST", 16).define("WIDTH", kWidth);
        if (vectors) s.before(texts::softmax::vectors);
        s.define("LOG", op.log).define("KEEPS", vectors && held ? !op.log : keeps);
        s.define("WIDENED", vectors && held ? kHeld : 0);
        s.define("STRIDE", dense ? "1" : "inner");
        // The gradient takes what it is given for an output, above 0 too.
        s.define("EXP(v)", type != kF32 ? "exp(v)" : op.backward ? "exp_f32(v)" : "exp_down_f32(v)");
        const auto load = [](Dtype d, const char* p) {
          return std::string("((T)LD_") + name_of(d) + "(" + p + ", i))";
        };
        s.define("IN(i)", load(in.dtype, "in"));
        s.define("OUT(i, v)", std::string("ST_") + name_of(out.dtype) + "(out, i, v)");
        s.out(storage_of(out.dtype), "out").in(storage_of(in.dtype), "in");
        if (op.backward) {
          s.define("GRAD(i)", load(grad.dtype, "grad"));
          s.in(storage_of(grad.dtype), "grad");
        }
        s.value("idx", columns ? "units" : "rows").value("idx", "n").value("idx", "inner");
        if (teams)
          return s.kernel("LOCAL T cells[2 * ITEMS];\n" +
                          each_row(op.backward ? texts::softmax::backward_teams : texts::softmax::forward_teams));
        if (columns) return s.kernel(op.backward ? texts::softmax::backward_columns : texts::softmax::forward_columns);
        return s.kernel(op.backward ? texts::softmax::backward
                        : vectors   ? texts::softmax::forward_vectors
                                    : texts::softmax::forward);
      },
      &function));
  Launch l;
  l.pointer(out.data).pointer(in.data);
  if (op.backward) l.pointer(grad.data);
  const int64_t units = columns ? rows / inner * ((inner + kWidth - 1) / kWidth) : rows;
  l.value(units).value(n).value(inner);
  if (teams) return l.run_groups(*call.device, function, teams.groups(rows), teams.items, call.stream);
  const auto abreast = static_cast<double>(columns ? std::min(inner, kWidth) : 1);
  return l.run(*call.device, function, units, static_cast<double>(n) * 30 * abreast, call.stream);
}

}  // namespace

Kernels softmax_kernels() {
  static const Softmax ops[] = {{"aten::_softmax.out", false, false},
                                {"aten::_log_softmax.out", true, false},
                                {"aten::_softmax_backward_data.out", false, true},
                                {"aten::_softmax_backward_data.grad_input", false, true},
                                {"aten::_log_softmax_backward_data.out", true, true}};
  Kernels list;
  for (const Softmax& op : ops)
    list.push_back({op.name, softmax, kFloats, CW_NEEDS_CONTIGUOUS | CW_NEEDS_ELEMENTS, &op});
  return list;
}

}  // namespace causeway::portable

#include "portable/kernels/norms.h"
#include "portable/kernels/norms.cl.h"

namespace causeway::portable {

Types types_of(const KernelCall& call, Dtype dtype) {
  const Dtype compute = compute_of(dtype);
  const bool wide = call.device->in_turn() && (call.device->info.arithmetic & CW_FLOAT64);
  return {compute, wide ? kF64 : compute};
}

void define(Source& s, const Types& types, const Teams& teams) {
  s.before(std::string("typedef ") + name_of(types.compute) + " T;\ntypedef " + name_of(types.wide) + " A;\n");
  if (teams) {
    s.before(teams_text(teams, types.wide) + fold_text("team_sum", "A", "a + b") + texts::norms::team_sums);
    return;
  }
  s.define("ABREAST", 16).define("STRETCH", 1024).before(texts::norms::sums);
}

void reads(Source& s, const char* macro, const char* name, const Tensor& t) {
  s.in(storage_of(t.dtype), name);
  s.define(std::string(macro) + "(i)", std::string("((T)LD_") + name_of(t.dtype) + "(" + name + ", i))");
}

void writes(Source& s, const char* macro, const char* name, const Tensor& t) {
  s.out(storage_of(t.dtype), name);
  s.define(std::string(macro) + "(i, v)", std::string("ST_") + name_of(t.dtype) + "(" + name + ", i, v)");
  s.define(std::string(macro) + "_IN(i)", std::string("((T)LD_") + name_of(t.dtype) + "(" + name + ", i))");
}

void add_wide(Launch& l, const Types& types, double v) {
  if (types.wide == kF64)
    l.value(v);
  else
    l.value(static_cast<float>(v));
}

std::string team_rows(const char* body, const std::string& rows) {
  return "LOCAL A cells[2 * ITEMS];\n" + each_row(body, rows);
}

bool takes(const KernelCall& call, std::initializer_list<const Tensor*> tensors) {
  for (const Tensor* t : tensors)
    if (!is_float(t->dtype) || (t->dtype == kF64 && !(call.device->info.arithmetic & CW_FLOAT64))) return false;
  return true;
}

uint64_t bits_of(std::initializer_list<const Tensor*> tensors, std::initializer_list<bool> flags) {
  uint64_t bits = 0;
  int shift = 0;
  for (const Tensor* t : tensors) bits |= static_cast<uint64_t>(t->dtype) << shift, shift += 6;
  for (bool flag : flags) bits |= static_cast<uint64_t>(flag) << shift++;
  return bits;
}

Tensor flat(const Tensor& t) {
  Tensor f = t;
  f.ndim = 1, f.shape[0] = t.numel(), f.strides[0] = 1;
  return f;
}

Kernels norm_kernels() {
  Kernels list = row_norm_kernels();
  for (const Kernel& kernel : batch_norm_kernels()) list.push_back(kernel);
  return list;
}

}  // namespace causeway::portable

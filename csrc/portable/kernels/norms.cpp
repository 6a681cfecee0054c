// What is put together here, and is in no .cl: loops around what a family has for an element.
#include "portable/kernels/norms.h"

namespace causeway::portable {

Types types_of(const KernelCall& call, Dtype dtype) {
  const Dtype compute = compute_of(dtype);
  const bool wide = call.device->in_turn() && (call.device->info.arithmetic & CW_FLOAT64);
  return {compute, wide ? kF64 : compute};
}

void define(Source& s, const Types& types, const Teams& teams) {
  s.before(std::string("typedef ") + name_of(types.compute) + " T;\ntypedef " + name_of(types.wide) + " A;\n");
  if (teams) {
    s.before(teams_text(teams, types.wide) + fold_text("team_sum", "A", "a + b"));
    return;
  }
  s.define("LANES", 16).define("STRETCH", 1024);
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

std::string summed(const std::vector<Sum>& sums, const std::string& stride) {
  std::string start, vector, rest, finish;
  for (const Sum& s : sums) {
    start += "lanes_" + s.name + "[l] = 0; ";
    vector += "lanes_" + s.name + "[l] += " + s.value + "; ";
    rest += "lanes_" + s.name + "[0] += " + s.value + "; ";
    finish += s.name + " += (A)lanes_" + s.name + "[l]; ";
  }
  std::string text =
      "for (idx j0 = 0; j0 < n; j0 += STRETCH) {\nconst idx past = n - j0 < STRETCH ? n : j0 + STRETCH;\n";
  for (const Sum& s : sums) text += "T lanes_" + s.name + "[LANES];\n";
  const std::string at = stride.empty() ? "" : " * " + stride;
  return text + "idx at = j0;\nfor (int l = 0; l < LANES; ++l) { " + start +
         "}\nfor (; at + LANES <= past; at += LANES)\nfor (int l = 0; l < LANES; ++l) { const idx j = at + l, i = base "
         "+ j" +
         at + "; (void)i; " + vector + "}\nfor (; at < past; ++at) { const idx j = at, i = base + j" + at +
         "; (void)i; " + rest + "}\nfor (int l = 0; l < LANES; ++l) { " + finish + "}\n}\n";
}

std::string summed_by_teams(const std::vector<Sum>& sums, const std::string& at, const std::string& held) {
  std::string text = "{\nA ", each, finish;
  for (const Sum& s : sums) {
    text += (&s == &sums[0] ? "low_" : ", low_") + s.name + " = 0";
    each += "ADD(" + s.name + ", low_" + s.name + ", " + s.value + ")\n";
    finish += s.name + " = team_sum(cells, LANE, TOTAL(" + s.name + ", low_" + s.name + "));\n";
  }
  if (!held.empty()) each = "HOLD(" + held + ")\n" + each;
  return text + ";\nEACH(j) {\nconst idx i = " + at + ";\n(void)i;\n" + each + "}\n" + finish + "}\n";
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

// What is put together here, and is in no .cl: what a function of each language begins with, for the parameters that it has.
#include "portable/source.h"

#include <algorithm>
#include <cstring>

#include "portable/portable.h"
#include "portable/source.cl.h"

namespace causeway::portable {

std::string prelude(const cw_code_info& info) {
  std::string text;
  switch (info.language) {
    case CW_CODE_OPENCL_C:
      text = std::string(info.flags & CW_CODE_FLUSHES ? "#define FLUSHES\n" : "") + texts::source::open_cl;
      break;
    case CW_CODE_CUDA_C:
      text = std::string(texts::source::cuda) + texts::source::cplusplus + texts::source::cplusplus_f64;
      break;
    case CW_CODE_ASCEND_SIMT:
      text = std::string(texts::source::ascend_simt) + texts::source::cplusplus;
      break;
    default:
      text = texts::source::c;
  }
  // CPUs: each item a run of neighbours, for vectors. Else neighbours to neighbouring items, for wide loads.
  if (info.flags & CW_CODE_IN_TURN)
    text +=
        "#define IN_TURN\n#define FIRST(n) ((n) * item / items)\n#define LAST(n) ((n) * (item + 1) / items)\n#define "
        "STEP 1\n";
  else
    text += "#define FIRST(n) item\n#define LAST(n) (n)\n#define STEP items\n";
  return text + texts::source::shared;
}

std::string around(const char* text, const std::string& body) {
  constexpr const char* kLine = "BODY\n";
  std::string whole = text;
  for (size_t at = 0; (at = whole.find(kLine, at)) != std::string::npos; at += body.size())
    whole.replace(at, std::strlen(kLine), body);
  return whole;
}

Source& Source::in(const std::string& type, const std::string& name) {
  parameters_.push_back({"const " + type, name, true});
  return *this;
}
Source& Source::out(const std::string& type, const std::string& name) {
  parameters_.push_back({type, name, true});
  return *this;
}
Source& Source::value(const std::string& type, const std::string& name) {
  parameters_.push_back({type, name, false});
  return *this;
}
Source& Source::define(const std::string& name, const std::string& text) {
  head_ += "#define " + name + " " + text + "\n";
  return *this;
}
Source& Source::before(const std::string& text) {
  head_ += text;
  return *this;
}

std::string Source::kernel(const std::string& body) const { return prelude(info_) + function(kFunction, body); }

std::string Source::function(const std::string& name, const std::string& body) const {
  const bool split = info_.flags & CW_CODE_SPLIT_POINTERS, single = info_.flags & CW_CODE_SINGLE_VALUES;
  std::string list, opening, values;
  int arguments = 0;
  const auto parameter = [&](const std::string& text) { list += (list.empty() ? "" : ", ") + text; };
  // In C: what the next argument is, as a `type`.
  const auto next = [&](const std::string& type) {
    return "*(const " + type + "*)args_[" + std::to_string(arguments++) + "]";
  };
  for (const Parameter& p : parameters_) {
    if (!p.pointer) continue;
    const std::string pointer = "GLOBAL " + p.type + "*";
    if (info_.language == CW_CODE_C) {
      opening +=
          "  " + p.type + "* " + p.name + " = *(" + p.type + "* const*)args_[" + std::to_string(arguments++) + "];\n";
    } else if (split) {
      parameter("GLOBAL char* " + p.name + "_base, u64 " + p.name + "_begin");
      opening += "  " + pointer + " " + p.name + " = (" + pointer + ")(" + p.name + "_base + " + p.name + "_begin);\n";
    } else {
      parameter(pointer + " " + p.name);
    }
  }
  // A Launch gives the values behind all addresses. The last one's place is a whole word by itself: Mesa's rusticl does not
  // count what pads a structure's end.
  const std::string record = name == kFunction ? "Values" : name + "_values";
  const auto last =
      std::find_if(parameters_.rbegin(), parameters_.rend(), [](const Parameter& p) { return !p.pointer; });
  for (const Parameter& p : parameters_) {
    if (p.pointer) continue;
    if (!single) {
      const bool whole = info_.language == CW_CODE_OPENCL_C && &p == &*last;
      values += "  SLOT " + (whole ? "union { " + p.type + " value; u64 word; }" : p.type) + " " + p.name + ";\n";
      opening += "  " + p.type + " " + p.name + " = values_." + p.name + (whole ? ".value" : "") + ";\n";
    } else if (info_.language == CW_CODE_C) {
      opening += "  " + p.type + " " + p.name + " = " + next(p.type) + ";\n";
    } else {
      parameter("u64 " + p.name + "_word");
      opening += "  " + p.type + " " + p.name + " = OF_WORD(" + p.type + ", " + p.name + "_word);\n";
    }
  }
  std::string text = head_;
  if (!values.empty()) {
    text += "typedef struct {\n" + values + "} " + record + ";\n";
    if (info_.language == CW_CODE_C)
      opening = "  const " + record + " values_ = " + next(record) + ";\n" + opening;
    else
      parameter("const " + record + " values_");
  }
  const std::string of_cplusplus =
      "void " + name + "(" + list +
      ") {\n  const idx item = (idx)blockIdx.x * blockDim.x + threadIdx.x, items = (idx)gridDim.x * blockDim.x;\n";
  switch (info_.language) {
    case CW_CODE_OPENCL_C:
      text += "__kernel void " + name + "(" + list +
              ") {\n  const idx item = (idx)get_global_id(0), items = (idx)get_global_size(0);\n";
      break;
    case CW_CODE_CUDA_C:
      text += "#ifdef ITEMS\nextern \"C\" __global__ ITEMS_AT_MOST(ITEMS)\n#else\nextern \"C\" __global__\n#endif\n" +
              of_cplusplus;
      break;
    case CW_CODE_ASCEND_SIMT:
      text += "extern \"C\" __global__ __launch_bounds__(" + std::to_string(info_.group_limit) + ") " + of_cplusplus;
      break;
    default:
      text += "const u32 " + name + "_arguments = " + std::to_string(arguments) + ";\nvoid " + name +
              "(void* const* args_, const u32* group_, const u32* grid_) {\n"
              "  const idx item = (idx)group_[0] * LANES + LANE, items = (idx)grid_[0] * LANES;\n";
  }
  return text + opening + body + "}\n";
}

}  // namespace causeway::portable

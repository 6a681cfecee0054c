#include "portable/compiled.h"

#include "portable/kernels/functions.h"
#include "portable/source.h"

namespace causeway::portable {

void add_parameters(Source& s, const KernelText& kernel) {
  for (const KernelText::Parameter& p : kernel.parameters) switch (p.kind) {
      case KernelText::In:
        s.in(p.type, p.name);
        break;
      case KernelText::Out:
        s.out(p.type, p.name);
        break;
      case KernelText::Value:
        s.value(p.type, p.name);
        break;
      case KernelText::Tells:
        s.tells();
        break;
    }
}

std::string functions_before(const std::string& text, const std::string& before) {
  return typed_functions_of(before + text) + before;
}

std::string compiled_source(const cw_code_info& info, const std::string& before,
                            const std::vector<KernelText>& kernels) {
  std::string bodies;
  for (const KernelText& k : kernels) bodies += k.body;
  std::string text = prelude(info) + functions_before(bodies, before);
  for (const KernelText& k : kernels) {
    Source s(info);
    add_parameters(s, k);
    text += s.function(k.name, k.body);
  }
  return text;
}

cw_status build_compiled(const Device& device, const std::string& source, const std::vector<KernelText>& kernels,
                         std::vector<cw_function>* out) {
  cw_program program = nullptr;
  if (cw_status status = device.build(source, &program)) return status;
  for (const KernelText& k : kernels) {
    cw_function function = nullptr;
    if (cw_status status = device.function_of(program, k.name.c_str(), &function)) return status;
    out->push_back(function);
  }
  return CW_OK;
}

}  // namespace causeway::portable

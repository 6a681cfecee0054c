// The rungs that the vendor serves (stub while the host rung is brought up).
#include "native.h"

namespace causeway {

NativeForms* resolve_native(Operator& op) {
  auto* forms = new NativeForms;
  op.native.store(forms);
  return forms;
}
bool call_native(Operator&, Stack&, Entry&) { return false; }
std::vector<std::pair<std::string, cw_op>> offered() { return {}; }

}  // namespace causeway

// Autocast's policies for single operators, other than torch's.
#pragma once

#include <map>
#include <string>

namespace causeway {

// Replace the policies that were set before by these: {"aten::softmax.int": "fp32"}; none is left where `policies` is
// empty. "low", "fp32" and "promote" are torch's words; "none" leaves an operator's inputs as they are. Raises, and sets
// nothing, for a name or a policy that does not exist and for an operator that writes into its arguments.
void set_autocast_policies(const std::map<std::string, std::string>& policies);

}  // namespace causeway

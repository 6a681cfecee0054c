// What the vendor offers: an operator's own form, and the one that writes into given outputs.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "ladder/call.h"
#include "ladder/routes.h"

namespace causeway {

// What the vendor offers that can serve an operator.
struct Offers {
  bool any = false;   // worth a look: a kernel, or operators that a decomposition may stand on
  cw_op own{};        // under the operator's own name
  cw_op out{};        // under the name of its out= form, for functional and in-place operators
  cw_op portable_own{}, portable_out{};  // Causeway's own kernels, where the vendor has a compiler
  std::string own_name, out_name;  // as the vendor knows them
  int left_out = -1;  // the argument that `own` does not take
  Routes routes;
  Routes routes_in_capture;  // of calls that `routes` leave to the host
  // Of a vendor that answers by device: each device's, in place of this. Then `any` says it of all.
  std::vector<std::unique_ptr<Offers>> by_device;

  Offers& of(int device) {
    return C10_LIKELY(by_device.empty()) || static_cast<size_t>(device) >= by_device.size() ? *this
                                                                                            : *by_device[device];
  }
};

// Those for the device of this call; they are resolved.
inline Offers& offers_of_call(Operator& op, const Stack& stack) {
  Offers& offers = *op.resolved.load(std::memory_order_acquire);
  return C10_LIKELY(offers.by_device.empty()) ? offers : offers.of(device_of_call(op, stack));
}

// Whether there is such a kernel, and it takes tensors of `dtype`.
inline bool takes(const cw_op& form, c10::ScalarType dtype) {
  const int bit = bit_of_dtype(dtype);
  return form.kernel && bit >= 0 && ((form.dtypes >> bit) & 1);
}

// Ask the vendor once. Never returns NULL.
Offers* resolve_offers(Operator& op);

// Every operator that the vendor's op_find answers for; where it answers by device, for any of them.
std::vector<std::pair<std::string, cw_op>> offered();

// Opens the vendor's compiler, where there is one, and no device. More than once is as good as once.
void find_portable_kernels();

// Every operator that has a portable kernel; none where the vendor has no compiler, or the rung is switched off.
std::vector<std::pair<std::string, cw_op>> portable_offered();

// The portable rung: on unless the settings say otherwise, of all operators or of those of `except`. Routes are to be
// forgotten after a change.
void set_portable(bool on, std::vector<std::string> except);
bool portable_serves(const Operator& op);

// The name of the form that takes the same arguments and writes into given outputs, "aten::add.out", or "".
std::string out_form(const c10::FunctionSchema& schema);

// The form of an in-place operator, or of one with out=, that allocates its result; nothing where there is none.
std::optional<c10::OperatorHandle> functional_form(const c10::FunctionSchema& schema);

}  // namespace causeway

// A call of an operator on its way to a kernel of the vendor's or of the portable rung.
#pragma once

#include "ladder/forms.h"

namespace causeway {

class ServedCall {
 protected:
  ServedCall(Operator& op, Offers& offers, Stack& stack)
      : op_(op),
        offers_(offers),
        stack_(stack),
        base_(stack.size() - op.args.size()),
        device_(device(device_of_call(op, stack))),
        stream_(current_stream(device_.index)) {}

  const c10::IValue& arg(size_t i) const { return stack_[base_ + i]; }
  const cw_op& form_of(Serve serve) const {
    return serve == Serve::Own           ? offers_.own
           : serve == Serve::Out         ? offers_.out
           : serve == Serve::PortableOwn ? offers_.portable_own
                                         : offers_.portable_out;
  }

  // Calls f(tensor, argument info, place in its list or -1) for every defined tensor; stops when it says false.
  template <class F>
  bool each_tensor(F f) const {
    for (size_t i = 0; i < op_.args.size(); ++i) {
      const c10::IValue& v = arg(i);
      const ArgInfo& info = op_.args[i];
      if (info.kind == ArgKind::Tensor) {
        if (v.isTensor() && v.toTensor().defined() && !f(v.toTensor(), info, int64_t{-1})) return false;
      } else if (info.kind == ArgKind::TensorList || info.kind == ArgKind::OptionalTensorList) {
        if (!v.isList()) continue;
        int64_t place = -1;
        for (const auto& e : v.toListRef())
          if (++place; e.isTensor() && e.toTensor().defined() && !f(e.toTensor(), info, place)) return false;
      }
    }
    return true;
  }

  Operator& op_;
  Offers& offers_;
  Stack& stack_;
  const size_t base_;
  DeviceState& device_;
  StreamState& stream_;
};

}  // namespace causeway

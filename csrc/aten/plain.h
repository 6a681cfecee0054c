// What kernels that stand in for a composite of torch's ask before they do.
#pragma once

#include <ATen/ATen.h>

#include "ladder/forms.h"

namespace causeway {

inline c10::OperatorHandle named(const char* name, const char* overload = "") {
  return c10::Dispatcher::singleton().findSchemaOrThrow(name, overload);
}

// Whether the vendor, or the portable rung, has a kernel for the operator's own form or that with out=.
inline bool has_kernel(Operator& op, c10::ScalarType dtype, int device) {
  const Offers& offers = op.offers().of(device);
  return takes(offers.own, dtype) || takes(offers.out, dtype) ||
         (portable_serves(op) && (takes(offers.portable_own, dtype) || takes(offers.portable_out, dtype)));
}

// No subclass, tracer or dual number.
inline bool is_plain(const at::Tensor& t) {
  return !t.key_set().has_any(c10::DispatchKeySet({c10::DispatchKey::Python, c10::DispatchKey::Functionalize})) &&
         !t._fw_grad(/*level=*/0).defined();
}

inline bool in_functorch() {
  return c10::impl::tls_is_dispatch_key_included(c10::DispatchKey::FuncTorchDynamicLayerFrontMode) ||
         c10::impl::tls_is_dispatch_key_included(c10::DispatchKey::FuncTorchDynamicLayerBackMode);
}

}  // namespace causeway

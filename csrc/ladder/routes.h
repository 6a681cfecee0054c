// How a call is served, found once per signature and remembered.
//
// A signature: dtypes, sizes, strides and devices of tensors, and the values of all arguments but floating-point
// numbers, which shapes depend on only where no tensor is read.
#pragma once

#include <atomic>
#include <memory>
#include <shared_mutex>
#include <unordered_map>
#include <vector>

#include <c10/util/DimVector.h>
#include <c10/util/SmallVector.h>

#include "ladder/call.h"

namespace causeway {

using Key = c10::SmallVector<int64_t, 48>;

struct HashKey {
  size_t operator()(const Key& key) const {
    uint64_t h = 0x9E3779B97F4A7C15ull;
    for (int64_t v : key) h = (h ^ static_cast<uint64_t>(v)) * 0xff51afd7ed558ccdull, h ^= h >> 32;
    return h;
  }
};

struct OutMeta {
  c10::DimVector sizes, strides;
  c10::ScalarType dtype;               // Undefined: no tensor
  std::optional<int64_t> number = {};  // a result that is none, and follows from the arguments
  bool found = false;                  // a size, 0 for now, depends on the data: the kernel says it
};

// From the highest rung down: what is declined goes on to a later one.
enum class Serve : uint8_t { Nobody, Own, Out, PortableOwn, PortableOut, Decomposed };

struct Route {
  Serve serve = Serve::Nobody;
  bool prepare = false;  // inputs or outputs must be made fit; then the rung is derived
  std::vector<OutMeta> outs;  // of outputs that are not arguments, or sizes that out= arguments must get
  std::shared_ptr<PyObject> program;
  mutable std::atomic<bool> took{false};  // a kernel took a call of this signature: it takes the next one too

  bool has_taken() const { return took.load(std::memory_order_relaxed); }
  void took_call() const {
    if (C10_UNLIKELY(!has_taken())) took.store(true, std::memory_order_relaxed);
  }
};

// Of one operator.
class Routes {
 public:
  std::shared_ptr<Route> find(const Key& key);
  void remember(const Key& key, std::shared_ptr<Route> route);
  void forget();

 private:
  std::shared_mutex mutex_;
  std::unordered_map<Key, std::shared_ptr<Route>, HashKey> map_;
};

// The signature of a call with these arguments, the last on the stack.
Key signature(const Operator& op, const Stack& stack);

}  // namespace causeway

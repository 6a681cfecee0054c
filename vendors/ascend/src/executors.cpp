#include "executors.hpp"

#include <cstdlib>
#include <functional>
#include <mutex>
#include <string_view>
#include <unordered_map>

#include "device.hpp"

namespace ascend {

void destroy(const Handles& handles) {
  for (auto made = handles.rbegin(); made != handles.rend(); ++made) {
    switch (made->first) {
      case Kind::tensor:
        aclnn.destroy_tensor(static_cast<const AclTensor*>(made->second));
        break;
      case Kind::scalar:
        aclnn.destroy_scalar(static_cast<const AclScalar*>(made->second));
        break;
      case Kind::int_array:
        aclnn.destroy_int_array(static_cast<const AclIntArray*>(made->second));
        break;
      case Kind::bool_array:
        aclnn.destroy_bool_array(static_cast<const AclBoolArray*>(made->second));
        break;
      case Kind::float_array:
        aclnn.destroy_float_array(static_cast<const AclFloatArray*>(made->second));
        break;
      case Kind::tensor_list:
        aclnn.destroy_tensor_list(static_cast<const AclTensorList*>(made->second));
        break;
      case Kind::scalar_list:
        aclnn.destroy_scalar_list(static_cast<const AclScalarList*>(made->second));
        break;
    }
  }
}

namespace {

constexpr size_t kMost = 4096;  // calls; some kilobytes of host memory for each executor
constexpr size_t kRemembered = 1 << 14;  // keys that came once, by their hash

size_t most() {
  static const size_t asked = [] {
    const std::string text = setting("executors");
    return text.empty() ? kMost : static_cast<size_t>(strtoull(text.c_str(), nullptr, 10));
  }();
  return asked;
}

// By key, and in a ring in the order of use: the one that was not used for longest goes first.
struct Cache {
  std::mutex mutex;
  std::unordered_map<std::string_view, Kept*> found;
  Kept ring;  // its `after` is the latest
  uint64_t once[kRemembered] = {};

  Cache() { ring.before = ring.after = &ring; }
  void unlink(Kept* kept) { kept->before->after = kept->after, kept->after->before = kept->before; }
  void link(Kept* kept) {
    kept->before = &ring, kept->after = ring.after;
    ring.after->before = kept, ring.after = kept;
  }
  void erase(Kept* kept) { unlink(kept), found.erase(kept->key); }
};
Cache& cache() {
  static auto* all = new Cache;  // as long as the process
  return *all;
}

}  // namespace

void end_executor(Kept* made) {
  if (!made) return;
  for (const Kept::Step& step : made->steps) aclnn.destroy_executor(step.executor);
  destroy(made->handles);
  delete made;
}

bool keeps_executors() {
  static const bool keeps = most() && aclnn.set_repeatable && aclnn.set_tensor_address && aclnn.destroy_executor;
  return keeps;
}

Kept* take_executor(const std::string& key) {
  Cache& all = cache();
  std::lock_guard<std::mutex> lock(all.mutex);
  const auto found = all.found.find(key);
  if (found == all.found.end() || found->second->busy) return nullptr;
  Kept* kept = found->second;
  kept->busy = true;
  all.unlink(kept), all.link(kept);
  return kept;
}

void release_executor(Kept* kept) {
  std::lock_guard<std::mutex> lock(cache().mutex);
  kept->busy = false;
}

void drop_executor(Kept* kept) {
  {
    std::lock_guard<std::mutex> lock(cache().mutex);
    cache().erase(kept);
  }
  end_executor(kept);
}

bool seen_before(const std::string& key) {
  const uint64_t hash = std::hash<std::string>()(key) | 1;
  Cache& all = cache();
  std::lock_guard<std::mutex> lock(all.mutex);
  uint64_t& place = all.once[(hash >> 1) % kRemembered];
  return std::exchange(place, hash) == hash;
}

void keep_executor(Kept* made) {
  Cache& all = cache();
  Kept *other = nullptr, *oldest = nullptr;
  {
    std::lock_guard<std::mutex> lock(all.mutex);
    if (const auto found = all.found.find(made->key); found != all.found.end()) {
      other = made;  // another thread has made one too
    } else {
      all.link(made);
      all.found.emplace(made->key, made);
      if (all.found.size() > most() && !all.ring.before->busy) all.erase(oldest = all.ring.before);
    }
  }
  end_executor(other), end_executor(oldest);
}

}  // namespace ascend

#include "ladder/routes.h"

#include <cstring>
#include <mutex>

namespace causeway {

namespace {

constexpr size_t kMaxRoutes = 1024;  // per operator; a number that changes at each call must not fill memory

void add_tensor(Key& key, const at::Tensor& t) {
  if (!t.defined()) return key.push_back(-2);
  const auto* impl = t.unsafeGetTensorImpl();
  key.push_back(static_cast<int64_t>(t.scalar_type()) | (t.is_conj() << 8) | (t.is_neg() << 9) |
                (impl->is_wrapped_number() << 10) | (static_cast<int64_t>(t.device().type()) << 16) |
                (int64_t{t.device().index()} << 24) | (impl->dim() << 40));
  for (int64_t s : impl->sizes()) key.push_back(s);
  for (int64_t s : impl->strides()) key.push_back(s);
}

void add_value(Key& key, const c10::IValue& v, bool floats) {
  if (v.isTensor()) return add_tensor(key, v.toTensor());
  if (v.isInt()) return key.push_back(v.toInt() * 8 + 1);
  if (v.isBool()) return key.push_back(v.toBool() * 8 + 2);
  if (v.isDouble()) {
    key.push_back(3);
    if (floats) {
      int64_t bits;
      const double d = v.toDouble();
      std::memcpy(&bits, &d, sizeof bits);
      key.push_back(bits);
    }
    return;
  }
  if (v.isNone()) return key.push_back(4);
  if (v.isIntList() || v.isTensorList() || v.isList()) {
    const auto list = v.toListRef();
    key.push_back(static_cast<int64_t>(list.size()) * 8 + 5);
    for (const auto& e : list) add_value(key, e, floats);
    return;
  }
  if (v.isDevice()) return key.push_back((int64_t{v.toDevice().index()} << 8 | int64_t(v.toDevice().type())) * 8 + 6);
  if (v.isString()) return key.push_back(static_cast<int64_t>(std::hash<std::string>()(v.toStringRef())));
  key.push_back(7);  // a generator, a complex number
}

// Given outputs do not count: arange.start_out has one, and its shape still depends on floating-point numbers.
bool has_input(const Operator& op) {
  const auto& schema = op.handle.schema().arguments();
  for (size_t i = 0; i < op.args.size(); ++i)
    if (const ArgInfo& a = op.args[i];
        !schema[i].is_out() &&
        (a.kind == ArgKind::Tensor || a.kind == ArgKind::TensorList || a.kind == ArgKind::OptionalTensorList))
      return true;
  return false;
}

}  // namespace

std::shared_ptr<Route> Routes::find(const Key& key) {
  std::shared_lock lock(mutex_);
  const auto it = map_.find(key);
  return it == map_.end() ? nullptr : it->second;
}

void Routes::remember(const Key& key, std::shared_ptr<Route> route) {
  std::unique_lock lock(mutex_);
  if (map_.size() >= kMaxRoutes) map_.clear();
  map_[key] = std::move(route);
}

void Routes::forget() {
  std::unique_lock lock(mutex_);
  map_.clear();
}

Key signature(const Operator& op, const Stack& stack) {
  Key key;
  const bool floats = !has_input(op);
  const size_t base = stack.size() - op.args.size();
  for (size_t i = 0; i < op.args.size(); ++i) add_value(key, stack[base + i], floats);
  return key;
}

}  // namespace causeway

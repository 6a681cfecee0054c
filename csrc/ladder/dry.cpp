#include "ladder/dry.h"

#include <map>
#include <mutex>

#include <ATen/core/LegacyTypeDispatch.h>
#include <ATen/ops/empty_strided.h>

#include "runtime/check.h"
#include "ladder/host.h"
#include "ladder/outputs.h"

namespace causeway {

std::atomic<bool> g_dry{false};
std::atomic<int64_t> g_small{0};

namespace {

using Address = uintptr_t;

// Disjoint ranges of unknown bytes, begin -> end.
std::mutex g_mutex;
std::map<Address, Address>& unknown_ranges() {
  static auto& ranges = *new std::map<Address, Address>;
  return ranges;
}
std::string g_needed;

Address address(const void* p) { return reinterpret_cast<Address>(p); }

void erase(Address begin, Address end) {
  auto& ranges = unknown_ranges();
  auto it = ranges.upper_bound(begin);
  if (it != ranges.begin()) --it;
  while (it != ranges.end() && it->first < end) {
    const auto [b, e] = *it;
    if (e <= begin) {
      ++it;
      continue;
    }
    it = ranges.erase(it);
    if (b < begin) ranges[b] = begin;
    if (e > end) ranges[end] = e;
    it = ranges.lower_bound(end);
  }
}

std::pair<const char*, const char*> bytes_of(const at::Tensor& t) {
  if (!t.defined() || !t.has_storage() || t.numel() == 0) return {nullptr, nullptr};
  const auto* begin = static_cast<const char*>(t.const_data_ptr());
  int64_t reach = 0;
  for (int64_t d = 0; d < t.dim(); ++d) reach += (t.size(d) - 1) * t.stride(d);
  return {begin, begin + (reach + 1) * static_cast<int64_t>(t.element_size())};
}

}  // namespace

bool any_unknown(const void* begin, const void* end) {
  if (begin == end) return false;
  std::lock_guard lock(g_mutex);
  const auto& ranges = unknown_ranges();
  auto it = ranges.lower_bound(address(end));
  return it != ranges.begin() && (--it)->second > address(begin);
}

void set_unknown(const void* begin, const void* end, bool unknown) {
  if (begin == end) return;
  std::lock_guard lock(g_mutex);
  erase(address(begin), address(end));
  if (!unknown) return;
  auto& ranges = unknown_ranges();
  // Joined with its neighbours, so that a whole model is a few ranges.
  Address b = address(begin), e = address(end);
  auto it = ranges.lower_bound(b);
  if (it != ranges.begin())
    if (auto before = std::prev(it); before->second == b) {
      b = before->first;
      ranges.erase(before);
    }
  if (auto next = ranges.find(e); next != ranges.end()) {
    e = next->second;
    ranges.erase(next);
  }
  ranges[b] = e;
}

bool is_unknown(const at::Tensor& t) {
  const auto [begin, end] = bytes_of(t);
  return any_unknown(begin, end);
}

void set_unknown(const at::Tensor& t, bool unknown) {
  const auto [begin, end] = bytes_of(t);
  set_unknown(begin, end, unknown);
}

void refuse_dry(const std::string& what) {
  {
    std::lock_guard lock(g_mutex);
    if (g_needed.empty()) g_needed = what;
  }
  fail(Kind::Causeway, "nothing is computed in a dry run, and the program asks for ", what,
       " that depends on what would be computed. Run it with its numbers: `causeway coverage --run`");
}

void need_contents(const at::Tensor& t, const char* what) {
  if (t.is_sparse() || t.is_sparse_csr() || is_unknown(t)) refuse_dry(what);
}

std::string needed_contents() {
  std::lock_guard lock(g_mutex);
  return g_needed;
}

// ---- an operator on the host rung ---------------------------------------------------------------------------------

namespace {

constexpr int64_t kLargeCopy = 1 << 20;  // bytes of floating-point numbers: weights, whose values decide nothing

bool has_tag(const Operator& op, at::Tag tag) {
  const auto tags = op.handle.getTags();
  return std::find(tags.begin(), tags.end(), tag) != tags.end();
}

int64_t elements(const c10::IValue& v) {
  if (v.isTensor()) return v.toTensor().defined() ? v.toTensor().numel() : 0;
  int64_t sum = 0;
  if (v.isTensorList())
    for (const at::Tensor& t : v.toTensorVector()) sum += t.numel();
  return sum;
}

}  // namespace

// False where the operator is to be computed: it is small and its inputs are known, it has no meta kernel, it makes a
// view, or what it is about is no dense tensor.
bool HostCall::run_dry(Stack& stack) {
  const auto& schema = op_.handle.schema();
  const bool blind = op_.facts.only_writes;
  bool dense = kinds_.empty();
  int64_t count = 0;
  for (const Stand& s : stands_) {
    dense &= !s.parts && s.arg != kPart && kind_of(*s.original.unsafeGetTensorImpl()).empty();
    if (s.parts) continue;
    count += s.original.numel();
    const bool out = s.arg != kPart && schema.arguments()[s.arg].is_out();
    if (!(s.write && (out || blind)) && is_unknown(s.original)) unknown_ = true;
  }
  bool view = false, tensors = true;
  for (const auto& r : schema.returns()) {
    view |= r.alias_info() && !r.alias_info()->isWrite();
    const auto kind = r.type()->kind();
    tensors &= kind == c10::TypeKind::TensorType || kind == c10::TypeKind::ListType;
  }
  if (view) return false;
  const bool found = has_tag(op_, at::Tag::dynamic_output_shape) || has_tag(op_, at::Tag::data_dependent_output);
  if (unknown_ && (writes_host_ || to_host_)) refuse_dry("a copy to the host");
  if (unknown_ && (found || !tensors)) refuse_dry(op_.name);
  if (!dense || found || !tensors || writes_host_ || to_host_) return false;

  if (blind && op_.facts.copies && stands_.size() == 1) {  // from the host
    const at::Tensor& to = stands_[0].original;
    unknown_ = at::isFloatingType(to.scalar_type()) && static_cast<int64_t>(to.nbytes()) > kLargeCopy;
    if (unknown_) set_unknown(to, true);
    return unknown_ ? (stack.resize(stack.size() - op_.args.size()), stack.emplace_back(to), true) : false;
  }

  at::AutoDispatchBelowADInplaceOrView below;
  const size_t n = op_.args.size();
  bool same_shapes = true;  // nothing new, nothing resized: no need to ask
  for (size_t r = 0; r < op_.return_of.size(); ++r)
    same_shapes &= op_.return_of[r] >= 0 && !schema.arguments()[op_.return_of[r]].is_out();
  Stack arguments, results;
  if (!same_shapes) {
    arguments = meta_arguments(op_, stack);
    results = arguments;
    try {
      op_.handle.redispatchBoxed(c10::DispatchKeySet(c10::DispatchKey::Meta), &results);
    } catch (const std::exception&) {
      return false;  // no meta kernel, or arguments that torch refuses: the CPU kernel has the words
    }
    for (const auto& r : results) count += elements(r);
  }
  if (!unknown_ && count <= g_small) return false;

  const size_t base = stack.size() - n;
  for (Stand& s : stands_) {
    if (!s.write) continue;
    if (!same_shapes && s.arg < n && arguments[s.arg].isTensor()) {
      const at::Tensor& m = arguments[s.arg].toTensor();
      if (m.sizes() != s.original.sizes()) s.original.resize_(m.sizes());
    }
    set_unknown(s.original, true);
  }
  const auto make = [&](const at::Tensor& m) {
    if (!m.defined()) return m;
    at::Tensor t =
        at::empty_strided(m.sizes(), m.strides(),
                          at::TensorOptions()
                              .dtype(stored_dtype(device_, m.scalar_type(), op_.name.c_str()))
                              .device(c10::Device(kDeviceType, static_cast<c10::DeviceIndex>(device_.index))));
    set_unknown(t, true);
    if (!device_.host_addressable) Entry::add_bytes(t.nbytes());
    return t;
  };
  Stack out;
  for (size_t r = 0; r < op_.return_of.size(); ++r) {
    if (const int of = op_.return_of[r]; of >= 0) {
      out.push_back(stack[base + of]);
    } else if (results[r].isTensor()) {
      out.emplace_back(make(results[r].toTensor()));
    } else if (results[r].isTensorList()) {
      c10::List<at::Tensor> list;
      for (const at::Tensor& m : results[r].toTensorVector()) list.push_back(make(m));
      out.emplace_back(std::move(list));
    } else {
      out.push_back(results[r]);
    }
  }
  if (!device_.host_addressable)
    for (const Stand& s : stands_)
      if (!s.same) Entry::add_bytes(s.original.nbytes() * (s.write ? 2 : 1));
  stack.resize(base);
  for (auto& v : out) stack.push_back(std::move(v));
  return true;
}

// After an operator that was computed in a dry run.
void HostCall::note_contents(const Stack& stack) {
  const auto& schema = op_.handle.schema();
  for (const Stand& s : stands_)
    if (s.write && !s.parts) set_unknown(s.original, unknown_);
  const size_t first = stack.size() - op_.return_of.size();
  for (size_t r = 0; r < op_.return_of.size(); ++r) {
    const auto& info = schema.returns()[r].alias_info();
    if (op_.return_of[r] >= 0 || (info && !info->isWrite())) continue;  // marked above; a view is what its base is
    const auto mark = [&](const at::Tensor& t) {
      if (t.defined() && t.device().type() == kDeviceType && t.layout() == at::kStrided && t.has_storage())
        set_unknown(t, unknown_);
    };
    const c10::IValue& v = stack[first + r];
    if (v.isTensor()) mark(v.toTensor());
    if (v.isTensorList())
      for (const at::Tensor& t : v.toTensorVector()) mark(t);
  }
}

}  // namespace causeway

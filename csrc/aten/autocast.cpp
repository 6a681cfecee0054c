// Autocast: torch's own lists of operators for CUDA, with its weight cache, registered for the device; and the policies
// that a vendor or a user puts in their place.
#include "aten/autocast.h"

#include <ATen/autocast_mode.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <c10/util/Exception.h>
#include <torch/library.h>

#include <list>
#include <mutex>

namespace at::autocast {

namespace {

Tensor refuse_binary_cross_entropy(const Tensor&, const Tensor&, const std::optional<Tensor>&, int64_t) {
  TORCH_CHECK(false,
              "torch.nn.functional.binary_cross_entropy and torch.nn.BCELoss are unsafe to autocast.\nMany models use "
              "a sigmoid layer "
              "right before the binary cross entropy layer.\nIn this case, combine the two layers using "
              "torch.nn.functional.binary_cross_entropy_with_logits\nor torch.nn.BCEWithLogitsLoss.  "
              "binary_cross_entropy_with_logits "
              "and BCEWithLogits are\nsafe to autocast.");
}

TORCH_LIBRARY_IMPL(_, AutocastPrivateUse1, m) { m.fallback(torch::CppFunction::makeFallthrough()); }

TORCH_LIBRARY_IMPL(aten, AutocastPrivateUse1, m) {
#define CW_LOWER(...) KERNEL_PRIVATEUSEONE(__VA_ARGS__, lower_precision_fp)
  AT_FORALL_LOWER_PRECISION_FP(CW_LOWER)
#undef CW_LOWER
#define CW_FP32(...) KERNEL_PRIVATEUSEONE(__VA_ARGS__, fp32)
  AT_FORALL_FP32(CW_FP32)
#undef CW_FP32
#define CW_FP32_SET(...) KERNEL_PRIVATEUSEONE(__VA_ARGS__, fp32_set_opt_dtype)
  AT_FORALL_FP32_SET_OPT_DTYPE(CW_FP32_SET)
#undef CW_FP32_SET
  AT_FORALL_DIFFERENT_REDISPATCH_SIGNATURE(KERNEL_DIFFERENT_REDISPATCH_SIGNATURE_PRIVATEUSEONE)
#define CW_PROMOTE(...) KERNEL_PRIVATEUSEONE(__VA_ARGS__, promote)
  AT_FORALL_PROMOTE(CW_PROMOTE)
#undef CW_PROMOTE
  m.impl(TORCH_SELECTIVE_NAME("aten::binary_cross_entropy"), TORCH_FN((&refuse_binary_cross_entropy)));
}

}  // namespace

}  // namespace at::autocast

namespace causeway {

namespace {

constexpr c10::DispatchKey kAutocast = c10::DispatchKey::AutocastPrivateUse1;
constexpr c10::DeviceType kDevice = c10::DeviceType::PrivateUse1;

enum class CastPolicy { kLow, kFp32, kPromote, kNone };

CastPolicy policy_of(const std::string& operator_name, const std::string& word) {
  static const std::map<std::string, CastPolicy> words = {{"low", CastPolicy::kLow},
                                                          {"fp32", CastPolicy::kFp32},
                                                          {"promote", CastPolicy::kPromote},
                                                          {"none", CastPolicy::kNone}};
  const auto found = words.find(word);
  TORCH_CHECK_VALUE(found != words.end(), "autocast policy of ", operator_name, " is \"", word,
                    "\": expected low, fp32, promote or none");
  return found->second;
}

// What torch's templates do for one signature, for any: cast the tensors among the arguments, and call on below.
struct Cast : c10::OperatorKernel {
  explicit Cast(CastPolicy policy) : policy(policy) {}

  void operator()(const c10::OperatorHandle& op, c10::DispatchKeySet, torch::jit::Stack* stack) {
    const c10::impl::ExcludeDispatchKeyGuard no_autocast(kAutocast);
    const size_t n = op.schema().arguments().size(), first = stack->size() - n;
    at::ScalarType to = at::kFloat;
    if (policy == CastPolicy::kLow || policy == CastPolicy::kPromote)
      to = at::autocast::get_lower_precision_fp_from_device_type(kDevice);
    if (policy == CastPolicy::kPromote)
      for (size_t i = first; i < first + n; ++i)
        each(stack->at(i), [&](const at::Tensor& t) {
          // torch's own raises where a tensor is of the half type that the region is not in.
          if (at::autocast::is_eligible(t, kDevice)) to = c10::promoteTypes(to, t.scalar_type());
          return t;
        });
    for (size_t i = first; i < first + n; ++i)
      stack->at(i) = each(stack->at(i), [&](const at::Tensor& t) { return at::autocast::cached_cast(to, t, kDevice); });
    op.callBoxed(*stack);
  }

  template <class F>
  static c10::IValue each(const c10::IValue& value, F&& f) {
    if (value.isTensor()) return value.toTensor().defined() ? c10::IValue(f(value.toTensor())) : value;
    if (value.isTensorList()) {
      c10::List<at::Tensor> out;
      for (const at::Tensor& t : value.toTensorVector()) out.push_back(f(t));
      return out;
    }
    if (value.isOptionalTensorList()) {
      c10::List<std::optional<at::Tensor>> out;
      for (const std::optional<at::Tensor>& t : value.toOptionalTensorVector())
        out.push_back(t && t->defined() ? std::optional<at::Tensor>(f(*t)) : t);
      return out;
    }
    return value;
  }

  CastPolicy policy;
};

std::mutex g_mutex;
std::list<torch::Library>* g_libraries;  // never freed: the dispatcher may be gone first

}  // namespace

void set_autocast_policies(const std::map<std::string, std::string>& policies) {
  struct Chosen {
    c10::OperatorName name;
    CastPolicy policy;
  };
  std::vector<Chosen> chosen;
  for (const auto& [full, word] : policies) {
    const auto dot = full.find('.', full.find("::") == std::string::npos ? 0 : full.find("::"));
    const c10::OperatorName name(full.substr(0, dot), dot == std::string::npos ? "" : full.substr(dot + 1));
    const auto handle = c10::Dispatcher::singleton().findSchema(name);
    TORCH_CHECK_VALUE(handle.has_value(), "autocast policy of ", full, ": there is no such operator");
    const CastPolicy policy = policy_of(full, word);
    TORCH_CHECK_VALUE(policy == CastPolicy::kNone || !handle->schema().is_mutable(), "autocast policy of ", full,
                      ": it writes into its arguments, which keep their dtype; only \"none\" can be said of it");
    chosen.push_back({name, policy});
  }

  // torch warns of a kernel that replaces another: here it is what was asked for.
  struct Silent : c10::WarningHandler {
    void process(const c10::Warning&) override {}
  } silent;
  const c10::WarningUtils::WarningHandlerGuard guard(&silent);
  const std::lock_guard lock(g_mutex);
  delete g_libraries;  // what torch has comes back
  g_libraries = new std::list<torch::Library>;
  std::map<std::string, torch::Library*> by_namespace;
  for (const Chosen& c : chosen) {
    const std::string space = c.name.name.substr(0, c.name.name.find("::"));
    torch::Library*& library = by_namespace[space];
    if (library == nullptr)
      library = &g_libraries->emplace_back(torch::Library::IMPL, space, kAutocast, __FILE__, __LINE__);
    const std::string bare = c10::toString(c.name).substr(space.size() + 2);
    if (c.policy == CastPolicy::kNone)
      library->impl(bare.c_str(), torch::CppFunction::makeFallthrough());
    else
      library->impl(bare.c_str(), torch::CppFunction::makeFromBoxedFunctor(std::make_unique<Cast>(c.policy)));
  }
}

}  // namespace causeway

#include "ladder/forms.h"

#include <algorithm>
#include <atomic>
#include <mutex>
#include <set>
#include <unordered_map>

#include "runtime/check.h"
#include "runtime/graph.h"
#include "runtime/device.h"
#include "ladder/fill.h"
#include "ladder/foreach.h"
#include "runtime/kernel_error.h"
#include "ladder/python.h"
#include "ladder/paper.h"
#include "portable/portable.h"
#include "runtime/vendor.h"

namespace causeway {

namespace {

std::string schema_text(const std::string& name) {
  const auto dot = name.find('.');
  const auto handle = c10::Dispatcher::singleton().findSchema(
      {name.substr(0, dot), dot == std::string::npos ? "" : name.substr(dot + 1)});
  return handle ? c10::str(handle->schema()) : "";
}

cw_op find(const std::string& name, int device = 0) {
  cw_op op{};
  op.struct_size = sizeof op;
  cw_status status = CW_UNSUPPORTED;
  // With no device to name, what the library answers for all of them.
  const bool by_device = api().op_find_for && (!api().op_find || device < device_count_or_zero());
  if (by_device)
    status = api().op_find_for(name.c_str(), schema_text(name).c_str(), vendor_index(device), &op);
  else if (api().op_find)
    status = api().op_find(name.c_str(), &op);
  if (status == CW_UNSUPPORTED) return {};
  check(status, by_device ? "op_find_for" : "op_find", -1);
  if (!op.dtypes) op.dtypes = CW_ALL_DTYPES;
  return op;
}

std::atomic<bool> g_portable{true};
// Operators that the rung leaves out. A change is a new set, which is never freed: changes are few.
std::atomic<const std::set<std::string>*> g_left_out{nullptr};

bool is_left_out(const std::string& name) {
  const auto* names = g_left_out.load(std::memory_order_acquire);
  return names && names->count(name);
}

}  // namespace

void find_portable_kernels() {
  static std::once_flag once;
  std::call_once(once, [] {
    const auto* table = static_cast<const cw_code_v1*>(vendor_extension("code.v1"));
    if (table && table->info && table->build && table->function && table->launch)
      portable::open(
          table, {[](int32_t device, cw_stream stream, uint64_t bytes, void** out) {
                    return host_services().scratch(device, stream, bytes, out);
                  },
                  [](const DLTensor* tensor, int32_t ndim, const int64_t* shape) {
                    return host_services().resize(tensor, ndim, shape);
                  },
                  [](int32_t device, cw_stream stream, const void* from, uint64_t bytes, void* to) {
                    if (Graph* graph = Recording::graph())
                      graph->refuse("an operator whose result's size depends on data",
                                    "Call it outside of the capture, or compute with masks of a fixed size");
                    if (cw_status status = api().mem_copy(to, CW_HOST, from, device, bytes, stream)) return status;
                    return api().stream_sync ? api().stream_sync(device, stream) : api().sync(device);
                  },
                  [](const char* name, void** words, int64_t* teller) {
                    return kernel_tells(current_device(), name, words, teller);
                  },
                  []() -> const cw_backend& { return api(); },
                  [](int32_t device) {
                    cw_device_info info{};
                    info.struct_size = sizeof(info);
                    const bool known = api().device_info(device, &info) == CW_OK;
                    info.name[sizeof info.name - 1] = 0;
                    return vendor_name() + " " + vendor_version() + "\n" + (known ? valid_utf8(info.name) : "");
                  },
                  [](const char* warning) { TORCH_WARN(warning); }, []() { return Recording::graph() != nullptr; }});
  });
}

namespace {

// The portable kernel of this name.
cw_op find_portable(const std::string& name) {
  if (paper_has_compiler()) return paper_kernel(name, portable::listed(name.c_str()));
  find_portable_kernels();
  return portable::find(name.c_str());
}

bool same_argument(const c10::Argument& a, const c10::Argument& b) {
  return a.name() == b.name() && *a.real_type() == *b.real_type();
}

using Names = std::vector<c10::OperatorName>;

std::unordered_map<std::string, Names> names_now() {
  std::unordered_map<std::string, Names> map;
  for (const auto& n : c10::Dispatcher::singleton().getAllOpNames()) map[n.name].push_back(n);
  return map;
}

// All overloads of an operator's base name, "aten::add". Other libraries than torch may add to theirs at any time.
Names names_of(const std::string& base) {
  static const auto& of_torch = *new auto(names_now());
  const bool changes = base.compare(0, 6, "aten::") != 0;
  const auto fresh = changes ? names_now() : std::unordered_map<std::string, Names>();
  const auto& all = changes ? fresh : of_torch;
  const auto it = all.find(base);
  return it == all.end() ? Names() : it->second;
}

// Hardly a decomposition gets by without these, so a vendor that lacks them is spared the planning.
bool has_arithmetic() {
  static const bool native = finds_operators() && (find("aten::add.out").kernel || find("aten::add.Tensor").kernel) &&
                             (find("aten::mul.out").kernel || find("aten::mul.Tensor").kernel);
  static const bool portable = find_portable("aten::add.out").kernel && find_portable("aten::mul.out").kernel;
  return native || (portable && g_portable.load());
}

// "aten::add" for "aten::add_", and "aten::__lshift__" for "aten::__ilshift__".
std::string without_place(std::string base) {
  const auto name = base.rfind("::") + 2;
  if (base.compare(name, 3, "__i") == 0 && base.ends_with("__"))
    base.erase(name + 2, 1);
  else if (base.ends_with('_'))
    base.pop_back();
  return base;
}

}  // namespace

std::string out_form(const c10::FunctionSchema& schema) {
  std::string base = schema.name();
  const bool in_place = !schema.arguments().empty() && schema.arguments()[0].alias_info() &&
                        schema.arguments()[0].alias_info()->isWrite();
  if (in_place) base = without_place(std::move(base));
  for (const auto& name : names_of(base)) {
    auto handle = c10::Dispatcher::singleton().findSchema(name);
    if (!handle) continue;
    const auto& other = handle->schema();
    const size_t n = schema.arguments().size();
    // An operator over lists returns nothing where it works in place: the first list is what it makes.
    const size_t outs = schema.returns().empty() && in_place && is_foreach(schema) ? 1 : schema.returns().size();
    if (other.arguments().size() != n + outs || outs == 0) continue;
    bool fits = true;
    for (size_t i = 0; fits && i < n; ++i)
      fits = same_argument(schema.arguments()[i], other.arguments()[i]) && !other.arguments()[i].is_out();
    for (size_t i = n; fits && i < other.arguments().size(); ++i) fits = other.arguments()[i].is_out();
    if (fits) return c10::toString(name);
  }
  return "";
}

std::optional<c10::OperatorHandle> functional_form(const c10::FunctionSchema& schema) {
  std::string base = schema.name();
  const auto& args = schema.arguments();
  size_t n = 0;
  while (n < args.size() && !args[n].is_out()) ++n;
  const bool in_place = n == args.size();
  if (in_place) base = without_place(std::move(base));
  for (const auto& name : names_of(base)) {
    auto handle = c10::Dispatcher::singleton().findSchema(name);
    if (!handle || handle->schema().arguments().size() != n) continue;
    bool fits = true;
    for (size_t k = 0; fits && k < n; ++k) {
      const auto& other = handle->schema().arguments()[k];
      const bool writes = other.alias_info() && other.alias_info()->isWrite();
      // Running statistics, and the noise of rrelu: both forms write them.
      const bool both = !(in_place && k == 0) && args[k].alias_info() && args[k].alias_info()->isWrite();
      fits = same_argument(args[k], other) && (!writes || both);
    }
    if (fits) return handle;
  }
  return std::nullopt;
}

namespace {

std::unique_ptr<Offers> resolve_for(Operator& op, int device) {
  auto offers = std::make_unique<Offers>();
  if (finds_operators()) {
    offers->own_name = op.name;
    offers->own = find(offers->own_name, device);
    if (!offers->own.kernel && op.facts.other_name) {
      offers->own_name = op.facts.other_name;
      offers->own = find(offers->own_name, device);
      offers->left_out = op.facts.left_out;
    }
    const auto& schema = op.handle.schema();
    bool is_out = false;
    for (const auto& a : schema.arguments()) is_out |= a.is_out();
    if (!is_out)
      if (offers->out_name = out_form(schema); !offers->out_name.empty()) offers->out = find(offers->out_name, device);
  }
  if (!offers->own.kernel && !offers->out.kernel) offers->own = fill_kernel(op.name);
  offers->portable_own = find_portable(op.name);
  std::string name = offers->out_name;
  if (name.empty() && std::none_of(op.handle.schema().arguments().begin(), op.handle.schema().arguments().end(),
                                   [](const c10::Argument& a) { return a.is_out(); }))
    name = out_form(op.handle.schema());
  if (!name.empty()) offers->portable_out = find_portable(offers->out_name = name);
  if (offers->own_name.empty()) offers->own_name = op.name;
  offers->any = offers->own.kernel || offers->out.kernel || offers->portable_own.kernel ||
                offers->portable_out.kernel || (!op.over_lists && has_decomposer() && has_arithmetic());
  return offers;
}

}  // namespace

Offers* resolve_offers(Operator& op) {
  auto offers = resolve_for(op, 0);
  if (api().op_find_for) {
    const int devices = device_count_or_zero();
    const auto alike = [](const cw_op& a, const cw_op& b) {
      return a.kernel == b.kernel && a.needs == b.needs && a.dtypes == b.dtypes;
    };
    bool all = true;
    for (int d = 0; d < devices && devices > 1; ++d) {
      auto one = resolve_for(op, d);
      all &= alike(one->own, offers->own) && alike(one->out, offers->out) && one->own_name == offers->own_name;
      offers->any |= one->any;
      offers->by_device.push_back(std::move(one));
    }
    if (all) offers->by_device.clear();
  }
  Offers* none = nullptr;
  if (op.resolved.compare_exchange_strong(none, offers.get())) return offers.release();
  return none;
}

void set_portable(bool on, std::vector<std::string> except) {
  g_left_out.store(except.empty() ? nullptr : new std::set<std::string>(except.begin(), except.end()),
                   std::memory_order_release);
  g_portable.store(on);
}

bool portable_serves(const Operator& op) { return g_portable.load(std::memory_order_relaxed) && !is_left_out(op.name); }

std::vector<std::pair<std::string, cw_op>> portable_offered() {
  std::vector<std::pair<std::string, cw_op>> out;
  if (!g_portable.load()) return out;
  for (const auto& n : c10::Dispatcher::singleton().getAllOpNames()) {
    const std::string name = c10::toString(n);
    if (is_left_out(name)) continue;
    if (cw_op op = find_portable(name); op.kernel) out.emplace_back(name, op);
  }
  return out;
}

std::vector<std::pair<std::string, cw_op>> offered() {
  std::vector<std::pair<std::string, cw_op>> out;
  if (!finds_operators()) return out;
  const int devices = api().op_find_for ? std::max(1, device_count_or_zero()) : 1;
  for (const auto& n : c10::Dispatcher::singleton().getAllOpNames()) {
    if (!c10::Dispatcher::singleton().findSchema(n)) continue;  // named, and of a library that is not imported
    const std::string name = c10::toString(n);
    cw_op op{};
    for (int d = 0; d < devices && !op.kernel; ++d) op = find(name, d);
    if (op.kernel) out.emplace_back(name, op);
  }
  return out;
}

}  // namespace causeway

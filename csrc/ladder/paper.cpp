// A vendor whose chip is not there. Its table says what the chip says, and its memory is the host's, reserved and not
// touched before it is used; its kernels compute with torch's CPU kernels, or nothing in a dry run (dry.h). All above
// the table is the real thing: the same ladder decides, the same ledger counts.
//
// Where the vendor's library is at hand, it answers for its operators itself; with extension "check.v1" also whether a
// kernel would decline a call. It opens no device.
#include "ladder/paper.h"

#include <sys/mman.h>

#include <array>
#include <cstring>
#include <map>
#include <mutex>
#include <utility>

#include <ATen/DLConvertor.h>
#include <ATen/ScalarOps.h>
#include <ATen/core/LegacyTypeDispatch.h>
#include <ATen/ops/convolution_backward.h>
#include <ATen/ops/from_blob.h>

#include "ladder/call.h"
#include "runtime/check.h"
#include "ladder/dry.h"

namespace causeway {

namespace {

struct Kernel {
  PaperOperator offered;
  bool own;  // Causeway's, which the vendor's library knows nothing of
  std::unique_ptr<Operator> info;  // of the form that is computed
};

struct Chip {
  Paper paper;
  cw_backend library{};  // zeros if there is none
  const cw_check_v1* check = nullptr;
  std::vector<std::unique_ptr<Kernel>> kernels;
  std::map<std::string, size_t> index;
  std::mutex mutex;
};
Chip* g_chip = nullptr;  // never freed, as a vendor is not

thread_local std::string t_words;
cw_status refuse(cw_status status, std::string words) {
  t_words = std::move(words);
  return status;
}
const char* last_error() {
  if (t_words.empty() && g_chip->library.last_error) return g_chip->library.last_error();
  return t_words.c_str();
}

// ---- memory -------------------------------------------------------------------------------------------------------

std::mutex g_paper_mutex;
std::map<void*, size_t>& blocks() {
  static auto& map = *new std::map<void*, size_t>;
  return map;
}

cw_status mem_alloc(int32_t, uint64_t bytes, void** out) {
  const size_t size = (bytes + 4095) / 4096 * 4096;
  void* p = mmap(nullptr, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (p == MAP_FAILED) return refuse(CW_OUT_OF_MEMORY, c10::str("no address space for ", bytes, " bytes"));
  std::lock_guard lock(g_paper_mutex);
  blocks()[p] = size;
  return *out = p, CW_OK;
}

cw_status mem_free(int32_t, void* p) {
  std::lock_guard lock(g_paper_mutex);
  const auto it = blocks().find(p);
  if (it == blocks().end()) return refuse(CW_INVALID, "mem_free: not an allocation");
  set_unknown(p, static_cast<char*>(p) + it->second, false);
  munmap(p, it->second);
  blocks().erase(it);
  return CW_OK;
}

cw_status mem_copy(void* dst, int32_t to, const void* src, int32_t from, uint64_t bytes, cw_stream) {
  constexpr uint64_t kLarge = 16 << 20;  // not touched in a dry run
  auto* d = static_cast<char*>(dst);
  const auto* s = static_cast<const char*>(src);
  if (is_dry() && to != CW_HOST) {
    const bool unknown = from != CW_HOST ? any_unknown(s, s + bytes) : bytes > kLarge;
    set_unknown(d, d + bytes, unknown || bytes > kLarge);
    if (unknown || bytes > kLarge) return CW_OK;
  }
  std::memmove(dst, src, bytes);
  return CW_OK;
}

cw_status mem_set(int32_t, void* p, int32_t byte, uint64_t bytes, cw_stream) {
  std::memset(p, byte, bytes);
  if (is_dry()) set_unknown(p, static_cast<char*>(p) + bytes, false);
  return CW_OK;
}

cw_status device_count(int32_t* out) { return *out = 1, CW_OK; }
cw_status sync(int32_t) { return CW_OK; }

cw_status device_info(int32_t, cw_device_info* out) {
  const Paper& paper = g_chip->paper;
  out->flags = paper.host_addressable ? CW_HOST_ADDRESSABLE : 0;
  std::snprintf(out->name, sizeof out->name, "%s", paper.device.c_str());
  out->memory = paper.memory;
  out->dtypes = paper.dtypes;
  out->alignment = 64;
  out->compute_units = 1;
  return CW_OK;
}

// ---- kernels ------------------------------------------------------------------------------------------------------

std::pair<const char*, const char*> bytes_of(const DLTensor& t) {
  const auto* begin = static_cast<const char*>(t.data) + t.byte_offset;
  int64_t reach = 0;
  for (int32_t d = 0; d < t.ndim; ++d) {
    if (t.shape[d] == 0) return {nullptr, nullptr};
    reach += (t.shape[d] - 1) * t.strides[d];
  }
  return {begin, begin + (reach + 1) * t.dtype.lanes * t.dtype.bits / 8};
}

int64_t elements(const DLTensor& t) {
  int64_t n = 1;
  for (int32_t d = 0; d < t.ndim; ++d) n *= t.shape[d];
  return n;
}

template <class F>
void each_tensor(const cw_arg& a, F f) {
  if (a.tag == CW_TENSOR) f(*a.v.tensor);
  if (a.tag == CW_TENSOR_LIST)
    for (uint32_t k = 0; k < a.n; ++k)
      if (a.v.tensors[k]) f(*a.v.tensors[k]);
}

at::Tensor host_tensor(const DLTensor& t) {
  return at::from_blob(
      static_cast<char*>(t.data) + t.byte_offset, {t.shape, static_cast<size_t>(t.ndim)},
      {t.strides, static_cast<size_t>(t.ndim)}, [](void*) {}, at::TensorOptions().dtype(at::toScalarType(t.dtype)));
}

at::Scalar number(const cw_arg& a) {
  switch (a.tag) {
    case CW_DOUBLE:
      return a.v.d;
    case CW_BOOLEAN:
      return a.v.i != 0;
    case CW_COMPLEX:
      return c10::complex<double>(a.v.complex[0], a.v.complex[1]);
    default:
      return a.v.i;
  }
}

// An argument of the boxed call as torch has it.
c10::IValue argument(const cw_arg& a, const c10::Argument& schema) {
  c10::TypePtr type = schema.real_type();
  if (auto o = type->cast<c10::OptionalType>()) type = o->getElementType();
  switch (a.tag) {
    case CW_NONE:
    case CW_GENERATOR:  // other numbers than the chip's
      return {};
    case CW_TENSOR:
      return host_tensor(*a.v.tensor);
    case CW_TENSOR_LIST: {
      const bool optional = type->kind() == c10::TypeKind::ListType &&
                            type->expectRef<c10::ListType>().getElementType()->kind() == c10::TypeKind::OptionalType;
      c10::List<at::Tensor> list;
      c10::List<std::optional<at::Tensor>> optionals;
      for (uint32_t k = 0; k < a.n; ++k) {
        std::optional<at::Tensor> t;
        if (a.v.tensors[k]) t = host_tensor(*a.v.tensors[k]);
        optional ? optionals.push_back(t) : list.push_back(t.value_or(at::Tensor()));
      }
      return optional ? c10::IValue(std::move(optionals)) : c10::IValue(std::move(list));
    }
    case CW_DTYPE:
      return static_cast<int64_t>(dtype_of_bit(static_cast<int>(a.v.i)));
    case CW_STRING:
      return std::string(a.v.string, a.n);
    case CW_INT_LIST:
      return std::vector<int64_t>(a.v.ints, a.v.ints + a.n);
    case CW_DOUBLE_LIST:
      return std::vector<double>(a.v.doubles, a.v.doubles + a.n);
    case CW_BOOLEAN_LIST: {
      c10::List<bool> list;
      for (uint32_t k = 0; k < a.n; ++k) list.push_back(a.v.ints[k] != 0);
      return list;
    }
    case CW_SCALAR_LIST: {
      std::vector<at::Scalar> list;
      for (uint32_t k = 0; k < a.n; ++k) list.push_back(number(a.v.args[k]));
      return list;
    }
    default:
      if (type->kind() == c10::TypeKind::TensorType) {
        at::Tensor t = c10::scalar_to_tensor(number(a));
        t.unsafeGetTensorImpl()->set_wrapped_number(true);
        return t;
      }
      if (type->kind() == c10::TypeKind::DeviceObjType) return c10::Device(at::kCPU);
      return c10::IValue(number(a));
  }
}

// Whether a list is given for results, which nothing returns.
bool is_given(const Operator& op, const c10::Argument& argument) { return op.return_of.empty() && argument.is_out(); }

// Where each of torch's arguments is among a kernel's: results first, and what is given for them.
std::vector<int32_t> places_of(const Operator& op) {
  const auto& schema = op.handle.schema().arguments();
  auto next = static_cast<int32_t>(op.return_of.size());
  for (const c10::Argument& a : schema) next += is_given(op, a);
  int32_t given = 0;
  std::vector<int32_t> places;
  for (size_t i = 0; i < op.args.size(); ++i) {
    const auto of = std::find(op.return_of.begin(), op.return_of.end(), static_cast<int>(i));
    if (of != op.return_of.end())
      places.push_back(static_cast<int32_t>(of - op.return_of.begin()));
    else
      places.push_back(is_given(op, schema[i]) ? given++ : next++);
  }
  return places;
}

// The operator on the host, on the same bytes.
void compute(const Kernel& kernel, const cw_arg* args, int32_t n) {
  const Operator& op = *kernel.info;
  const auto& schema = op.handle.schema().arguments();
  const auto results = static_cast<int32_t>(op.return_of.size());
  Stack stack;
  const std::vector<int32_t> places = places_of(op);
  for (size_t i = 0; i < op.args.size(); ++i) {
    const int32_t place = places[i];
    if (place >= n) fail(Kind::Causeway, op.name, " was called with ", n, " arguments");
    stack.push_back(argument(args[place], schema[i]));
  }
  at::AutoDispatchBelowADInplaceOrView below;
  constexpr c10::DispatchKeySet cpu(c10::DispatchKey::CPU);
  // torch has a convolution's other names for foreign devices alone.
  if (const FactsRow* row = named_otherwise(op.name)) {
    if (const int8_t place = row->facts.left_out; place >= 0) {  // the bias's shape
      const at::Tensor& weight = stack[2].toTensor();
      const bool transposed = stack[6].toBool();
      const int64_t channels = transposed ? weight.size(1) * stack[8].toInt() : weight.size(0);
      stack.insert(stack.begin() + place, c10::IValue(std::vector<int64_t>{channels}));
    }
    c10::Dispatcher::singleton().findSchemaOrThrow(full_name(*row).c_str(), "").redispatchBoxed(cpu, &stack);
  } else {
    op.handle.redispatchBoxed(cpu, &stack);
  }
  for (int32_t r = 0; r < results; ++r) {
    if (op.return_of[r] >= 0 || args[r].tag != CW_TENSOR) continue;
    const at::Tensor& came = stack[stack.size() - results + r].toTensor();
    const at::Tensor out = host_tensor(*args[r].v.tensor);
    if (came.sizes() == out.sizes()) {
      out.copy_(came);
      continue;
    }
    // Its shape is found while it runs.
    const cw_status status =
        host_services().resize(args[r].v.tensor, static_cast<int32_t>(came.dim()), came.sizes().data());
    if (status != CW_OK) fail(Kind::Causeway, op.name, ": its output cannot be resized");
    host_tensor(*args[r].v.tensor).copy_(came);
  }
}

cw_status run(size_t index, const cw_arg* args, int32_t n) {
  t_words.clear();
  const Kernel& kernel = *g_chip->kernels[index];
  if (g_chip->check && !kernel.own) {
    const cw_status status = g_chip->check->op_check(kernel.offered.name.c_str(), args, n);
    if (status != CW_OK) return status;
  }
  if (!kernel.info) return refuse(CW_FAILED, c10::str(kernel.offered.name, " is not known to torch"));
  const Operator& op = *kernel.info;
  const auto results = static_cast<int32_t>(op.return_of.size());
  const auto& schema = op.handle.schema().arguments();
  const auto given = static_cast<int32_t>(
      std::count_if(schema.begin(), schema.end(), [&](const c10::Argument& a) { return is_given(op, a); }));
  const std::vector<int32_t> places = places_of(op);
  const bool blind = op.facts.only_writes;
  bool unknown = false, dry = false;
  if (is_dry()) {
    int64_t count = 0;
    for (int32_t i = 0; i < n; ++i) {
      const bool reads =
          i >= results ? i >= given : op.return_of[i] >= 0 && !blind && !schema[op.return_of[i]].is_out();
      each_tensor(args[i], [&](const DLTensor& t) {
        count += elements(t);
        const auto [begin, end] = bytes_of(t);
        unknown |= reads && any_unknown(begin, end);
      });
    }
    const auto tags = op.handle.getTags();
    if (unknown && std::find(tags.begin(), tags.end(), at::Tag::dynamic_output_shape) != tags.end())
      refuse_dry(op.name);
    dry = unknown || count > g_small;
    unknown = dry;
  }
  if (!dry) {
    try {
      compute(kernel, args, n);
    } catch (const std::exception& e) {
      return refuse(CW_FAILED, e.what());
    }
  }
  if (!is_dry()) return CW_OK;
  const auto mark = [&](const DLTensor& t) {
    const auto [begin, end] = bytes_of(t);
    set_unknown(begin, end, unknown);
  };
  for (int32_t i = 0; i < std::min(results, n); ++i) each_tensor(args[i], mark);
  // And what an operator without a return changes.
  for (size_t i = 0; i < op.args.size(); ++i)
    if (op.args[i].write && places[i] >= results && places[i] < n) each_tensor(args[places[i]], mark);
  return CW_OK;
}

// The contract's kernels are plain functions without a context: one for each place in the list.
constexpr size_t kMost = 1536;
template <size_t index>
cw_status kernel(const cw_arg* args, int32_t n, cw_stream) {
  return run(index, args, n);
}
template <size_t... index>
constexpr std::array<cw_kernel, kMost> make_kernels(std::index_sequence<index...>) {
  return {{kernel<index>...}};
}
constexpr std::array<cw_kernel, kMost> kKernels = make_kernels(std::make_index_sequence<kMost>());

// A place in the list; NULL where it is full.
cw_kernel kernel_for(const PaperOperator& offered, bool own) {
  Chip& chip = *g_chip;
  const std::string& name = offered.name;
  std::lock_guard lock(chip.mutex);
  const auto [it, fresh] = chip.index.emplace(own ? "own " + name : name, chip.kernels.size());
  if (fresh) chip.kernels.push_back(std::make_unique<Kernel>(Kernel{offered, own, nullptr}));
  if (it->second >= kMost) return nullptr;
  Kernel& found = *chip.kernels[it->second];
  if (!found.info) {
    const auto dot = name.find('.');
    const auto handle = c10::Dispatcher::singleton().findSchema(
        {name.substr(0, dot), dot == std::string::npos ? "" : name.substr(dot + 1)});
    if (handle) found.info = std::make_unique<Operator>(*handle);
  }
  return kKernels[it->second];
}

cw_status op_find(const char* name, cw_op* out) {
  Chip& chip = *g_chip;
  cw_op offered{};
  if (chip.library.op_find) {
    offered.struct_size = sizeof offered;
    if (const cw_status status = chip.library.op_find(name, &offered); status != CW_OK) return status;
  } else {
    const auto it = chip.index.find(name);
    if (it == chip.index.end()) return refuse(CW_UNSUPPORTED, c10::str(name, " is not offered"));
    offered.needs = chip.kernels[it->second]->offered.needs;
    offered.dtypes = chip.kernels[it->second]->offered.dtypes;
  }
  const cw_kernel kernel = kernel_for({name, offered.needs, offered.dtypes}, false);
  if (!kernel) return refuse(CW_FAILED, c10::str("a chip on paper has at most ", kMost, " operators"));
  out->needs = offered.needs;
  out->dtypes = offered.dtypes;
  out->kernel = kernel;
  return CW_OK;
}

// Only check.v1, which says that the library was asked what its kernels take.
cw_status extension(const char* name, const void** out) {
  if (g_chip->check && std::strcmp(name, "check.v1") == 0) return *out = g_chip->check, CW_OK;
  return refuse(CW_UNSUPPORTED, c10::str("extension ", name, " is not on paper"));
}

}  // namespace

bool paper_has_compiler() { return g_chip && g_chip->paper.compiler; }

cw_op paper_kernel(const std::string& name, cw_op offered) {
  if (!offered.kernel) return offered;
  offered.kernel = kernel_for({name, offered.needs, offered.dtypes}, true);
  if (!offered.kernel) fail(Kind::Causeway, "a chip on paper has at most ", kMost, " operators; no room for ", name);
  return offered;
}

void load_paper(Paper paper, const std::string& path) {
  auto chip = std::make_unique<Chip>();
  if (!paper.library.empty()) {
    chip->library = open_library(paper.library);
    paper.name = chip->library.name;
    paper.version = valid_utf8(chip->library.version ? chip->library.version : "");
    const void* table = nullptr;
    if (chip->library.extension && chip->library.extension("check.v1", &table) == CW_OK)
      chip->check = static_cast<const cw_check_v1*>(table);
    paper.compiler = chip->library.extension && chip->library.extension("code.v1", &table) == CW_OK;
    int32_t devices = 0;
    cw_device_info info{};
    info.struct_size = sizeof info;
    // Without the chip the driver may know no device; then what the paper says holds.
    if (chip->library.device_count(&devices) == CW_OK && devices > 0 && chip->library.device_info(0, &info) == CW_OK) {
      info.name[sizeof info.name - 1] = 0;
      paper.device = valid_utf8(info.name);
      paper.memory = info.memory;
      paper.dtypes = info.dtypes;
      paper.host_addressable = info.flags & CW_HOST_ADDRESSABLE;
    }
  }
  for (const PaperOperator& op : paper.operators) {
    chip->index[op.name] = chip->kernels.size();
    chip->kernels.push_back(std::make_unique<Kernel>(Kernel{op, false, nullptr}));
  }
  chip->paper = std::move(paper);
  Chip* before = std::exchange(g_chip, chip.release());
  static std::string name, version;
  name = g_chip->paper.name;
  version = g_chip->paper.version;
  cw_backend table{};
  table.struct_size = sizeof table;
  table.abi_version = CW_ABI_VERSION;
  table.name = name.c_str();
  table.version = version.c_str();
  table.last_error = last_error;
  table.device_count = device_count;
  table.device_info = device_info;
  table.sync = sync;
  table.mem_alloc = mem_alloc;
  table.mem_free = mem_free;
  table.mem_copy = mem_copy;
  table.mem_set = mem_set;
  table.op_find = op_find;
  table.extension = extension;
  try {
    use_table(table, path);
  } catch (...) {
    delete std::exchange(g_chip, before);
    throw;
  }
}

}  // namespace causeway

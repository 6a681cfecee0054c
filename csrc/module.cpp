// causeway._C: what Python sees of the core. Documented in src/causeway/_C.pyi.
#include <regex>

#include <ATen/SequenceNumber.h>
#include <ATen/ops/from_blob.h>
#include <ATen/record_function.h>
#include <torch/csrc/Device.h>
#include <torch/csrc/Dtype.h>
#include <torch/csrc/DynamicTypes.h>
#include <torch/csrc/Exceptions.h>
#include <torch/csrc/Generator.h>
#include <torch/csrc/Storage.h>
#include <torch/csrc/autograd/python_variable.h>
#include <torch/csrc/utils/pybind.h>
#include <torch/csrc/profiler/combined_traceback.h>

#include "runtime/allocator.h"
#include "aten/autocast.h"
#include "torch/compile.h"
#include "torch/graph.h"
#include "torch/autograd.h"
#include "ladder/call.h"
#include "runtime/check.h"
#include "runtime/code.h"
#include "runtime/cores.h"
#include "runtime/packed.h"
#include "comm/module.h"
#include "runtime/device.h"
#include "torch/environment.h"
#include "ladder/facts.h"
#include "ladder/forms.h"
#include "ladder/dry.h"
#include "runtime/generator.h"
#include "runtime/host_allocator.h"
#include "runtime/ipc.h"
#include "ladder/layouts.h"
#include "ladder/named.h"
#include "runtime/name_check.h"
#include "ladder/device_call.h"
#include "ladder/python.h"
#include "ladder/observe.h"
#include "ladder/paper.h"
#include "runtime/peers.h"
#include "portable/portable.h"
#include "runtime/profile.h"
#include "torch/redirect.h"
#include "runtime/storage.h"
#include "runtime/stream.h"
#include "runtime/vendor.h"
#include "runtime/watched.h"

namespace py = pybind11;

// Of torch/csrc/profiler/python/combined_traceback.h, which includes a header that wheels lack.
namespace torch {
TORCH_API std::vector<py::object> py_symbolize(std::vector<CapturedTraceback*>& to_symbolize);
TORCH_PYTHON_API void installCapturedTracebackPython();
}  // namespace torch

namespace causeway {

namespace {

py::object dtype_object(c10::ScalarType dtype) {
  return py::reinterpret_borrow<py::object>(reinterpret_cast<PyObject*>(torch::getTHPDtype(dtype)));
}

py::list dtype_list(cw_dtypes set) {
  py::list out;
  for (int bit = 0; dtype_of_bit(bit) != c10::ScalarType::Undefined; ++bit)
    if ((set >> bit) & 1) out.append(dtype_object(dtype_of_bit(bit)));
  return out;
}

py::dict vendor_state() {
  py::dict d;
  if (!vendor_loaded()) return d;
  d["path"] = vendor_path();
  d["name"] = vendor_name();
  d["version"] = vendor_version();
  d["abi_version"] = api().abi_version;
  d["level"] = vendor_level();
  py::dict entries;
  for (const auto& [name, offered] : vendor_entries()) entries[name.c_str()] = offered;
  d["entries"] = entries;
  d["extensions"] = vendor_extensions();
  return d;
}

// What may wait for a vendor, or for a lock that is held while one is called.
template <class F>
decltype(auto) without_gil(F f) {
  py::gil_scoped_release release;
  return f();
}

py::dict device_info(int index) {
  const DeviceState& s = without_gil([&]() -> const DeviceState& { return device(index); });
  py::dict d;
  d["name"] = s.info.name;
  d["memory"] = s.info.memory;
  d["dtypes"] = dtype_list(s.info.dtypes);
  d["host_addressable"] = s.host_addressable;
  d["alignment"] = s.alignment;
  d["padding"] = s.info.padding;
  d["compute_units"] = s.info.compute_units;
  d["capability"] = py::make_tuple(s.info.capability_major, s.info.capability_minor);
  d["uuid"] = py::bytes(reinterpret_cast<const char*>(s.info.uuid), sizeof s.info.uuid);
  d["priorities"] = py::make_tuple(s.info.priority_lowest, s.info.priority_highest);
  return d;
}

// What the vendor says of key `key`, or None where it does not know.
py::object device_attribute(int index, const std::string& key) {
  const DeviceState& d = device(index);
  cw_arg value{};
  const cw_status status =
      api().device_attribute ? api().device_attribute(d.vendor_id, key.c_str(), &value) : CW_UNSUPPORTED;
  if (status == CW_UNSUPPORTED) return py::none();
  check(status, "device_attribute", index);
  switch (value.tag) {
    case CW_INT:
      return py::int_(value.v.i);
    case CW_DOUBLE:
      return py::float_(value.v.d);
    case CW_STRING:
      return py::str(value.v.string, value.n);
    default:
      fail(Kind::Vendor, device_name(index), ": device_attribute gave an argument of tag ", value.tag, " for \"", key,
           "\"; it may be CW_INT, CW_DOUBLE or CW_STRING");
  }
}

// The stacks of a snapshot, made readable all at once: most of them share their frames.
class Symbols {
 public:
  void want(const Frames& frames) {
    if (frames && places_.emplace(frames.get(), all_.size()).second) all_.push_back(frames.get());
  }
  void resolve() {
    if (!all_.empty()) found_ = torch::py_symbolize(all_);
  }
  py::object of(const Frames& frames) const {
    return frames ? found_[places_.at(frames.get())] : py::object(py::list());
  }

 private:
  std::map<const torch::CapturedTraceback*, size_t> places_;
  std::vector<torch::CapturedTraceback*> all_;
  std::vector<py::object> found_;
};

// What happened on a device, oldest first, in torch's form.
py::list history(int index) {
  const auto events = without_gil([&] { return memory_history(index); });
  Symbols symbols;
  for (const MemoryEvent& e : events) symbols.want(e.frames);
  symbols.resolve();
  py::list out;
  for (const MemoryEvent& e : events) {
    py::dict d;
    d["action"] = action_name(e.action);
    d[e.action == MemoryAction::OutOfMemory ? "device_free" : "addr"] = e.address;
    d["size"] = e.size;
    d["stream"] = e.stream;
    d["time_us"] = e.time_us;
    d["pool_id"] = py::make_tuple(0, 0);
    d["compile_context"] = "N/A";
    d["user_metadata"] = "";
    d["frames"] = symbols.of(e.frames);
    out.append(d);
  }
  return out;
}

void set_memory_history(const std::optional<std::string>& enabled, const std::optional<std::string>& context,
                        const std::string& stacks, size_t max_entries, bool clear,
                        const std::vector<std::string>& skip) {
  HistoryOptions o;
  o.on = enabled.has_value();
  o.events = enabled == "all";
  o.stacks = !context             ? Stacks::None
             : context == "state" ? Stacks::State
             : context == "alloc" ? Stacks::Alloc
                                  : Stacks::All;
  o.cpp = stacks == "all";
  o.max_events = std::max<size_t>(max_entries, 1);
  for (int i = 0; i <= static_cast<int>(MemoryAction::Snapshot); ++i)
    if (std::count(skip.begin(), skip.end(), action_name(static_cast<MemoryAction>(i))))
      o.skip.insert(static_cast<MemoryAction>(i));
  if (o.on) torch::installCapturedTracebackPython();
  record_history(o, clear);
}

py::list snapshot(int index) {
  py::list out;
  const auto segments = without_gil([&] { return memory_snapshot(index); });
  Symbols symbols;
  for (const SegmentView& s : segments) {
    symbols.want(s.frames);
    for (const BlockView& b : s.blocks) symbols.want(b.frames);
  }
  symbols.resolve();
  for (const SegmentView& s : segments) {
    py::dict d;
    d["device"] = index;
    d["address"] = s.address;
    d["total_size"] = s.size;
    d["allocated_size"] = s.allocated;
    d["active_size"] = s.active;
    d["requested_size"] = s.requested;
    d["stream"] = s.stream;
    d["segment_type"] = s.large ? "large" : "small";
    d["segment_pool_id"] = py::make_tuple(s.pool.first, s.pool.second);
    d["is_expandable"] = s.expandable;
    d["frames"] = symbols.of(s.frames);
    py::list blocks;
    for (const BlockView& b : s.blocks) {
      py::dict block;
      block["address"] = b.address;
      block["size"] = b.size;
      block["requested_size"] = b.requested;
      block["state"] = b.allocated ? "active_allocated" : b.active ? "active_pending_free" : "inactive";
      block["frames"] = symbols.of(b.frames);
      blocks.append(block);
    }
    d["blocks"] = blocks;
    out.append(d);
  }
  return out;
}

std::map<size_t, c10::DataPtr>& raw_blocks() {
  static auto& blocks = *new std::map<size_t, c10::DataPtr>;
  return blocks;
}

size_t raw_alloc(size_t bytes, int index, const c10::Stream& stream) {
  device(index);
  c10::DataPtr data = allocate(index, stream_of(stream), bytes);
  const auto address = reinterpret_cast<size_t>(data.get());
  raw_blocks()[address] = std::move(data);
  return address;
}

void raw_delete(size_t address) {
  if (!raw_blocks().erase(address))
    fail(Kind::Causeway, "caching_allocator_delete: ", address,
         " was not made by caching_allocator_alloc, or was deleted before");
}

at::Tensor host_alias(const at::Tensor& t) {
  if (t.device().type() != kDeviceType) return t;
  DeviceState& d = device(t.device().index());
  if (!d.host_addressable)
    fail(Kind::Causeway, "the host cannot address the memory of ", device_name(d.index), "; use .cpu() for a copy");
  sync_device(d.index);
  at::Tensor keep = t;
  return at::from_blob(t.mutable_data_ptr(), t.sizes(), t.strides(), [keep](void*) {}, t.options().device(at::kCPU));
}

py::dict host_stats() {
  const at::HostStats s = without_gil([] { return pinned_allocator()->get_stats(); });
  py::dict d;
  auto put = [&](const char* name, const c10::CachingAllocator::Stat& stat) {
    d[py::str(std::string(name) + ".current")] = stat.current;
    d[py::str(std::string(name) + ".peak")] = stat.peak;
    d[py::str(std::string(name) + ".allocated")] = stat.allocated;
    d[py::str(std::string(name) + ".freed")] = stat.freed;
  };
  put("active_requests", s.active_requests);
  put("active_bytes", s.active_bytes);
  put("allocations", s.allocations);
  put("allocated_bytes", s.allocated_bytes);
  d["num_host_alloc"] = s.num_host_alloc;
  d["num_host_free"] = s.num_host_free;
  return d;
}

void set_policy(const std::string& fallback, const std::optional<std::vector<std::string>>& only, int64_t budget,
                const std::string& dtypes) {
  Policy& p = policy();
  p.fallback = fallback == "allow" ? Policy::Allow : fallback == "warn" ? Policy::Warn : Policy::Raise;
  p.budget.store(budget);
  p.narrow = dtypes == "narrow";
  std::set<std::string> names;
  if (only) names.insert(only->begin(), only->end());
  for (Operator* op : operators()) {
    op->policed.store(!only || names.count(op->name));
    op->warned.store(false);
  }
  watch(Watcher::Policy, p.fallback != Policy::Allow);
  forget_routes();
}

void set_forced(const std::vector<std::string>& list) {
  const std::set<std::string> names(list.begin(), list.end());
  for (Operator* op : operators()) op->force(names.count(op->name) > 0);
}

cw_dtypes dtype_set(const py::handle& list) {
  cw_dtypes set = 0;
  for (const py::handle d : list)
    if (const int bit = bit_of_dtype(reinterpret_cast<THPDtype*>(d.ptr())->scalar_type); bit >= 0)
      set |= UINT64_C(1) << bit;
  return set;
}

void load_paper_dict(const py::dict& d, const std::string& path) {
  Paper paper;
  paper.name = d["name"].cast<std::string>();
  paper.version = d["version"].cast<std::string>();
  paper.device = d["device"].cast<std::string>();
  paper.memory = d["memory"].cast<uint64_t>();
  paper.dtypes = dtype_set(d["dtypes"]);
  paper.host_addressable = d["host_addressable"].cast<bool>();
  paper.library = d["library"].cast<std::string>();
  paper.compiler = d["compiler"].cast<bool>();
  for (const auto& [name, op] : d["operators"].cast<py::dict>())
    paper.operators.push_back({name.cast<std::string>(), op["needs"].cast<uint32_t>(), dtype_set(op["dtypes"])});
  load_paper(std::move(paper), path);
}

py::dict offered_dict(bool portable) {
  py::dict out;
  for (const auto& [name, op] : portable ? portable_offered() : offered()) {
    py::dict d;
    d["needs"] = op.needs;
    d["dtypes"] = dtype_list(op.dtypes);
    out[name.c_str()] = d;
  }
  return out;
}

py::dict facts_dict(const Facts& f) {
  py::dict d;
  d["reach"] = kReachNames[static_cast<size_t>(f.reach)];
  d["other_name"] = f.other_name;
  d["left_out"] = f.left_out;
  py::list writes;
  for (const char* name : f.writes)
    if (name) writes.append(name);
  d["writes"] = py::tuple(writes);
  d["mixed_devices"] = f.mixed_devices;
  d["only_writes"] = f.only_writes;
  d["copies"] = f.copies;
  d["picks"] = f.picks;
  d["plumbing"] = f.plumbing;
  d["costly"] = f.costly;
  d["computed_by"] = f.computed_by;
  return d;
}

py::dict facts_table_dict() {
  py::dict rows;
  for (const FactsRow& row : facts_table()) {
    py::dict d = facts_dict(row.facts);
    py::list why;
    for (const char* reason : row.why)
      if (reason) why.append(reason);
    d["why"] = py::tuple(why);
    rows[row.name] = d;
  }
  return rows;
}

}  // namespace

PYBIND11_MODULE(TORCH_EXTENSION_NAME, m) {
  // C++ errors of torch and ours become the Python errors that torch would raise for them.
  py::register_local_exception_translator([](std::exception_ptr p) {
    if (!p) return;
    auto translate = [&]() -> PyObject* {
      HANDLE_TH_ERRORS
      std::rethrow_exception(p);
      END_HANDLE_TH_ERRORS
    };
    try {
      std::rethrow_exception(p);
    } catch (const torch::PyTorchError&) {
      translate();
    } catch (const c10::Error&) {
      translate();
    }
  });
  const auto no_gil = py::call_guard<py::gil_scoped_release>();

  m.def("set_error_types", [](const std::map<std::string, py::object>& types) {
    for (const auto& [name, type] : types) set_error_type(name, type.ptr());
  });
  m.def("set_name_check", [](py::object refusal) {
    PyObject* call = refusal.release().ptr();
    set_name_check([call](const std::string& name) -> std::optional<std::string> {
      py::gil_scoped_acquire gil;
      // A vendor's bytes: what is no UTF-8 is shown escaped.
      auto text = py::reinterpret_steal<py::object>(
          PyUnicode_DecodeUTF8(name.data(), static_cast<Py_ssize_t>(name.size()), "backslashreplace"));
      if (!text) throw py::error_already_set();
      py::object why = py::reinterpret_borrow<py::object>(call)(text);
      return why.is_none() ? std::nullopt : std::optional(why.cast<std::string>());
    });
  });
  m.def("set_settings", [](std::string vendor, std::map<std::string, std::optional<std::string>> values) {
    set_settings({std::move(vendor), std::move(values)});
  });
  m.def("load_vendor", [](const std::string& path) {
    load_vendor(path);
    register_named();
  });
  m.def("named", vendor_named);
  m.def("load_paper", load_paper_dict);
  m.def(
      "set_dry",
      [](bool on, int64_t small) {
        g_small.store(small);
        g_dry.store(on);
      },
      py::arg("on"), py::arg("small") = 1 << 16);
  m.def("needed_contents", needed_contents);
  m.def("vendor_state", vendor_state);
  // What the vendor has to say of itself, a line each: extension "notes.v1" is a string.
  m.def("vendor_notes", []() -> std::string {
    const auto* text = vendor_loaded() ? static_cast<const char*>(vendor_extension("notes.v1")) : nullptr;
    return text ? valid_utf8(text) : "";
  });
  m.def("device_count", device_count, no_gil);
  m.def("vendor_device_count", vendor_device_count, no_gil);
  m.def("set_visible_devices", [](std::optional<std::vector<int>> indices) {
    std::vector<int> all;
    if (!indices) {
      for (int i = 0, n = vendor_device_count(); i < n; ++i) all.push_back(i);
      indices = all;
    }
    set_visible_devices(*indices);
  });
  m.def("device_info", device_info);
  m.def("device_attribute", device_attribute);
  m.def("peer_access", [](int index, int peer) -> std::optional<bool> {
    const Peers answer = peers(index, peer);
    return answer == Peers::NotKnown ? std::nullopt : std::optional(answer == Peers::Yes);
  });
  m.def(
      "host_register", [](size_t start, size_t bytes) { register_host(reinterpret_cast<void*>(start), bytes); },
      no_gil);
  m.def("host_unregister", [](size_t start) { unregister_host(reinterpret_cast<void*>(start)); }, no_gil);
  m.def("is_initialized", any_device_opened);
  m.def("init", [] { device(current_device()); }, no_gil);
  m.def("in_bad_fork", in_bad_fork);
  m.def("set_first_use", [](py::object f) {
    PyObject* call = f.release().ptr();  // for the life of the process
    set_first_use([call] {
      py::gil_scoped_acquire gil;
      py::reinterpret_borrow<py::object>(call)();
    });
  });
  m.def("drain_autograd_threads", drain_autograd_threads, no_gil);
  m.def("stream_native_handle", [](const c10::Stream& s) { return reinterpret_cast<size_t>(stream_of(s).handle); });
  m.def("stream_priority", [](const c10::Stream& s) { return stream_of(s).priority; });
  m.def("stream_priority_range", [](int index) {
    const auto [lowest, highest] = stream_priorities(index);
    return py::make_tuple(lowest, highest);
  });
  m.def("cores", cores);
  m.def("layout_names", layout_names);
  m.def("set_layouts", set_layouts, no_gil);
  m.def("drop_layouts", drop_forms, no_gil);
  m.def("allow_layouts", allow_layouts);
  m.def("keeps_layouts",
        [](const at::Tensor& t) { return t.has_storage() && watched(*t.storage().unsafeGetStorageImpl()) != nullptr; });
  m.def("layouts_used", layouts_used);
  m.def("storage_address",
        [](py::object storage) { return reinterpret_cast<size_t>(torch::createStorage(storage.ptr()).data()); });
  m.def("layout_stats", [](int index) {
    const LayoutStats s = layout_stats(index);
    py::dict out;
    out["kept"] = s.forms, out["bytes"] = s.bytes, out["converted"] = s.packed, out["used"] = s.reused;
    out["written"] = s.written, out["freed"] = s.freed, out["handed_out"] = s.handed_out;
    return out;
  });
  m.def("set_cores", set_cores);
  m.def("set_on_wait", [](int level) { g_on_wait.store(static_cast<OnWait>(level)); });
  m.def("on_wait", [] { return static_cast<int>(g_on_wait.load()); });
  m.def(
      "adopt_stream",
      [](size_t handle, int index) { return as_torch(adopt_stream(index, reinterpret_cast<cw_stream>(handle))); },
      no_gil);
  m.def("set_stream", [](const c10::Stream& s) {
    set_device(s.device_index());
    exchange_stream(s);
  });

  m.def("set_profile_clock", [](const std::string& clock) { g_times_of_vendor.store(clock != "events"); });

  m.def("set_autocast_policies", set_autocast_policies);
  m.def("memory_snapshot", snapshot);
  m.def("memory_history", history);
  m.def("set_memory_history", set_memory_history);
  // torch's own keep Python's lock while the device is waited for.
  m.def(
      "empty_cache", [](const c10::MempoolId_t& pool) { device_allocator()->emptyCache(pool); },
      py::arg("pool") = c10::MempoolId_t{0, 0}, no_gil);
  m.def(
      "retain_pool",
      [](int index, const c10::MempoolId_t& id, bool use_on_oom, bool no_split) {
        retain_pool(index, id, {use_on_oom, no_split});
      },
      no_gil);
  m.def("release_pool", release_pool, no_gil);
  m.def("pool_uses", pool_uses, no_gil);
  m.def("use_pool", use_pool, no_gil);
  m.def("end_use_of_pool", end_use_of_pool, no_gil);
  m.def("set_memory_caching", set_memory_caching);
  m.def("set_memory_fraction", set_memory_fraction, no_gil);
  m.def("memory_fraction", memory_fraction, no_gil);
  m.def("raw_alloc", raw_alloc);
  m.def("raw_delete", raw_delete);
  m.def("host_memory_stats", host_stats);
  m.def("reset_host_memory_stats", [](const std::string& kind) {
    if (kind == "peak")
      pinned_allocator()->reset_peak_stats();
    else
      pinned_allocator()->reset_accumulated_stats();
  });
  m.def("host_alias", host_alias);
  m.def("ipc_export", [](py::object storage) {
    const c10::Storage s = torch::createStorage(storage.ptr());
    const SharedMemory shared = ipc_export(s);
    return py::make_tuple(shared.device, py::bytes(shared.handle), shared.offset, shared.bytes);
  });
  m.def("ipc_import", [](int index, const std::string& handle, size_t offset, size_t bytes) {
    c10::Storage storage = ipc_import({index, handle, offset, bytes});
    return py::reinterpret_steal<py::object>(THPStorage_Wrap(std::move(storage)));
  });

  m.def("default_generator",
        [](int index) { return py::reinterpret_steal<py::object>(THPGenerator_Wrap(default_generator(index))); });

  m.def("host_generator", [](int64_t seed, int64_t offset) {
    return py::reinterpret_steal<py::object>(
        THPGenerator_Wrap(host_generator({static_cast<uint64_t>(seed), static_cast<uint64_t>(offset)})));
  });

  m.attr("Redirect") = redirect_type();
  m.attr("RUNGS") = [] {
    py::tuple t(kRungs);
    for (int i = 0; i < kRungs; ++i) t[i] = py::str(kRungNames[i]);
    return t;
  }();
  m.def("operators", [] {
    std::vector<std::string> names;
    for (const Operator* op : operators()) names.push_back(op->name);
    return names;
  });
  m.def("facts", [](const std::string& name) { return facts_dict(facts_of(name)); });
  m.def("facts_table", facts_table_dict);
  m.def("out_form", [](const std::string& name) {
    const auto op = c10::Dispatcher::singleton().findSchema(torch::jit::parseName(name));
    return op ? out_form(op->schema()) : "";
  });
  m.def("functional_form", [](const std::string& name) {
    const auto op = c10::Dispatcher::singleton().findSchema(torch::jit::parseName(name));
    const auto form = op ? functional_form(op->schema()) : std::nullopt;
    return form ? c10::toString(form->operator_name()) : "";
  });
  m.def("offered", [] { return offered_dict(false); });
  m.def("offered_portable", [] { return offered_dict(true); });
  m.def("set_portable", [](bool on, std::vector<std::string> except) {
    set_portable(on, std::move(except));
    forget_routes();
  });
  m.def("set_tune", [](const std::string& mode, const std::string& folder) {
    const std::string modes[] = {"off", "passing", "now", "again"};
    for (size_t i = 0; i < std::size(modes); ++i)
      if (mode == modes[i]) portable::set_tune(static_cast<portable::TuneMode>(i), folder);
  });
  m.def("tuned", [](int32_t device) {
    py::list list;
    find_portable_kernels();
    for (const portable::Tuned& t : portable::tuned(device)) {
      py::dict d;
      d["name"] = t.name, d["cut"] = t.cut, d["source"] = t.source, d["gain"] = t.gain;
      d["measurements"] = t.measurements;
      list.append(d);
    }
    return list;
  });
  m.def("cuts", [](int32_t device, bool f64) {
    find_portable_kernels();
    return portable::cut_names(device, f64);
  });
  m.def("code_units", [](int32_t device) {
    find_portable_kernels();
    return portable::units(device);
  });
  m.def("force_cut", portable::force_cut);
  bind_compile(m);
  bind_graphs(m);
  m.def("code_info", [](int index) {
    const cw_code_info info = without_gil([&] { return code_info(index); });
    py::dict d;
    d["language"] = info.language, d["flags"] = info.flags, d["compute_units"] = info.compute_units;
    d["group_limit"] = info.group_limit, d["local_memory"] = info.local_memory, d["driver"] = info.driver;
    d["argument_limit"] = info.argument_limit, d["binaries"] = info.binaries;
    d["loop_limit"] = info.loop_limit;
    d["grid_limits"] = py::make_tuple(info.grid_limits[0], info.grid_limits[1], info.grid_limits[2]);
    d["group_limits"] = py::make_tuple(info.group_limits[0], info.group_limits[1], info.group_limits[2]);
    return d;
  });
  py::class_<Function>(m, "CodeFunction")
      .def("launch", [](const Function& f, const std::vector<uint32_t>& grid, const std::vector<uint32_t>& group,
                        const py::list& given) {
        std::vector<Function::Argument> args;
        for (const py::handle& a : given) {
          if (THPVariable_Check(a.ptr()))
            args.push_back({THPVariable_Unpack(a.ptr()), ""});
          else
            args.push_back({std::nullopt, a.cast<std::string>()});
        }
        without_gil([&] { f.launch(grid, group, args); });
      });
  using NoGil = py::call_guard<py::gil_scoped_release>;
  py::class_<Program, std::shared_ptr<Program>>(m, "CodeProgram")
      .def(py::init<int, const std::string&, bool, const std::string&>(), NoGil())
      .def("function", &Program::function, NoGil())
      .def("binary", [](const Program& p) { return py::bytes(without_gil([&] { return p.binary(); })); });
  m.def("set_forced", set_forced);
  m.def("watch_environment", watch_environment);
  m.def("set_policy", set_policy, py::arg("fallback"), py::arg("only"), py::arg("budget"), py::arg("dtypes"));
  m.def("set_newcomer", [](py::object f) { set_newcomer(f.is_none() ? nullptr : f.release().ptr()); });
  m.def("set_composer", [](py::object f) { set_composer(f.is_none() ? nullptr : f.release().ptr()); });
  m.def("set_describer", [](py::object f) { set_describer(f.release().ptr()); });
  m.def("set_decomposer", [](py::object f) { set_decomposer(f.is_none() ? nullptr : f.release().ptr()); });
  m.def("ledger_enable", [](bool on) { watch(Watcher::Ledger, on); });
  m.def("ledger_read", read_ledger);

  py::class_<ObservedCall, std::shared_ptr<ObservedCall>>(m, "ObservedCall")
      .def_property_readonly("name", [](const ObservedCall& c) { return c.op->name; })
      .def_readonly("rung", &ObservedCall::rung)
      .def_readonly("error", &ObservedCall::error)
      .def_readonly("sequence", &ObservedCall::sequence)
      .def_readonly("thread", &ObservedCall::thread)
      .def_readonly("depth", &ObservedCall::depth)
      .def_readonly("backward", &ObservedCall::backward)
      .def_readonly("node", &ObservedCall::node)
      .def_readonly("node_sequence", &ObservedCall::node_sequence)
      .def_readonly("node_thread", &ObservedCall::node_thread)
      .def("args",
           [](const ObservedCall& c) {
             const auto& schema = c.op->handle.schema().arguments();
             py::tuple out(c.args.size());
             for (size_t i = 0; i < c.args.size(); ++i) out[i] = to_python(c.args[i], schema[i].real_type());
             return out;
           })
      .def("results", [](const ObservedCall& c) {
        const auto& schema = c.op->handle.schema().returns();
        py::tuple out(c.results.size());
        for (size_t i = 0; i < c.results.size(); ++i) out[i] = to_python(c.results[i], schema[i].real_type());
        return out;
      });
  m.def("own_kernels", own_kernels);
  m.def(
      "set_observers",
      [](py::object begin, py::object end, const std::vector<std::string>& names, bool values) {
        set_observers(begin.is_none() ? nullptr : begin.release().ptr(), end.is_none() ? nullptr : end.release().ptr(),
                      names, values);
      },
      py::arg("begin"), py::arg("end"), py::arg("names"), py::arg("values") = false);
  m.def("pause_observers", pause_observers);
  m.def("autograd_position",
        [] { return py::make_tuple(at::RecordFunction::currentThreadId(), at::sequence_number::peek()); });

  bind_comm(m);

  register_operators();
  register_layouts();
}

}  // namespace causeway

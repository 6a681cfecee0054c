#include "runtime/packed.h"

#include <algorithm>
#include <array>
#include <unordered_set>

#include "runtime/allocator.h"
#include "runtime/check.h"
#include "runtime/graph.h"
#include "runtime/storage.h"
#include "runtime/torch_version.h"
#include "runtime/vendor.h"

namespace causeway {

namespace {

constexpr size_t kMostViews = 8;      // of a storage that are remembered
constexpr uint32_t kMostUses = 1u << 20;

const cw_layout_v1* table() {
  static const cw_layout_v1* const t = [] {
    const auto* given = static_cast<const cw_layout_v1*>(vendor_extension("layout.v1"));
    return given && given->layouts && given->packed_bytes && given->pack ? given : nullptr;
  }();
  return t;
}

std::atomic<bool> g_on{true};

struct Counts {
  std::atomic<uint64_t> forms, bytes, packed, reused, written, freed, handed_out;
};
std::array<Counts, kMaxDevices> g_counts{};

std::mutex g_mutex;  // before a Forms' own
std::unordered_set<Forms*>& all_forms() {
  static auto& all = *new std::unordered_set<Forms*>;
  return all;
}

bool is_ours(const c10::StorageImpl& s) { return typeid(s) == typeid(DeviceStorage); }

#if CAUSEWAY_TORCH_AT_LEAST(2, 13)
// torch calls it before a pointer to write by is handed out.
void handed_out(c10::StorageImpl* s) {
  auto& storage = static_cast<DeviceStorage&>(*s);
  storage.watched.store(false);
  Forms* forms = storage.forms.load(std::memory_order_acquire);
  storage.handed_out.store(!forms);  // else counted where a kernel asks first
  if (!forms) return;
  std::atomic<uint64_t> each{0};  // of one tensor
  forms->drop(each);
  g_counts[forms->device()].handed_out.fetch_add(1);
}
#endif

}  // namespace

struct Form {
  c10::DataPtr memory;
  uint64_t bytes;
  int device;
  StreamState* stream;  // that it was made on
  std::unique_ptr<Event, void (*)(Event*)> ready{nullptr, [](Event* e) { destroy_event(e); }};
  std::atomic<bool> is_ready{false};
  uint64_t version = 0;  // writes of the storage before it was made
  ~Form() {
    g_counts[device].forms.fetch_sub(1);
    g_counts[device].bytes.fetch_sub(bytes);
  }
  Form(c10::DataPtr memory, uint64_t bytes, StreamState& stream)
      : memory(std::move(memory)), bytes(bytes), device(stream.device), stream(&stream) {
    g_counts[device].forms.fetch_add(1);
    g_counts[device].bytes.fetch_add(bytes);
  }
};

const void* memory_of(const Form& form) { return form.memory.get(); }

std::atomic<bool> g_watches_storages{false};

bool layouts_offered() { return CAUSEWAY_TORCH_AT_LEAST(2, 13) && table() != nullptr; }

void set_layouts(bool on) {
  g_on.store(on);
  if (!on) drop_forms(-1);
}

void watch(DeviceStorage& storage) {
#if CAUSEWAY_TORCH_AT_LEAST(2, 13)
  storage.set_materializer(handed_out);
  storage.watched.store(true, std::memory_order_release);
#endif
}

void give_up(DeviceStorage& storage) {
#if CAUSEWAY_TORCH_AT_LEAST(2, 13)
  if (!storage.watched.load()) return;
  handed_out(&storage);
  storage.clear_materializer();
#endif
}

void replays_write(DeviceStorage& storage) {
  storage.replayed.store(true);
  give_up(storage);
}

namespace {

void note_writer(DeviceStorage& storage, StreamState& stream) {
  for (auto& writer : storage.writers) {
    StreamState* was = writer.load(std::memory_order_relaxed);
    if (C10_LIKELY(was == &stream)) return;
    if (!was && (writer.compare_exchange_strong(was, &stream) || was == &stream)) return;
  }
  storage.more_writers.store(true);
}

}  // namespace

void note_write(DeviceStorage& storage) {
  StreamState& stream = current_stream(storage.device().index());
  if (C10_UNLIKELY(graph_of(stream) != nullptr)) return replays_write(storage);
  note_writer(storage, stream);
  storage.writes.fetch_add(1, std::memory_order_acq_rel);
  if (Forms* forms = storage.forms.load(std::memory_order_acquire)) forms->drop(g_counts[forms->device()].written);
}

Forms::Forms(int device) : device_(device) {
  std::lock_guard lock(g_mutex);
  all_forms().insert(this);
}

Forms::~Forms() {
  std::lock_guard lock(g_mutex);
  all_forms().erase(this);
}

std::vector<std::shared_ptr<Form>> Forms::drop(std::atomic<uint64_t>& count) {
  std::vector<std::shared_ptr<Form>> gone;
  std::lock_guard lock(mutex_);
  for (View& v : views_) {
    if (v.form) {
      // It was hardly worth its while: wait longer the next time.
      if (v.uses < 2 * v.after) v.after = std::min(2 * v.after, kMostUses);
      gone.push_back(std::move(v.form));
      v.form = nullptr;
      count.fetch_add(1);
    }
    v.uses = 0;
  }
  return gone;
}

// `t` among the views, asked of the vendor if it is new; nullptr: one too many. The lock is held.
Forms::View* Forms::find(const DLTensor& t, uint32_t layout, const DeviceStorage& storage) {
  c10::SmallVector<int64_t, 8> key{layout, t.dtype.code << 8 | t.dtype.bits,
                                   static_cast<const char*>(t.data) - static_cast<const char*>(storage.data())};
  key.append(t.shape, t.shape + t.ndim);
  key.append(t.strides, t.strides + t.ndim);
  for (View& v : views_)
    if (v.key == key) return &v;
  if (views_.size() == kMostViews) {
    const auto unused = std::find_if(views_.begin(), views_.end(), [](const View& v) { return !v.form; });
    if (unused == views_.end()) return nullptr;
    views_.erase(unused);
  }
  DLTensor dl = t;
  dl.data = nullptr;  // not to be read
  View view;
  view.key = std::move(key);
  const cw_status status = table()->packed_bytes(vendor_index(device_), layout, &dl, &view.bytes, &view.after);
  if (status != CW_UNSUPPORTED) check(status, "layout.packed_bytes", device_);
  if (status == CW_UNSUPPORTED) view.bytes = 0;
  view.after = std::max(1u, view.after);
  views_.push_back(std::move(view));
  return &views_.back();
}

std::shared_ptr<Form> Forms::make(const DLTensor& t, uint32_t layout, uint64_t bytes, StreamState& stream,
                                  const DeviceStorage& storage) {
  if (storage.more_writers.load()) return nullptr;
  c10::DataPtr memory = allocate_if_possible(device_, stream, bytes);
  if (!memory) return nullptr;
  auto form = std::make_shared<Form>(std::move(memory), bytes, stream);
  // A write may be on another stream, and a program that has threads race for it sees its bytes in the end. Of several
  // streams that wrote, any may be the last to come to it.
  for (const auto& each : storage.writers) {
    StreamState* writer = each.load();
    if (!writer || writer == &stream) continue;
    form->ready.reset(new_event(device_, false));
    record_event(*form->ready, *writer);
    block_stream(stream, *form->ready);
  }
  const cw_status status = table()->pack(vendor_index(device_), layout, &t, form->memory.get(), stream.handle);
  if (status == CW_UNSUPPORTED || status == CW_OUT_OF_MEMORY) return nullptr;
  check(status, "layout.pack", device_);
  stream.give();
  form->ready.reset(new_event(device_, false));
  record_event(*form->ready, stream);
  return form;
}

std::shared_ptr<Form> Forms::use(const DLTensor& t, uint32_t layout, StreamState& stream, DeviceStorage& storage) {
  Counts& counts = g_counts[device_];
  const uint64_t version = storage.writes.load(std::memory_order_acquire);
  uint64_t bytes = 0;
  {
    std::lock_guard lock(mutex_);
    View* view = find(t, layout, storage);
    if (!view || !view->bytes) return nullptr;
    if (view->uses < kMostUses * 2) ++view->uses;
    if (view->form) {
      std::shared_ptr<Form> form = view->form;
      if (form->stream != &stream) {
        if (!form->is_ready.load(std::memory_order_relaxed)) {
          if (query_event(*form->ready))
            form->is_ready.store(true, std::memory_order_relaxed);
          else
            block_stream(stream, *form->ready);
        }
        record_stream(form->memory, as_torch(stream));
      }
      counts.reused.fetch_add(1, std::memory_order_relaxed);
      return form;
    }
    if (view->uses < view->after) return nullptr;
    bytes = view->bytes;
  }
  std::shared_ptr<Form> made = make(t, layout, bytes, stream, storage);
  std::lock_guard lock(mutex_);
  View* view = find(t, layout, storage);
  if (!made) {
    if (view) view->uses = 0, view->after = std::min(2 * view->after, kMostUses);
    return nullptr;
  }
  made->version = version;
  counts.packed.fetch_add(1);
  // What was written to in the meantime is not kept: whoever wrote dropped the forms before this one was there.
  if (view && !view->form && storage.watched.load() && storage.writes.load(std::memory_order_acquire) == version)
    view->form = made;
  return made;
}

std::shared_ptr<Form> Forms::kept(const DLTensor& t, uint32_t layout, DeviceStorage& storage) {
  std::lock_guard lock(mutex_);
  View* view = find(t, layout, storage);
  return view ? view->form : nullptr;
}

std::shared_ptr<Form> packed_form(const DLTensor& t, c10::StorageImpl& s, uint32_t layout, StreamState& stream) {
  if (!g_on.load(std::memory_order_relaxed) || !layouts_offered() || layout >= table()->layouts) return nullptr;
  if (graph_of(stream) || std::find(t.shape, t.shape + t.ndim, 0) != t.shape + t.ndim || !is_ours(s)) return nullptr;
  auto& storage = static_cast<DeviceStorage&>(s);
  if (C10_UNLIKELY(!storage.watched.load(std::memory_order_acquire))) {
    if (storage.handed_out.exchange(false)) g_counts[stream.device].handed_out.fetch_add(1);
    return nullptr;
  }
  Forms* forms = storage.forms.load(std::memory_order_acquire);
  if (!forms) {
    auto fresh = std::make_unique<Forms>(stream.device);
    if (storage.forms.compare_exchange_strong(forms, fresh.get())) forms = fresh.release();
  }
  return forms->use(t, layout, stream, storage);
}

StoragePtr Reread::alive() const {
  StoragePtr s = storage.lock();
  return s && s->data() == start ? s : nullptr;
}

namespace {
// Whether `form` has what the tensor has, and all later writes will be noticed.
bool is_good(const Form& form, const DeviceStorage& storage) {
  return g_on.load(std::memory_order_relaxed) && storage.watched.load(std::memory_order_acquire) &&
         storage.writes.load(std::memory_order_acquire) == form.version;
}
}  // namespace

Asked Asked::now(const Reread& of, uint32_t layout) {
  const StoragePtr s = of.alive();
  if (!s || !is_ours(*s) || !layouts_offered() || layout >= table()->layouts) return {&of, layout, nullptr};
  auto& storage = static_cast<DeviceStorage&>(*s);
  Forms* forms = storage.forms.load(std::memory_order_acquire);
  std::shared_ptr<Form> form = forms ? forms->kept(*of.tensor, layout, storage) : nullptr;
  if (!form || !is_good(*form, storage)) return {&of, layout, nullptr};
  sync_event(*form->ready);
  form->is_ready.store(true, std::memory_order_relaxed);
  return {&of, layout, std::move(form)};
}

bool Asked::changed(StreamState& stream) const {
  const StoragePtr s = of->alive();
  if (!s || !is_ours(*s)) return false;  // what the graph reads is gone: nothing to go by
  if (form && is_good(*form, static_cast<DeviceStorage&>(*s))) return false;
  return packed_form(*of->tensor, *s, layout, stream) != form;
}

uint64_t bytes_of_forms(int device) { return g_counts[device].bytes.load(std::memory_order_relaxed); }

void drop_forms(int device) {
  std::vector<std::shared_ptr<Form>> gone;
  std::lock_guard lock(g_mutex);
  for (Forms* forms : all_forms()) {
    if (device >= 0 && forms->device() != device) continue;
    for (auto& form : forms->drop(g_counts[forms->device()].freed)) gone.push_back(std::move(form));
  }
}

LayoutStats layout_stats(int device) {
  const Counts& c = g_counts[device];
  return {c.forms, c.bytes, c.packed, c.reused, c.written, c.freed, c.handed_out};
}

std::pair<uint64_t, uint64_t> layouts_used() {
  std::pair<uint64_t, uint64_t> sum{0, 0};
  for (const Counts& c : g_counts) sum.first += c.packed, sum.second += c.reused;
  return sum;
}

std::vector<std::string> layout_names() {
  std::vector<std::string> names;
  if (!vendor_loaded() || !layouts_offered()) return names;
  for (uint32_t i = 0; i < table()->layouts; ++i) {
    const char* name = table()->name ? table()->name(i) : nullptr;
    names.push_back(name && *name ? valid_utf8(name) : std::to_string(i));
  }
  return names;
}

bool allow_layouts(const at::Tensor& t) {
#if CAUSEWAY_TORCH_AT_LEAST(2, 13)
  c10::StorageImpl* s = t.has_storage() ? t.storage().unsafeGetStorageImpl() : nullptr;
  if (!s || !is_ours(*s) || !layouts_offered()) return false;
  auto& storage = static_cast<DeviceStorage&>(*s);
  if (storage.watched.load()) return true;
  if (storage.has_materializer() || storage.replayed.load() || !is_block(storage.data_ptr())) return false;
  note_write(storage);
  storage.handed_out.store(false);
  watch(storage);
  return true;
#else
  return false;
#endif
}

}  // namespace causeway

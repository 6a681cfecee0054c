// Tensors in the vendor's own layouts beside the plain ones: extension "layout.v1".
//
// A form is good for as long as nothing wrote to the tensor, and version counters do not tell that: `.data` has one of its
// own, and a pointer that was handed out has none. So it is the storage that is watched, from its birth: torch lets a
// storage have a function that runs before a pointer to write by is given out (made for copy-on-write), and what the core
// itself writes to says so (`materialize`). What the core wrote drops the forms; a storage that somebody else holds a
// pointer of, by data_ptr(), DLPack or another process, has none from then on, as nobody would know of the next write.
//
// A capture makes no forms. Each replay of a vendor's kernel asks anew, so it is given what is good then; a graph of the
// vendor's holds on to the forms that there were when it was made, and is made again once they are out of date. What a
// graph writes to is written at each replay, and nobody says so: such storages have no forms.
//
// Not packed: anything before torch 2.13, whose storages cannot be watched.
#pragma once

#include <atomic>
#include <memory>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include <ATen/core/Tensor.h>
#include <c10/util/SmallVector.h>

#include "causeway/layout.h"
#include "runtime/storage.h"
#include "runtime/stream.h"

namespace causeway {

// The memory of one form, and since when it is ready.
struct Form;

// Of one storage: which of its views were asked for in which layout. Made at the first question.
class Forms {
 public:
  explicit Forms(int device);
  ~Forms();
  Forms(const Forms&) = delete;

  // The form of `t`, a view of the storage, for work on `stream`: used once more, or made if it pays by now.
  std::shared_ptr<Form> use(const DLTensor& t, uint32_t layout, StreamState& stream, DeviceStorage& storage);
  // The one that is there, or nullptr.
  std::shared_ptr<Form> kept(const DLTensor& t, uint32_t layout, DeviceStorage& storage);
  // Counts those that went, and leaves it to the caller to free them, with no lock held.
  std::vector<std::shared_ptr<Form>> drop(std::atomic<uint64_t>& count);
  int device() const { return device_; }

 private:
  struct View {
    c10::SmallVector<int64_t, 8> key;
    uint64_t bytes = 0;  // 0: the layout holds no such tensor
    uint32_t after = 0;  // converted at this use
    uint32_t uses = 0;  // of the unchanged tensor
    std::shared_ptr<Form> form;
  };
  View* find(const DLTensor& t, uint32_t layout, const DeviceStorage& storage);
  std::shared_ptr<Form> make(const DLTensor& t, uint32_t layout, uint64_t bytes, StreamState& stream,
                             const DeviceStorage& storage);

  const int device_;
  std::mutex mutex_;
  std::vector<View> views_;
};

// Whether the vendor has layouts and torch can watch storages. `watches_storages` answers from the first device on.
bool layouts_offered();
extern std::atomic<bool> g_watches_storages;
inline bool watches_storages() { return g_watches_storages.load(std::memory_order_relaxed); }
constexpr size_t kLeastWatched = 4096;  // bytes of a storage: smaller tensors are converted in no time

void set_layouts(bool on);  // off: what there is goes, and nothing is converted

// Watch a storage that was just made of `bytes` of the core's own memory.
void watch(DeviceStorage& storage);
// The core is about to write to a watched storage, or has just put the write on its stream. Both are said where another
// thread may convert in between.
void note_write(DeviceStorage& storage);
// Somebody else may write to it from now on.
void give_up(DeviceStorage& storage);
// Each replay of a graph writes to it, and nobody says so.
void replays_write(DeviceStorage& storage);

// For a kernel that was given `t`, in `storage`: its form, to be kept until the kernel is on the stream; nullptr: none now.
std::shared_ptr<Form> packed_form(const DLTensor& t, c10::StorageImpl& storage, uint32_t layout, StreamState& stream);
const void* memory_of(const Form& form);

// A tensor that each replay reads, which it does not keep.
struct Reread {
  const DLTensor* tensor;
  c10::weak_intrusive_ptr<c10::StorageImpl> storage;
  const void* start;  // of the storage, at the capture
  Reread(const DLTensor* tensor, const c10::Storage& storage)
      : tensor(tensor), storage(storage.getWeakStorageImpl()), start(storage.unsafeGetStorageImpl()->data()) {}
  StoragePtr alive() const;  // nullptr: freed, or somewhere else by now
};

// What a vendor's graph was given of a tensor, and whether that is as good as ever.
struct Asked {
  const Reread* of;
  uint32_t layout;
  std::shared_ptr<Form> form;  // nullptr: none
  // The form that is there now, which the host waits for: nothing is put on any stream.
  static Asked now(const Reread& of, uint32_t layout);
  // Whether a replay on `stream` would be given another form; one that pays by now is made.
  bool changed(StreamState& stream) const;
};

// All forms of a device, -1: of all devices.
void drop_forms(int device);
uint64_t bytes_of_forms(int device);

struct LayoutStats {
  uint64_t forms, bytes, packed, reused, written, freed, handed_out;
};
LayoutStats layout_stats(int device);
std::pair<uint64_t, uint64_t> layouts_used();  // made, and used again, on all devices
std::vector<std::string> layout_names();

// The user knows that pointers which were handed out are not written by: watch the storage again. False: it cannot be, as
// it is no memory of the core's, or a graph writes to it.
bool allow_layouts(const at::Tensor& t);

}  // namespace causeway

// One operator on the host rung: its device tensors, the CPU tensors that stand for them, and the way back.
// See host.cpp.
#pragma once

#include <c10/util/SmallVector.h>

#include "ladder/call.h"
#include "runtime/storage.h"

namespace causeway {

// A device tensor and the CPU tensor that stands for it.
struct Stand {
  at::Tensor original;
  at::Tensor alias;
  c10::StorageImpl* host_storage = nullptr;
  uint16_t arg = 0;
  uint8_t parts = 0;  // a sparse or nested tensor: so many stands before this one are its parts
  bool write = false;
  bool pooled = false;
  bool same = false;  // an earlier stand is of the same tensor and has the alias
};
constexpr uint16_t kPart = 0xffff;  // `arg` of a part

// Bytes of a device storage, staged on the host.
struct Staged {
  c10::StorageImpl* device_storage;
  StoragePtr host;
  void* host_data = nullptr;
  size_t begin = 0, end = 0;  // bytes of the storage
  bool placed = false;        // they are of a tensor
  bool write = false;
};

// The host rung is no part of a graph: what it computes would not be computed again.
void refuse_host_rung(const Operator& op, const StreamState& stream);

class HostCall {
 public:
  // `kinds`: functionality keys (sparse, nested, quantized) that led the call here.
  HostCall(Operator& op, DeviceState& device, StreamState& stream, c10::DispatchKeySet kinds = {})
      : op_(op), device_(device), stream_(stream), kinds_(kinds) {}
  ~HostCall() { drop(); }

  // The whole call, with arguments and results on `stack`.
  void run(Stack& stack, Entry& entry);

  // The same by parts, for callers that hold arguments unboxed, where the host can address the memory.
  const at::Tensor& stand_in(const at::Tensor& t, bool write);
  void update_written() {
    for (Stand& s : stands_)
      if (s.write) update(s);
  }
  at::Tensor result(at::Tensor t);

 private:
  bool run_dry(Stack& stack);  // dry.cpp: the results' shapes alone
  void note_contents(const Stack& stack);
  void collect(Stack& stack);
  void collect(const at::Tensor& t, size_t arg, bool write);
  void collect_parts(const at::Tensor& t, size_t arg, bool write);
  void stage();
  void substitute(Stack& stack);
  Stand* earlier(const at::Tensor& t);
  at::Tensor alias_of(Stand& s);
  at::Tensor assembled(const Stand& s);
  void call(Stack& stack);
  void call_widening(Stack& stack, c10::DispatchKeySet keys);
  void write_back();
  void update(Stand& s);
  void update_parts(Stand& s);
  void results(Stack& stack);
  at::Tensor view(const Stand& s, c10::TensorImpl* host);
  at::Tensor adopt(at::Tensor t);
  void copy_to_device(void* to, const void* from, size_t bytes);
  size_t staged_offset(const c10::StorageImpl* host) const;
  void drop();

  Operator& op_;
  DeviceState& device_;
  StreamState& stream_;
  c10::DispatchKeySet kinds_;
  c10::ScalarType dtype_ = c10::ScalarType::Undefined;
  c10::SmallVector<Stand, 6> stands_;
  c10::SmallVector<Staged, 1> staged_;
  c10::SmallVector<std::pair<c10::StorageImpl*, StoragePtr>, 1> adopted_;
  bool lists_ = false;
  bool writes_host_ = false;  // an argument in host memory is written: its memory must stay the host's
  bool unknown_ = false;      // what is read was never computed; see dry.cpp
  bool to_host_ = false;      // the caller asked for results in host memory
};

}  // namespace causeway

// Devices, contexts, streams and events.
#pragma once

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <deque>
#include <map>
#include <memory>
#include <mutex>
#include <thread>
#include <vector>

#include "core.hpp"

namespace stand_in {

constexpr int kMaxDevices = 16;

struct Task {
  std::string name;
  std::function<Code()> work;
  uint64_t number = 0;  // of a kernel that somebody watches
};

struct Graph;
// How much of the work of each stream in a capture another one has waited for.
using Seen = std::map<Stream*, long>;

struct Device;

struct Context {
  Device* device;
  Stream* stream;  // The default stream: what a NULL stream means.
};

struct Stream {
  Context* context;
  int id;
  uint32_t priority = 0, flags = 0;
  std::mutex lock;
  std::condition_variable changed;
  std::deque<Task> tasks;
  bool busy = false, stop = false;
  std::atomic<bool> aborting{false};  // What runs is to end.
  bool stop_at_failure = false;
  std::thread thread;
  // In a capture: its graph, and what this stream has seen of the others.
  Graph* graph = nullptr;
  Seen seen;
};

// A recording: "each record captures anew", so who waits keeps the one that it has met.
struct Record {
  std::mutex lock;
  std::condition_variable changed;
  bool done = false;
  std::chrono::steady_clock::time_point when;
  Graph* graph = nullptr;
  Seen seen;
};

struct Event {
  uint32_t flags;
  std::mutex lock;
  std::shared_ptr<Record> record;
};

struct Graph {
  Stream* origin = nullptr;
  std::vector<Task> tasks;
  bool invalid = false;
  std::string why;
  uint32_t id = 0;
};

struct Device {
  int index = 0;
  Context primary{};
  bool active = false;
  std::mutex lock;
  std::vector<Stream*> streams;
  // A failure on the device stays until the device is reset.
  std::atomic<Code> failure{kGood};
  std::string message;
  bool peers[kMaxDevices] = {};
  std::map<int, int64_t> parameters;
};

// The name that a program gets; it decides which operators torch_npu calls, and whether kernels have threads.
const char* chip();
int device_count();
Device* device(int index);
Context* context();
// NULL is the current context's default stream. nullptr after a refusal, which set the message.
Stream* find_stream(void* handle, Code* code);
Event* find_event(void* handle);
// Waits until all is done; the device's failure if it has one. timeout_ms < 0: for ever.
Code drain(Stream* stream, int timeout_ms);
Code drain_device(Device* device, int timeout_ms);
Code put(Stream* stream, Task task);
Code capture_forbids(const char* who, Context* context);

}  // namespace stand_in

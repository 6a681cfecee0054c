// Graphs: what streams are given is noted while a capture lasts, and given again at each replay.
//
// A captured stream runs nothing. What would have gone to the vendor becomes a step: a call of its kernel with all of its
// arguments, a launch, a copy, a fill. Events between captured streams become edges, and at a replay each further stream
// has one of its own. So any vendor has graphs; what they save is all that comes before the vendor's table. A vendor with
// graphs of its own (graph.v1) is given the same steps once, and then launches them as one.
//
// As with CUDA, memory of a capture comes from a pool that is kept for it, so that a replay finds it as it was; what was
// allocated before is the program's to keep. Random numbers go on: a capture notes how many it draws, and each replay
// takes as many from the generator.
#pragma once

#include <atomic>
#include <functional>
#include <memory>
#include <mutex>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include <ATen/core/Generator.h>
#include <c10/core/Allocator.h>

#include "causeway/abi.h"
#include "runtime/packed.h"
#include "runtime/profile.h"
#include "runtime/stream.h"

namespace causeway {

class Generator;

// A step as it is written to a file. Addresses are of this process.
struct StepView {
  enum Kind : uint8_t { None, Launch, Copy, Fill };
  struct Argument {
    const void* address = nullptr;
    std::string value;  // empty: `address` is passed
  };
  Kind kind = None;  // None: nothing that a file holds
  cw_function function = nullptr;
  uint32_t grid[3]{}, group[3]{};
  std::vector<Argument> arguments;  // of a copy and a fill: the target, and the source
  uint64_t bytes = 0;
  int32_t byte = 0;  // of a fill
};

// What a graph of the vendor's keeps of the calls that it is made of: workspace, and what was asked of packed.h.
struct Noted {
  std::vector<c10::DataPtr> memory;
  std::vector<Asked> forms;
};

// Something that a stream is given at each replay.
class Step {
 public:
  Step(Work work, std::string name, uint64_t bytes = 0) : work(work), name(std::move(name)), bytes(bytes) {}
  virtual ~Step() = default;
  Step(const Step&) = delete;
  virtual cw_status run(StreamState& stream) = 0;
  // Run it while the vendor notes it.
  virtual cw_status run_noted(StreamState& stream, Noted& noted) { return run(stream); }
  // Where its own arguments have 64 bits that equal `token`: calls `found` with the place of each.
  virtual void find(uint64_t token, const std::function<void(uint64_t*)>& found) {}
  virtual std::string text() const { return name; }
  virtual bool alone() const { return false; }  // outside of the vendor's graphs
  virtual StepView view() const { return {}; }
  // The steps that it is made of: a trace has these, one by one.
  virtual const std::vector<std::unique_ptr<Step>>* parts() const { return nullptr; }

  const Work work;
  const std::string name;
  const uint64_t bytes;
  int lane = 0;  // which of the graph's streams
};

class Graph {
 public:
  explicit Graph(bool keep) : keep_(keep) {}
  ~Graph();
  Graph(const Graph&) = delete;

  // Which allocations of a capture, counted from 0, come from another pool: for a second capture of the same work, when
  // it is known which memory outlives it.
  struct Apart {
    std::vector<size_t> allocations;  // in order
    c10::MempoolId_t pool;
  };
  // On the current stream of the current device. `pool`: {0, 0} for one of its own.
  void begin(c10::MempoolId_t pool, Apart apart = {});
  // Memory that the capture was given, in order, each before which step.
  struct Allocation {
    void* start;
    size_t bytes, step;
  };
  const std::vector<Allocation>& allocations() const { return allocations_; }
  std::vector<std::pair<std::string, StepView>> view() const;
  size_t random() const { return patches_.size(); }  // places that differ from replay to replay
  // Throws where the capture failed, with why it did; the stream is as it was before in any case.
  void end();
  // Drop a capture in progress, or do nothing.
  void abort() noexcept;
  void instantiate(bool by_program = false);
  void replay();
  // Step number `i` alone, on the current stream, and wait: before the graph is instantiated, and of one stream only.
  void run_step(size_t i);
  void reset();
  c10::MempoolId_t pool() const { return pool_; }
  // For the allocator: the pool of the next allocation, and what it gave.
  c10::MempoolId_t next_pool() const;
  void allocated(void* start, size_t bytes) { allocations_.push_back({start, bytes, steps_.size()}); }
  void dump(const std::string& path) const;
  void keep_dump(bool on) { debug_ = on; }

  size_t size() const { return size_; }  // captured steps
  size_t size_of_vendor() const { return of_vendor_; }  // those that the vendor launches as one
  size_t size_of_merged() const;  // those that one kernel runs with others

  // -- while it is captured

  // What the graph cannot hold ends the capture: `what` it is, and what to do instead.
  [[noreturn]] void refuse(const std::string& what, const std::string& instead);
  void add(StreamState& stream, std::unique_ptr<Step> step);
  // A step of the operator that a `Recording` of this thread is for.
  void add(cw_stream stream, std::unique_ptr<Step> step);
  void record(Event& event, StreamState& stream);
  void wait(StreamState& stream, const Event& event);
  void use_external(StreamState& stream, std::shared_ptr<ExternalEvent> event, bool wait);
  // `count` numbers of the generator, as tokens that steps' arguments are searched for.
  cw_philox draw(Generator& generator, uint64_t count);
  void give_back(const cw_philox& tokens);
  size_t noted();  // steps so far
  // Where the generator is within the capture, as a state of it; and back to such a state (false: it is none), as
  // checkpointing does, so that a recomputed part draws what the first one did.
  cw_philox state_of(const Generator& generator);
  bool set_state(const Generator& generator, const cw_philox& state);
  // The operator `name` is noted. What it drew must have been found.
  void end_operator(const char* name, size_t first_step);
  // To be done once no replay can be under way any more: what holds memory of the host back.
  void hold(std::function<void()> release);
  // To be done when the capture is over.
  void at_end(std::function<void()> f);
  void tells() { tells_ = true; }

 private:
  enum class State : uint8_t { Empty, Capturing, Captured, Ready };
  struct Drawn {
    at::Generator generator;
    uint64_t mark;  // in the place of its seed, in states that the capture gives out
    uint64_t count = 0, most = 0;
  };
  struct Draw {
    cw_philox tokens;
    size_t generator;  // of drawn_
    uint64_t after, count;  // the numbers that were drawn before, and these
    size_t used = 0;
  };
  struct Patch {
    const Step* step;
    uint64_t* where;
    size_t generator;
    bool seed;
    uint64_t after;
  };

  // What each captured stream has waited for: how many steps of each of them.
  using Clock = std::vector<uint64_t>;
  struct Mark {
    Clock clock;
    int lane;
  };

  void join(StreamState& stream);
  Drawn& drawn_from(const Generator& generator);
  int lane_of(const StreamState& stream) const;
  void put(int lane, std::unique_ptr<Step> step);
  void close() noexcept;
  void drop() noexcept;
  void hand_to_vendor(const std::set<const Step*>& patched);

  const bool keep_;
  bool debug_ = false;
  State state_ = State::Empty;
  uint64_t id_ = 0;
  int device_ = 0;
  c10::MempoolId_t pool_{0, 0};
  Apart apart_;
  std::vector<Allocation> allocations_;  // guarded by the allocator's lock
  std::mutex mutex_;  // of what a capture notes: autograd's threads add steps too
  std::vector<StreamState*> captured_, replaying_;  // by lane; a replay's own stream is its first lane
  std::vector<Clock> clocks_;
  std::vector<Mark> marks_;  // of events that were recorded
  std::vector<cw_event> events_;  // of marks that another stream waits for
  std::vector<std::unique_ptr<Step>> steps_, noted_;  // to run, and within those that the vendor runs
  size_t size_ = 0, of_vendor_ = 0;
  std::vector<std::string> text_;
  std::vector<Draw> draws_;  // of the operator that is being noted
  std::vector<Drawn> drawn_;
  std::vector<Patch> patches_;
  std::vector<std::function<void()>> held_, at_end_;
  std::string failure_;
  bool tells_ = false;
  // The stream of the last replay of a graph with this pool, whose memory is one: replays are one after the other.
  std::shared_ptr<std::atomic<StreamState*>> last_;
};

// The capture that `stream` is part of, or nullptr.
inline Graph* graph_of(const StreamState& stream) { return stream.graph.load(std::memory_order_relaxed); }

// While one lives, launches and fills of this thread's kernel become steps of the graph.
class Recording {
 public:
  // `name` of the operator or kernel, `owner` of what must last as long as the steps.
  Recording(Graph* graph, const char* name, std::shared_ptr<const void> owner = nullptr);
  ~Recording();
  Recording(const Recording&) = delete;

  static Graph* graph();  // nullptr: none is recorded on this thread

 private:
  Graph* old_;
};

// A call of the vendor's that its own graphs do not hold. `call` keeps what it points to.
std::unique_ptr<Step> call_step(std::string name, std::function<cw_status(cw_stream)> call);
std::unique_ptr<Step> copy_step(std::string name, void* to, int32_t to_device, const void* from, int32_t from_device,
                                uint64_t bytes);

// What a table's entries do where a graph is recorded: `launch` of code.v1, and mem_set.
cw_code_v1 recording_table(const cw_code_v1& code);
void record_fills(cw_backend& table);

// Called once, before the first capture.
void on_first_capture(std::function<void()> f);

// A pool's name that no other has; graph_pool_handle().
c10::MempoolId_t new_pool_id(bool of_user);

// block_stream where the stream or the event is of a capture.
void wait_in_capture(StreamState& stream, const Event& event);
// Events that a capture recorded are only waited for, by streams: `what` else was asked.
void refuse_captured(const Event& event, const char* what);
// `what` waits for a whole device, of which this thread's current stream is captured.
void refuse_in_capture(int device, const char* what);

}  // namespace causeway

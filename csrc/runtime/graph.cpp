#include "runtime/graph.h"

#include <algorithm>
#include <cstring>
#include <fstream>
#include <map>
#include <set>

#include "runtime/allocator.h"
#include "runtime/check.h"
#include "runtime/device.h"
#include "runtime/generator.h"
#include "runtime/kernel_error.h"
#include "runtime/merged.h"
#include "runtime/thrown.h"
#include "runtime/vendor.h"

namespace causeway {

namespace {

thread_local Graph* t_graph = nullptr;
thread_local const char* t_name = "";  // of the operator or kernel
thread_local std::shared_ptr<const void> t_owner;

std::mutex g_captures_mutex;
std::map<uint64_t, Graph*>& captures() {
  static auto& all = *new std::map<uint64_t, Graph*>;
  return all;
}

Graph* capture_with(uint64_t id) {
  std::lock_guard lock(g_captures_mutex);
  const auto it = captures().find(id);
  return it == captures().end() ? nullptr : it->second;
}

std::shared_ptr<std::atomic<StreamState*>> last_of_pool(c10::MempoolId_t pool) {
  static std::mutex mutex;
  static auto& all = *new std::map<c10::MempoolId_t, std::weak_ptr<std::atomic<StreamState*>>>;
  std::lock_guard lock(mutex);
  auto last = all[pool].lock();
  if (!last) all[pool] = last = std::make_shared<std::atomic<StreamState*>>(nullptr);
  std::erase_if(all, [](const auto& entry) { return entry.second.expired(); });
  return last;
}

// A name that a trace may keep.
const char* interned(const std::string& name) {
  static std::mutex mutex;
  static auto& names = *new std::set<std::string>;
  std::lock_guard lock(mutex);
  return names.insert(name).first->c_str();
}

// Words that no program has by chance, so that what a kernel made of its generator is found among its arguments.
uint64_t new_token() {
  static std::atomic<uint64_t> last{0};
  uint64_t x = (last.fetch_add(1) + 1) * 0x9E3779B97F4A7C15ull + 0xD1B54A32D192ED03ull;
  x = (x ^ (x >> 30)) * 0xBF58476D1CE4E5B9ull;
  x = (x ^ (x >> 27)) * 0x94D049BB133111EBull;
  return x ^ (x >> 31);
}

// A launch of code.v1. All values are in one piece, in which places of 64 bits are aligned.
class LaunchStep final : public Step {
 public:
  using Launch = decltype(cw_code_v1::launch);
  LaunchStep(std::string name, Launch launch, cw_function function, const uint32_t grid[3], const uint32_t group[3],
             const cw_code_arg* args, uint32_t n, std::shared_ptr<const void> owner)
      : Step(Work::Kernel, std::move(name)),
        launch_(launch),
        function_(function),
        args_(args, args + n),
        owner_(std::move(owner)) {
    std::copy(grid, grid + 3, grid_);
    std::copy(group, group + 3, group_);
    size_t words = 0;
    for (const cw_code_arg& a : args_) words += (a.bytes + 7) / 8;
    values_.resize(words);
    uint64_t* at = values_.data();
    for (cw_code_arg& a : args_) {
      if (!a.bytes) continue;
      std::memcpy(at, a.v.value, a.bytes);
      a.v.value = at;
      at += (a.bytes + 7) / 8;
    }
  }
  cw_status run(StreamState& stream) override {
    return launch_(function_, grid_, group_, args_.data(), static_cast<uint32_t>(args_.size()), stream.handle);
  }
  void find(uint64_t token, const std::function<void(uint64_t*)>& found) override {
    for (uint64_t& word : values_)
      if (word == token) found(&word);
  }
  StepView view() const override {
    StepView v;
    v.kind = StepView::Launch;
    v.function = function_;
    std::copy(grid_, grid_ + 3, v.grid);
    std::copy(group_, group_ + 3, v.group);
    for (const cw_code_arg& a : args_)
      v.arguments.push_back(a.bytes ? StepView::Argument{nullptr, {static_cast<const char*>(a.v.value), a.bytes}}
                                    : StepView::Argument{a.v.address, {}});
    return v;
  }
  std::string text() const override {
    return c10::str(name, " on ", grid_[0], " x ", grid_[1], " x ", grid_[2], " groups of ",
                    group_[0] * group_[1] * group_[2]);
  }

 private:
  Launch launch_;
  cw_function function_;
  uint32_t grid_[3], group_[3];
  std::vector<cw_code_arg> args_;
  std::vector<uint64_t> values_;
  std::shared_ptr<const void> owner_;
};

class CopyStep final : public Step {
 public:
  CopyStep(std::string name, void* to, int32_t to_device, const void* from, int32_t from_device, uint64_t bytes)
      : Step(Work::Copy, std::move(name), bytes),
        to_(to),
        from_(from),
        to_device_(to_device),
        from_device_(from_device) {}
  cw_status run(StreamState& stream) override {
    return api().mem_copy(to_, to_device_, from_, from_device_, bytes, stream.handle);
  }
  std::string text() const override { return c10::str(name, " of ", bytes, " bytes"); }
  StepView view() const override {
    StepView v;
    if (to_device_ == CW_HOST || to_device_ != from_device_) return v;
    v.kind = StepView::Copy;
    v.arguments = {{to_, {}}, {from_, {}}};
    v.bytes = bytes;
    return v;
  }

 private:
  void* to_;
  const void* from_;
  int32_t to_device_, from_device_;
};

class FillStep final : public Step {
 public:
  FillStep(std::string name, int32_t device, void* to, int32_t byte, uint64_t bytes)
      : Step(Work::Kernel, std::move(name), bytes), to_(to), device_(device), byte_(byte) {}
  cw_status run(StreamState& stream) override { return api().mem_set(device_, to_, byte_, bytes, stream.handle); }
  std::string text() const override { return c10::str(name, ": ", bytes, " bytes of ", byte_); }
  StepView view() const override {
    StepView v;
    v.kind = StepView::Fill;
    v.arguments = {{to_, {}}};
    v.bytes = bytes;
    v.byte = byte_;
    return v;
  }

 private:
  void* to_;
  int32_t device_, byte_;
};

// An event of the replay's own, recorded on one of its streams or waited for by another.
class EdgeStep final : public Step {
 public:
  EdgeStep(bool wait, size_t mark, const std::vector<cw_event>& events, int32_t device)
      : Step(Work::Call, wait ? "wait" : "record"), wait(wait), mark(mark), events_(events), device_(device) {}
  cw_status run(StreamState& stream) override {
    return wait ? api().stream_wait(device_, stream.handle, events_[mark])
                : api().event_record(device_, events_[mark], stream.handle);
  }
  std::string text() const override { return c10::str(name, " of event ", mark); }
  const bool wait;
  const size_t mark;

 private:
  const std::vector<cw_event>& events_;
  int32_t device_;
};

// An event of the program's, which is recorded anew at each replay, or waited for as it then is.
class ExternalStep final : public Step {
 public:
  ExternalStep(bool wait, std::shared_ptr<ExternalEvent> event)
      : Step(Work::Call, wait ? "wait" : "record"), wait_(wait), event_(std::move(event)) {}
  cw_status run(StreamState& stream) override {
    const int32_t id = device(event_->device).vendor_id;
    if (wait_) return event_->recorded ? api().stream_wait(id, stream.handle, event_->handle) : CW_OK;
    const cw_status status = api().event_record(id, event_->handle, stream.handle);
    event_->recorded = true;
    return status;
  }
  std::string text() const override { return name + " of an external event"; }

 private:
  bool wait_;
  std::shared_ptr<ExternalEvent> event_;
};

class CallStep final : public Step {
 public:
  CallStep(std::string name, std::function<cw_status(cw_stream)> call)
      : Step(Work::Kernel, std::move(name)), call_(std::move(call)) {}
  cw_status run(StreamState& stream) override { return call_(stream.handle); }
  bool alone() const override { return true; }

 private:
  std::function<cw_status(cw_stream)> call_;
};

const cw_graph_v1* graphs_of_vendor() {
  static const auto* table = static_cast<const cw_graph_v1*>(vendor_extension("graph.v1"));
  return table && table->begin && table->end && table->launch && table->destroy ? table : nullptr;
}

// Steps that the vendor launches as one.
class WholeStep final : public Step {
 public:
  WholeStep(std::vector<Step*> steps, StreamState& captured)
      : Step(Work::Kernel, c10::str("graph of ", steps.size(), " steps")),
        steps_(std::move(steps)),
        captured_(captured) {}
  ~WholeStep() override {
    if (!past_use()) destroy();
  }

  // False where the vendor declines. So too where it fails, for the steps are there to run one by one: that costs speed
  // alone, and is told once.
  bool make(StreamState& stream) {
    const int32_t id = causeway::device(stream.device).vendor_id;
    const auto declined = [&](cw_status status, const std::string& what) {
      noted_ = {};
      if (status == CW_DEVICE_LOST) fail_status(status, what.c_str(), stream.device, " in a graph of the vendor's");
      if (status != CW_UNSUPPORTED) {
        TORCH_WARN_ONCE(vendor_name(), " could not make a graph of its own (", what, " answered ", status_name(status),
                        ": ", last_words(), "), so its steps are given one by one, which is slower");
      }
      return false;
    };
    cw_status status = graphs_of_vendor()->begin(id, stream.handle);
    if (status != CW_OK) return declined(status, "graph.begin");
    std::string failed, words;
    for (size_t i = 0; i < steps_.size() && status == CW_OK; ++i)
      if ((status = steps_[i]->run_noted(stream, noted_)) != CW_OK) failed = steps_[i]->name;
    if (status != CW_OK) words = last_words();
    const cw_status ended = graphs_of_vendor()->end(id, stream.handle, &graph_);
    if (ended != CW_OK) graph_ = nullptr;
    if (status == CW_OK && ended != CW_OK) return declined(ended, "graph.end");
    if (status == CW_OK) return true;
    destroy();
    return declined(status, failed + " (" + words + ")");
  }

  cw_status run(StreamState& stream) override {
    if (C10_UNLIKELY(!noted_.forms.empty()) && forms_changed(stream)) {
      stream.give();  // launches of the one that goes, on whichever stream, come before this
      stream.wait();
      destroy();
      noted_ = {};
      make(stream.id == 0 ? captured_ : stream);  // what all threads share cannot be noted
    }
    if (C10_LIKELY(graph_ != nullptr)) return graphs_of_vendor()->launch(graph_, stream.handle);
    for (Step* step : steps_)
      if (const cw_status status = step->run(stream); status != CW_OK) return status;
    return CW_OK;
  }

 private:
  bool forms_changed(StreamState& stream) const {
    bool changed = false;
    for (const Asked& asked : noted_.forms) changed |= asked.changed(stream);  // each counts a use
    return changed;
  }
  void destroy() noexcept {
    if (!graph_) return;
    if (const cw_status status = graphs_of_vendor()->destroy(std::exchange(graph_, nullptr)); status != CW_OK)
      TORCH_WARN("while a graph was destroyed: ", last_words());
  }

  const std::vector<Step*> steps_;
  StreamState& captured_;
  cw_graph graph_ = nullptr;
  Noted noted_;
};
constexpr size_t kWorthOne = 3;  // steps

// What `stream` is given from now on comes after what `other` was given.
void come_after(StreamState& stream, const StreamState& other) {
  if (!api().event_create || !api().stream_wait) return;  // then there is one stream
  const int32_t id = device(stream.device).vendor_id;
  cw_event event = nullptr;
  check(api().event_create(id, 0, &event), "event_create", stream.device);
  cw_status status = api().event_record(id, event, other.handle);
  if (status == CW_OK) status = api().stream_wait(id, stream.handle, event);
  (void)api().event_destroy(id, event);
  check(status, "stream_wait", stream.device);
}

decltype(cw_code_v1::launch) g_launch = nullptr;
decltype(cw_backend::mem_set) g_set = nullptr;

cw_status recorded_launch(cw_function function, const uint32_t grid[3], const uint32_t group[3],
                          const cw_code_arg* args, uint32_t n, cw_stream stream) {
  if (C10_LIKELY(!t_graph)) return g_launch(function, grid, group, args, n, stream);
  t_graph->add(stream, std::make_unique<LaunchStep>(t_name, g_launch, function, grid, group, args, n, t_owner));
  return CW_OK;
}

cw_status recorded_set(int32_t device, void* to, int32_t byte, uint64_t bytes, cw_stream stream) {
  if (C10_LIKELY(!t_graph)) return g_set(device, to, byte, bytes, stream);
  t_graph->add(stream, std::make_unique<FillStep>("Memset", device, to, byte, bytes));
  return CW_OK;
}

}  // namespace

cw_code_v1 recording_table(const cw_code_v1& code) {
  cw_code_v1 table = code;
  if (!code.launch || code.launch == recorded_launch) return table;
  g_launch = code.launch;
  table.launch = recorded_launch;
  return table;
}

void record_fills(cw_backend& table) {
  if (!table.mem_set || table.mem_set == recorded_set) return;
  g_set = table.mem_set;
  table.mem_set = recorded_set;
}

std::unique_ptr<Step> call_step(std::string name, std::function<cw_status(cw_stream)> call) {
  return std::make_unique<CallStep>(std::move(name), std::move(call));
}

std::unique_ptr<Step> copy_step(std::string name, void* to, int32_t to_device, const void* from, int32_t from_device,
                                uint64_t bytes) {
  return std::make_unique<CopyStep>(std::move(name), to, to_device, from, from_device, bytes);
}

c10::MempoolId_t new_pool_id(bool of_user) {
  static std::atomic<c10::CaptureId_t> next{0};
  const c10::CaptureId_t id = next.fetch_add(1) + 1;
  return of_user ? c10::MempoolId_t{0, id} : c10::MempoolId_t{id, 0};
}

Recording::Recording(Graph* graph, const char* name, std::shared_ptr<const void> owner) : old_(t_graph) {
  t_graph = graph;
  if (C10_LIKELY(!graph)) return;
  t_name = name;
  t_owner = std::move(owner);
}
Recording::~Recording() {
  if (C10_UNLIKELY(t_graph != nullptr)) t_owner = nullptr;
  t_graph = old_;
}
Graph* Recording::graph() { return t_graph; }

namespace {
std::function<void()>& first_capture() {
  static auto& f = *new std::function<void()>;
  return f;
}
}  // namespace

void on_first_capture(std::function<void()> f) { first_capture() = std::move(f); }

// ---- capture ------------------------------------------------------------------------------------------------------------

Graph::~Graph() {
  if (past_use()) return;
  try {
    reset();
  } catch (...) {
    TORCH_WARN("while a graph was destroyed: ", words_of(std::current_exception()));
  }
}

c10::MempoolId_t Graph::next_pool() const {
  const auto& apart = apart_.allocations;
  return std::binary_search(apart.begin(), apart.end(), allocations_.size()) ? apart_.pool : pool_;
}

void Graph::begin(c10::MempoolId_t pool, Apart apart) {
  if (state_ == State::Capturing) fail(Kind::Causeway, "this graph is being captured already");
  if (state_ != State::Empty) fail(Kind::Causeway, "this graph holds a capture; reset() it before the next one");
  const int index = current_device();
  (void)causeway::device(index);  // opened
  StreamState& stream = current_stream(index);
  if (api().stream_create && stream.id == 0)
    fail(Kind::Causeway, "a graph cannot be captured on the default stream of ", device_name(index),
         ", which all threads share; capture it on another: `with torch.Stream(), graph:`");
  if (graph_of(stream))
    fail(Kind::Causeway, "the current stream of ", device_name(index), " is being captured already");
  if (const auto f = std::exchange(first_capture(), nullptr)) f();
  static std::atomic<uint64_t> last{0};
  id_ = last.fetch_add(1) + 1;
  device_ = index;
  pool_ = pool == c10::MempoolId_t{0, 0} ? new_pool_id(false) : pool;
  retain_pool(device_, pool_);
  apart_ = std::move(apart);
  allocations_.clear();
  if (!apart_.allocations.empty()) retain_pool(device_, apart_.pool);
  last_ = last_of_pool(pool_);
  {
    std::lock_guard lock(g_captures_mutex);
    captures()[id_] = this;
  }
  failure_.clear();
  state_ = State::Capturing;
  join(stream);
}

void Graph::join(StreamState& stream) {
  std::lock_guard lock(mutex_);
  captured_.push_back(&stream);
  clocks_.emplace_back();
  // A stream with nothing to do would not be asked before its results are read, so it always has something.
  stream.give();
  stream.graph.store(this, std::memory_order_relaxed);
}

int Graph::lane_of(const StreamState& stream) const {
  return static_cast<int>(std::find(captured_.begin(), captured_.end(), &stream) - captured_.begin());
}

void Graph::refuse(const std::string& what, const std::string& instead) {
  const std::string words =
      c10::str("a graph is being captured on ", device_name(device_), ", and ", what, " cannot be part of it. ",
               instead, ". The capture has failed; its stream and memory can be used as before once it is ended");
  {
    std::lock_guard lock(mutex_);
    if (failure_.empty()) failure_ = words;
  }
  fail(Kind::Causeway, words);
}

void Graph::put(int lane, std::unique_ptr<Step> step) {
  step->lane = lane;
  for (Draw& d : draws_)
    for (const bool seed : {true, false})
      step->find(seed ? d.tokens.seed : d.tokens.offset, [&](uint64_t* where) {
        patches_.push_back({step.get(), where, d.generator, seed, d.after});
        ++d.used;
      });
  Clock& clock = clocks_[lane];
  if (clock.size() < clocks_.size()) clock.resize(clocks_.size());
  if (step->work != Work::Call) ++clock[lane];
  steps_.push_back(std::move(step));
}

void Graph::add(StreamState& stream, std::unique_ptr<Step> step) {
  std::lock_guard lock(mutex_);
  put(lane_of(stream), std::move(step));
}

void Graph::add(cw_stream handle, std::unique_ptr<Step> step) {
  std::lock_guard lock(mutex_);
  for (size_t lane = 0; lane < captured_.size(); ++lane)
    if (captured_[lane]->handle == handle) return put(static_cast<int>(lane), std::move(step));
  fail(Kind::Causeway, "a kernel put work on a stream that it was not called for, while a graph is captured on ",
       device_name(device_));
}

void Graph::record(Event& event, StreamState& stream) {
  std::lock_guard lock(mutex_);
  const int lane = lane_of(stream);
  event.capture = id_;
  event.mark = marks_.size();
  marks_.push_back({clocks_[lane], lane});
  if (!api().event_create || !api().stream_wait) return;
  put(lane, std::make_unique<EdgeStep>(false, event.mark, events_, causeway::device(device_).vendor_id));
}

void Graph::wait(StreamState& stream, const Event& event) {
  if (!api().event_create || !api().stream_wait) {
    if (graph_of(stream) != this || lane_of(stream) != marks_[event.mark].lane)
      refuse(c10::str("a wait of one stream for another, for which ", vendor_name(), " has no events,"),
             "Capture on one stream");
    return;
  }
  if (stream.device != device_)
    refuse(c10::str("a stream of ", device_name(stream.device)), "A graph is of one device: capture one for each");
  if (!graph_of(stream)) {
    if (api().stream_create && stream.id == 0)
      refuse("the default stream, which waits for captured work,", "Let another stream wait");
    join(stream);
  }
  std::lock_guard lock(mutex_);
  const int lane = lane_of(stream);
  const Clock seen = marks_[event.mark].clock;
  Clock& clock = clocks_[lane];
  clock.resize(std::max(clock.size(), seen.size()));
  for (size_t i = 0; i < seen.size(); ++i) clock[i] = std::max(clock[i], seen[i]);
  if (marks_[event.mark].lane != lane)
    put(lane, std::make_unique<EdgeStep>(true, event.mark, events_, causeway::device(device_).vendor_id));
}

void Graph::use_external(StreamState& stream, std::shared_ptr<ExternalEvent> event, bool wait) {
  if (wait && !api().stream_wait)
    refuse(c10::str("a wait for an external event, for which ", vendor_name(), " has no entry,"),
           "Wait for it before the replay");
  add(stream, std::make_unique<ExternalStep>(wait, std::move(event)));
}

void wait_in_capture(StreamState& stream, const Event& event) {
  Graph* waiting = graph_of(stream);
  if (event.capture) {
    Graph* recorded = capture_with(event.capture);
    if (!recorded)
      fail(Kind::Causeway, "an event of ", device_name(event.device),
           " was recorded in the capture of a graph that is over; record it again, outside of a capture");
    if (waiting && waiting != recorded)
      waiting->refuse("an event of another capture", "Capture both parts in one graph");
    return recorded->wait(stream, event);
  }
  // What came before the capture is no part of it; what is done need not be waited for.
  if (!event.handle || query_event(event)) return;
  waiting->refuse("work from before the capture that a captured stream waits for",
                  "Let the stream wait for it before the capture, or synchronize()");
}

void refuse_captured(const Event& event, const char* what) {
  if (C10_LIKELY(!event.capture)) return;
  const char* instead = "Streams can wait for it; to time a graph, record events around its replay";
  if (Graph* graph = capture_with(event.capture)) graph->refuse(c10::str(what, " an event"), instead);
  fail(Kind::Causeway, what, " an event of ", device_name(event.device),
       " that was recorded in the capture of a graph: it is an edge of the graph. ", instead);
}

void refuse_in_capture(int device, const char* what) {
  if (!device_opened(device)) return;
  if (Graph* graph = graph_of(current_stream(device)); C10_UNLIKELY(graph != nullptr))
    graph->refuse(what, "Wait, and read what the device computed, after a replay");
}

Graph::Drawn& Graph::drawn_from(const Generator& generator) {
  for (Drawn& d : drawn_)
    if (d.generator.get<Generator>()->shares_with(generator)) return d;
  drawn_.push_back({at::Generator(generator.graphsafe_get_state()), new_token()});
  return drawn_.back();
}

cw_philox Graph::draw(Generator& generator, uint64_t count) {
  std::lock_guard lock(mutex_);
  Drawn& from = drawn_from(generator);
  const uint64_t whole = (count + 3) / 4 * 4;
  const cw_philox tokens{new_token(), new_token()};
  draws_.push_back({tokens, static_cast<size_t>(&from - drawn_.data()), from.count, whole});
  from.count += whole;
  from.most = std::max(from.most, from.count);
  return tokens;
}

cw_philox Graph::state_of(const Generator& generator) {
  std::lock_guard lock(mutex_);
  const Drawn& from = drawn_from(generator);
  return {from.mark, from.count};
}

bool Graph::set_state(const Generator& generator, const cw_philox& state) {
  std::lock_guard lock(mutex_);
  Drawn& from = drawn_from(generator);
  if (state.seed != from.mark || state.offset > from.most) return false;
  from.count = state.offset;
  return true;
}

void Graph::give_back(const cw_philox& tokens) {
  std::lock_guard lock(mutex_);
  if (draws_.empty() || draws_.back().tokens.seed != tokens.seed) return;
  drawn_[draws_.back().generator].count = draws_.back().after;  // `most` may stay: a gap does no harm
  draws_.pop_back();
}

void Graph::end_operator(const char* name, size_t first_step) {
  bool lost = false;
  {
    std::lock_guard lock(mutex_);
    // None is found where a kernel has no use for them, as for a dropout of 0.
    for (const Draw& d : draws_) lost |= d.used == 1 && steps_.size() > first_step;
    draws_.clear();
  }
  if (lost)
    refuse(c10::str(name, ", whose kernel computes with its generator's numbers before the device does,"),
           "Draw the random numbers before the capture");
}

size_t Graph::noted() {
  std::lock_guard lock(mutex_);
  return steps_.size();
}

void Graph::hold(std::function<void()> release) {
  std::lock_guard lock(mutex_);
  held_.push_back(std::move(release));
}

void Graph::at_end(std::function<void()> f) {
  std::lock_guard lock(mutex_);
  at_end_.push_back(std::move(f));
}

namespace {
void run_all(const std::vector<std::function<void()>>& all, const char* when) noexcept {
  for (const auto& f : all) {
    try {
      f();
    } catch (...) {
      TORCH_WARN(when, ": ", words_of(std::current_exception()));
    }
  }
}
}  // namespace

// The streams are the program's again.
void Graph::close() noexcept {
  {
    std::lock_guard lock(g_captures_mutex);
    captures().erase(id_);
  }
  for (StreamState* s : captured_) s->graph.store(nullptr, std::memory_order_relaxed);
  state_ = State::Captured;
  run_all(std::exchange(at_end_, {}), "at the end of a capture");
}

void Graph::drop() noexcept {
  steps_.clear();
  noted_.clear();
  size_ = of_vendor_ = 0;
  patches_.clear();
  draws_.clear();
  drawn_.clear();
  captured_.clear();
  replaying_.clear();
  clocks_.clear();
  marks_.clear();
  if (state_ != State::Empty) {  // of a lost device it throws
    held_.push_back([this] { release_pool(device_, pool_); });
    if (!apart_.allocations.empty()) held_.push_back([this] { release_pool(device_, apart_.pool); });
  }
  state_ = State::Empty;
  tells_ = false;
  run_all(std::exchange(held_, {}), "while a graph was reset");
}

void Graph::abort() noexcept {
  if (state_ != State::Capturing) return;
  close();
  drop();
}

void Graph::end() {
  if (state_ != State::Capturing) fail(Kind::Causeway, "no capture of this graph has begun");
  StreamState& origin = *captured_[0];
  if (&current_stream(device_) != &origin && failure_.empty())
    failure_ = "the capture of a graph ends on another stream than it began on";
  if (failure_.empty()) {
    for (size_t lane = 1; lane < captured_.size(); ++lane) {
      const auto at = [&](size_t of) { return clocks_[of].size() > lane ? clocks_[of][lane] : 0; };
      if (at(0) < at(lane)) {
        failure_ = c10::str("a capture ends while stream ", captured_[lane]->id, " of ", device_name(device_),
                            " has work of it that the capturing stream did not wait for; call wait_stream() before "
                            "the end");
        break;
      }
    }
  }
  close();
  if (!failure_.empty()) {
    drop();
    fail(Kind::Causeway, failure_);
  }
  // Memory that the vendor gives in the order of this stream is used by whichever the graph is replayed on.
  if (api().stream_sync)
    check(api().stream_sync(causeway::device(device_).vendor_id, origin.handle), "stream_sync", device_);
  size_ = static_cast<size_t>(
      std::count_if(steps_.begin(), steps_.end(), [](const auto& s) { return s->work != Work::Call; }));
  if (!keep_) instantiate();
}

// ---- replay -------------------------------------------------------------------------------------------------------------

std::vector<std::pair<std::string, StepView>> Graph::view() const {
  std::vector<std::pair<std::string, StepView>> all;
  for (const auto& step : steps_) all.emplace_back(step->name, step->view());
  return all;
}

void Graph::instantiate(bool by_program) {
  if (by_program && !keep_)
    fail(Kind::Causeway,
         "instantiate() is for graphs that were made with keep_graph=True; this one is made ready at the "
         "end of its capture");
  if (state_ == State::Capturing) fail(Kind::Causeway, "the capture of this graph is not over; end it first");
  if (state_ == State::Empty) fail(Kind::Causeway, "this graph is empty: nothing was captured, or it was reset");
  if (state_ == State::Ready) return;
  const int32_t id = causeway::device(device_).vendor_id;
  if (debug_)
    for (const auto& step : steps_) text_.push_back(c10::str("stream ", step->lane, ": ", step->text()));
  // Events that nobody waits for are no edges.
  std::vector<bool> awaited(marks_.size());
  const auto edge = [](const std::unique_ptr<Step>& s) { return dynamic_cast<EdgeStep*>(s.get()); };
  for (const auto& s : steps_)
    if (const EdgeStep* e = edge(s); e && e->wait) awaited[e->mark] = true;
  std::erase_if(steps_, [&](const auto& s) {
    const EdgeStep* e = edge(s);
    return e && !awaited[e->mark];
  });
  events_.assign(marks_.size(), nullptr);
  for (size_t i = 0; i < marks_.size(); ++i)
    if (awaited[i]) check(api().event_create(id, 0, &events_[i]), "event_create", device_);
  // Steps are in the order in which they were noted, which no edge goes against: lanes may share a stream.
  replaying_.assign(captured_.begin() + 1, captured_.end());
  std::set<const Step*> patched;
  for (const Patch& p : patches_) patched.insert(p.step);
  if (graphs_of_vendor())
    hand_to_vendor(patched);
  else
    steps_ = merge_launches(device_, std::move(steps_), patched);
  state_ = State::Ready;
}

size_t Graph::size_of_merged() const {
  size_t all = 0;
  for (const auto& step : steps_)
    if (step->parts()) all += step->parts()->size();
  return all;
}

// Runs of steps on one stream whose arguments stay as they are become a step each, where the vendor makes graphs.
void Graph::hand_to_vendor(const std::set<const Step*>& patched) {
  const auto changes = [&](const std::unique_ptr<Step>& step) {
    return step->work == Work::Call || step->alone() || patched.count(step.get());
  };
  std::vector<std::unique_ptr<Step>> now;
  for (size_t i = 0; i < steps_.size();) {
    size_t end = i;
    while (end < steps_.size() && steps_[end]->lane == steps_[i]->lane && !changes(steps_[end])) ++end;
    std::unique_ptr<WholeStep> one;
    if (end - i >= kWorthOne) {
      std::vector<Step*> steps;
      for (size_t at = i; at < end; ++at) steps.push_back(steps_[at].get());
      one = std::make_unique<WholeStep>(std::move(steps), *captured_[steps_[i]->lane]);
    }
    if (one && one->make(*captured_[steps_[i]->lane])) {
      one->lane = steps_[i]->lane;
      of_vendor_ += end - i;
      now.push_back(std::move(one));
      for (; i < end; ++i) noted_.push_back(std::move(steps_[i]));  // what the vendor's graph points to
      continue;
    }
    for (end = std::max(end, i + 1); i < end; ++i) now.push_back(std::move(steps_[i]));
  }
  steps_ = std::move(now);
}

void Graph::replay() {
  if (state_ == State::Captured || state_ == State::Capturing || state_ == State::Empty) instantiate();
  (void)causeway::device(device_);  // bound to this thread
  StreamState& stream = current_stream(device_);
  if (Graph* other = graph_of(stream))
    other->refuse("the replay of another graph",
                  "Call what it was captured from, so that its work becomes part of this one");
  std::lock_guard lock(mutex_);
  if (StreamState* last = last_->exchange(&stream); last && last != &stream) come_after(stream, *last);
  std::vector<cw_philox> base;
  for (const Drawn& drawn : drawn_) base.push_back(drawn.generator.get<Generator>()->next(drawn.most));
  for (const Patch& p : patches_) *p.where = p.seed ? base[p.generator].seed : base[p.generator].offset + p.after;
  const bool traced = watched_by(Watcher::Trace);
  const auto run = [&](Step& step) {
    StreamState& on = step.lane == 0 ? stream : *replaying_[step.lane - 1];
    Profiled span(step.work, C10_UNLIKELY(traced) ? interned(step.name) : "", &on, step.bytes);
    if (const cw_status status = step.run(on); C10_UNLIKELY(status != CW_OK))
      fail_status(status, step.name.c_str(), device_, " in the replay of a graph");
  };
  for (const auto& step : steps_) {
    if (const auto* parts = C10_UNLIKELY(traced) ? step->parts() : nullptr)
      for (const auto& part : *parts) run(*part);
    else
      run(*step);
  }
  stream.give();
  for (StreamState* s : replaying_) s->give();
  if (tells_) kernel_may_tell(stream);
}

void Graph::run_step(size_t i) {
  if (state_ != State::Captured || captured_.size() != 1 || !patches_.empty() || i >= steps_.size())
    fail(Kind::Causeway, "step ", i, " cannot be run alone: the graph has ", steps_.size(), " steps on ",
         captured_.size(), " streams, and must not be instantiated yet");
  (void)causeway::device(device_);  // bound to this thread
  StreamState& stream = current_stream(device_);
  std::lock_guard lock(mutex_);
  if (const cw_status status = steps_[i]->run(stream); status != CW_OK)
    fail_status(status, steps_[i]->name.c_str(), device_, " in a graph");
  stream.give();
  stream.wait();
}

void Graph::reset() {
  if (state_ == State::Capturing) return abort();
  if (state_ == State::Empty) return;
  // What steps keep, such as a table of merged launches, is another's as soon as it is given back.
  if (StreamState* last = last_->load(); last && (!held_.empty() || of_vendor_ || size_of_merged())) last->wait();
  for (cw_event e : events_)
    if (e) check(api().event_destroy(causeway::device(device_).vendor_id, e), "event_destroy", device_);
  events_.clear();
  text_.clear();
  drop();
}

void Graph::dump(const std::string& path) const {
  if (!debug_)
    fail(Kind::Causeway, "call enable_debug_mode() before the capture, so that a graph keeps what it is made of");
  std::ofstream file(path);
  file << "digraph graph_of_" << steps_.size() << "_steps {\n";
  std::map<std::string, int> last;
  for (size_t i = 0; i < text_.size(); ++i) {
    std::string label = text_[i];
    std::replace(label.begin(), label.end(), '"', '\'');
    file << "  n" << i << " [label=\"" << label << "\"];\n";
    const std::string lane = label.substr(0, label.find(':'));
    if (const auto it = last.find(lane); it != last.end()) file << "  n" << it->second << " -> n" << i << ";\n";
    last[lane] = static_cast<int>(i);
  }
  file << "}\n";
  if (!file) fail(Kind::Causeway, "the graph could not be written to ", path);
}

}  // namespace causeway

#include "runtime/merged.h"

#include <algorithm>
#include <cstring>
#include <map>
#include <mutex>

#include "portable/device.h"
#include "runtime/allocator.h"
#include "runtime/code.h"
#include "runtime/device.h"
#include "runtime/profile.h"
#include "runtime/thrown.h"
#include "runtime/vendor.h"

namespace causeway {

namespace {

constexpr size_t kMostAddresses = 96;  // a kernel's parameters have 1,024 bytes in OpenCL
constexpr size_t kLeast = 4;  // launches of a run
constexpr size_t kTimes = 2;  // launches for each function that is built anew

Merger& merger() {
  static auto& f = *new Merger;
  return f;
}

// Launches from .. to - 1 of a graph, and the addresses that they are given.
struct Run {
  size_t from, to;
  std::vector<const void*> addresses;
};

class MergedStep final : public Step {
 public:
  MergedStep(std::vector<std::unique_ptr<Step>> parts, c10::DataPtr table, std::vector<const void*> addresses,
             std::shared_ptr<Program> program, cw_function function)
      : Step(Work::Kernel, c10::str(parts.size(), " launches as one")),
        parts_(std::move(parts)),
        table_(std::move(table)),
        program_(std::move(program)),
        function_(function),
        count_(static_cast<int64_t>(parts_.size())) {
    args_.push_back({0, 0, {table_.get()}});
    for (const void* a : addresses) args_.push_back({0, 0, {a}});
    args_.push_back({sizeof count_, 0, {&count_}});
    lane = parts_[0]->lane;
  }
  cw_status run(StreamState& stream) override {
    static const auto* code = static_cast<const cw_code_v1*>(vendor_extension("code.v1"));
    constexpr uint32_t one[3] = {1, 1, 1};
    return code->launch(function_, one, one, args_.data(), static_cast<uint32_t>(args_.size()), stream.handle);
  }
  const std::vector<std::unique_ptr<Step>>* parts() const override { return &parts_; }

 private:
  std::vector<std::unique_ptr<Step>> parts_;
  c10::DataPtr table_;
  std::shared_ptr<Program> program_;
  cw_function function_;
  const int64_t count_;
  std::vector<cw_code_arg> args_;
};

bool is_small(const StepView& v) {
  const auto one = [](uint32_t n) { return n == 1; };
  return v.kind == StepView::Launch && std::all_of(v.grid, v.grid + 3, one) && std::all_of(v.group, v.group + 3, one);
}

// The longest runs of steps on one stream that `fits`, each with `most` different addresses at most.
std::vector<Run> runs_of(const std::vector<std::unique_ptr<Step>>& steps, const std::vector<StepView>& views,
                         size_t most, const std::function<bool(size_t)>& fits) {
  std::vector<Run> runs;
  for (size_t i = 0; i < steps.size();) {
    Run run{i, i, {}};
    for (; run.to < steps.size() && steps[run.to]->lane == steps[i]->lane && fits(run.to); ++run.to) {
      const size_t before = run.addresses.size();
      for (const auto& a : views[run.to].arguments)
        if (a.value.empty() && std::find(run.addresses.begin(), run.addresses.end(), a.address) == run.addresses.end())
          run.addresses.push_back(a.address);
      if (run.addresses.size() > most) {
        run.addresses.resize(before);
        break;
      }
    }
    i = std::max(run.to, i + 1);
    if (run.to - run.from >= kLeast) runs.push_back(std::move(run));
  }
  return runs;
}

// What the kernel reads of each launch: its function's number, how many words these are, and its arguments: an
// address's place among the kernel's, a value as it is.
std::vector<uint64_t> table_of(const Run& run, const std::vector<StepView>& views,
                               const std::map<cw_function, int64_t>& numbers) {
  std::vector<uint64_t> words;
  for (size_t i = run.from; i < run.to; ++i) {
    const size_t first = words.size();
    words.push_back(static_cast<uint64_t>(numbers.at(views[i].function)));
    words.push_back(0);
    for (const auto& a : views[i].arguments) {
      if (a.value.empty()) {
        const auto at = std::find(run.addresses.begin(), run.addresses.end(), a.address);
        words.push_back(static_cast<uint64_t>(at - run.addresses.begin()));
        continue;
      }
      const size_t at = words.size();
      words.resize(at + (a.value.size() + 7) / 8);
      std::memcpy(&words[at], a.value.data(), a.value.size());
    }
    words[first + 1] = words.size() - first;
  }
  return words;
}

std::shared_ptr<Program> program_of(int device, const std::string& source) {
  static std::mutex mutex;
  static auto& all = *new std::map<std::pair<int, std::string>, std::weak_ptr<Program>>;
  std::lock_guard lock(mutex);
  std::erase_if(all, [](const auto& entry) { return entry.second.expired(); });
  std::shared_ptr<Program> program = all[{device, source}].lock();
  if (!program) all[{device, source}] = program = std::make_shared<Program>(device, source, false, "-w");
  return program;
}

}  // namespace

void set_merger(Merger f) { merger() = std::move(f); }

std::vector<std::unique_ptr<Step>> merge_launches(int index, std::vector<std::unique_ptr<Step>> steps,
                                                  const std::set<const Step*>& changing) {
  const int32_t id = device(index).vendor_id;
  portable::Device* compiler = portable::device_at(id);
  if (!merger() || !compiler || !compiler->merges()) return steps;
  const bool split = compiler->info.flags & CW_CODE_SPLIT_POINTERS;
  size_t most = kMostAddresses;
  if (const uint32_t limit = compiler->info.argument_limit) most = std::min<size_t>(most, limit / (split ? 16 : 8) - 2);

  std::vector<StepView> views;
  std::vector<std::pair<std::string, std::string>> sources;
  std::map<cw_function, int64_t> numbers;
  for (const auto& step : steps) {
    views.push_back(changing.count(step.get()) ? StepView{} : step->view());
    const StepView& v = views.back();
    if (!is_small(v) || numbers.count(v.function)) continue;
    portable::SourceOf found = portable::source_of(v.function);
    numbers[v.function] = found.source ? static_cast<int64_t>(sources.size()) : -1;
    if (found.source) sources.emplace_back(found.name, *found.source);
  }
  const auto fits = [&](size_t i) { return is_small(views[i]) && numbers.at(views[i].function) >= 0; };
  std::vector<Run> runs = runs_of(steps, views, most, fits);
  const auto launches = [&] {
    size_t all = 0;
    for (const Run& run : runs) all += run.to - run.from;
    return all;
  };
  // Only those that are in a run are built again.
  std::map<cw_function, int64_t> used;
  std::vector<std::pair<std::string, std::string>> used_sources;
  for (const Run& run : runs)
    for (size_t i = run.from; i < run.to; ++i)
      if (const cw_function f = views[i].function; used.emplace(f, used_sources.size()).second)
        used_sources.push_back(sources[numbers.at(f)]);
  if (launches() < kTimes * used.size() || runs.empty()) return steps;
  most = 0;  // a runtime takes its time for each
  for (const Run& run : runs) most = std::max(most, run.addresses.size());
  try {
    const std::optional<MergedSource> merged = merger()(used_sources, most, split);
    if (!merged) return steps;
    for (auto& [function, number] : numbers) {
      const auto it = used.find(function);
      number = it == used.end() ? -1 : merged->numbers.at(it->second);
    }
    runs = runs_of(steps, views, most, fits);
    if (runs.empty()) return steps;
    const std::shared_ptr<Program> program = program_of(index, merged->source);
    const cw_function function = program->function(merged->name).handle();
    StreamState& stream = default_stream(index);  // which no graph captures
    std::vector<c10::DataPtr> tables;
    for (const Run& run : runs) {
      const std::vector<uint64_t> words = table_of(run, views, numbers);
      tables.push_back(allocate(index, stream, words.size() * sizeof words[0]));
      copy_on(stream, tables.back().get(), id, words.data(), CW_HOST, words.size() * sizeof words[0]);
      stream.wait();
    }
    std::vector<std::unique_ptr<Step>> now;  // nothing throws from here on
    size_t i = 0;
    for (size_t r = 0; r < runs.size(); ++r) {
      Run& run = runs[r];
      run.addresses.resize(most);
      while (i < run.from) now.push_back(std::move(steps[i++]));
      std::vector<std::unique_ptr<Step>> parts;
      while (i < run.to) parts.push_back(std::move(steps[i++]));
      now.push_back(
          std::make_unique<MergedStep>(std::move(parts), std::move(tables[r]), run.addresses, program, function));
    }
    while (i < steps.size()) now.push_back(std::move(steps[i++]));
    return now;
  } catch (...) {
    // That costs speed alone. A device that is lost says so at the next step.
    TORCH_WARN_ONCE("small launches of a graph could not be made one (", words_of(std::current_exception()),
                    "), so they are given one by one, which is slower");
    return steps;
  }
}

}  // namespace causeway

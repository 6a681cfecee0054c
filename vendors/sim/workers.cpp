#include "workers.hpp"

#include <sched.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <condition_variable>
#include <mutex>
#include <thread>

namespace sim {

namespace {

std::atomic<uint32_t> used{0};

void note_used(uint32_t number) {
  for (uint32_t most = used; most < number && !used.compare_exchange_weak(most, number);) {
  }
}

// A launch that threads share. Who comes late finds nothing left.
struct Job {
  const std::function<void(uint64_t)>* run = nullptr;
  uint64_t count = 0;
  uint32_t cores = 1;  // that may take part
  std::atomic<uint64_t> next{0};
  std::atomic<uint32_t> part{0};

  void work() {
    const uint32_t number = ++part;  // a limit is a number of threads; those that come later go back to sleep
    if (number > cores) return;
    note_used(number);
    for (uint64_t i; (i = next.fetch_add(1, std::memory_order_relaxed)) < count;) (*run)(i);
  }
};

// Threads that sleep until a launch has more than one group. They never end: a process that exits finds them asleep, as
// each launch waits for its helpers. A forked child has none of its parent's, so each process has its own.
class Workers {
 public:
  const pid_t owner = getpid();

  // False where the threads work on another stream's launch: two streams then run at the same time, on a thread each.
  bool run(Job& job, uint32_t helpers) {
    std::unique_lock<std::mutex> whole(launch_, std::try_to_lock);
    if (!whole) return false;
    for (; started_ < helpers; ++started_) std::thread([this] { help(); }).detach();
    {
      std::lock_guard<std::mutex> lock(mutex_);
      job_ = &job;
      ++launches_;
    }
    wake_.notify_all();
    job.work();
    std::unique_lock<std::mutex> lock(mutex_);
    job_ = nullptr;
    done_.wait(lock, [&] { return helping_ == 0; });
    return true;
  }

 private:
  void help() {
    std::unique_lock<std::mutex> lock(mutex_);
    for (uint64_t seen = 0;;) {
      wake_.wait(lock, [&] { return job_ && launches_ != seen; });
      seen = launches_;
      Job* job = job_;
      ++helping_;
      lock.unlock();
      job->work();
      lock.lock();
      if (--helping_ == 0) done_.notify_all();
    }
  }

  std::mutex launch_, mutex_;
  std::condition_variable wake_, done_;
  Job* job_ = nullptr;
  uint64_t launches_ = 0;
  uint32_t helping_ = 0, started_ = 0;
};

uint32_t processors() {
  cpu_set_t set;
  CPU_ZERO(&set);
  return sched_getaffinity(0, sizeof(set), &set) == 0 ? static_cast<uint32_t>(CPU_COUNT(&set)) : 1;
}

Workers& workers() {
  static std::atomic<Workers*> current{
      nullptr};  // lives as long as its threads; no lock, as a fork may keep one locked
  Workers* found = current;
  if (found && found->owner == getpid()) return *found;
  auto* made = new Workers;
  if (current.compare_exchange_strong(found, made)) return *made;
  delete made;
  return *found;
}

}  // namespace

uint32_t compute_units() {
  static const uint32_t units = std::max(processors(), 2u);
  return units;
}

void run_groups(uint64_t count, uint32_t cores, const std::function<void(uint64_t)>& run) {
  static const uint32_t all = processors() - 1;
  const uint32_t helpers = std::min(all, cores - 1);
  Job job;
  job.run = &run;
  job.count = count;
  job.cores = cores;
  if (count < 2 || helpers == 0 || !workers().run(job, helpers)) job.work();
}

uint32_t cores_used() { return used.exchange(0); }

}  // namespace sim

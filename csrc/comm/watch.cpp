#include "comm/watch.h"

#include <algorithm>

namespace causeway {

namespace {

constexpr auto kPoll = std::chrono::milliseconds(20);  // for events, which call nobody
constexpr auto kPatience = std::chrono::milliseconds(1000);

std::string key_of(int rank) { return "late/" + std::to_string(rank); }

void sleep_unlocked(std::unique_lock<std::mutex>& lock) {
  lock.unlock();
  std::this_thread::sleep_for(std::chrono::milliseconds(5));
  lock.lock();
}

bool is_collective(c10d::OpType type) { return !c10d::isP2POp(type); }

}  // namespace

CommWatch::CommWatch(c10::intrusive_ptr<c10d::Store> store, int rank, int size, std::vector<uint64_t> ranks)
    : store_(std::move(store)), rank_(rank), size_(size), ranks_(std::move(ranks)) {}

void CommWatch::add(c10::intrusive_ptr<CommWork> work) {
  std::vector<c10::intrusive_ptr<CommWork>> over;  // their tensors are freed without the lock
  {
    std::lock_guard lock(mutex_);
    if (stopped_) return;
    auto end = std::stable_partition(works_.begin(), works_.end(), [](auto& w) { return !w->over(); });
    over.assign(std::make_move_iterator(end), std::make_move_iterator(works_.end()));
    works_.erase(end, works_.end());
    works_.push_back(std::move(work));
    if (!thread_.joinable()) thread_ = std::thread([self = shared_from_this()] { self->loop(); });
    if (works_.size() == 1) changed_.notify_all();
  }
  for (auto& w : over) w->drop_kept();
}

void CommWatch::settle(std::chrono::milliseconds patience) {
  std::unique_lock lock(mutex_);
  const auto until = CommWork::Clock::now() + patience;
  auto over = [&] { return std::all_of(works_.begin(), works_.end(), [](auto& w) { return w->over(); }); };
  while (!broken_ && !over() && CommWork::Clock::now() < until) sleep_unlocked(lock);
}

bool CommWatch::stop() {
  std::vector<c10::intrusive_ptr<CommWork>> works;
  std::unique_lock lock(mutex_);
  const bool all = !broken_ && std::all_of(works_.begin(), works_.end(), [](auto& w) { return w->over(); });
  stopped_ = true;
  works.swap(works_);
  changed_.notify_all();
  lock.unlock();
  for (auto& w : works) {
    if (w->over()) continue;
    const auto error = comm_error(w->task().text + ": the process group was shut down or aborted");
    w->fail(error);
    w->spoil(error);
  }
  lock.lock();
  // The store may take minutes to say that it is gone.
  for (int i = 0; looking_ && i < 200; ++i) sleep_unlocked(lock);
  const bool leave = looking_;
  lock.unlock();
  if (!thread_.joinable()) return all;
  if (leave || thread_.get_id() == std::this_thread::get_id())
    thread_.detach();
  else
    thread_.join();
  return all;
}

void CommWatch::loop() {
  std::unique_lock lock(mutex_);
  while (!stopped_) {
    changed_.wait(lock, [&] { return stopped_ || !works_.empty(); });
    if (stopped_) return;
    auto works = works_;
    looking_ = true;
    lock.unlock();
    try {
      look(std::move(works));
    } catch (const std::exception& e) {
      TORCH_WARN("while collectives were watched: ", e.what());
    }
    lock.lock();
    looking_ = false;
    if (!stopped_) changed_.wait_for(lock, kPoll, [&] { return stopped_; });
  }
}

void CommWatch::look(std::vector<c10::intrusive_ptr<CommWork>> works) {
  std::vector<c10::intrusive_ptr<CommWork>> over;
  const auto now = CommWork::Clock::now();
  std::function<std::string()> ask;
  {
    std::lock_guard lock(mutex_);
    if (!broken_) ask = vendor_error_;
  }
  const std::string wrong = ask ? ask() : "";
  if (!wrong.empty()) poison(wrong);
  for (auto& w : works) {
    if (!wrong.empty() && w->posted()) {
      w->spoil(comm_error(c10::str(w->task().text, " failed: ", wrong)));
      over.push_back(w);
      continue;
    }
    if (w->over()) {
      over.push_back(w);
      continue;
    }
    if (w->task().timeout.count() <= 0) continue;
    if (now > w->note_time() && is_collective(w->task().type)) publish(*w);
    if (now > w->deadline()) {
      const std::string words =
          c10::str(w->task().text, " timed out after ", w->task().timeout.count(), " ms", missing(*w, kPatience / 4),
                   ". The group cannot be used any more; destroy it or end the process (torchrun starts it anew).");
      // Whoever waits for this work goes on as soon as it fails: the group must be broken by then. The vendor's abort comes
      // last, so that the work fails with these words and not with its.
      const auto end = mark(words);
      w->fail(comm_error(words));
      w->spoil(comm_error(words));
      if (end) end();
      over.push_back(w);
    }
  }
  for (auto& w : over) w->drop_kept();
  std::lock_guard lock(mutex_);
  std::erase_if(works_, [&](auto& w) { return std::find(over.begin(), over.end(), w) != over.end(); });
}

void CommWatch::publish(const CommWork& work) {
  std::lock_guard lock(store_mutex_);
  if (published_ >= work.task().sequence) return;
  try {
    // The sequence number, then words for people.
    store_->set(key_of(rank_), c10::str(work.task().sequence, " ", work.task().name));
    published_ = work.task().sequence;
  } catch (const std::exception& e) {
    TORCH_WARN("the store of the process group does not answer: ", e.what());
  }
}

std::string CommWatch::missing(const CommWork& work, std::chrono::milliseconds patience) {
  if (!is_collective(work.task().type)) return "";
  std::string silent, others;
  const auto until = CommWork::Clock::now() + patience;
  do {
    silent.clear();
    others.clear();
    int count = 0;
    std::lock_guard lock(store_mutex_);
    try {
      for (int r = 0; r < size_; ++r) {
        if (r == rank_) continue;
        uint64_t there = 0;
        std::string said;
        if (store_->check({key_of(r)})) {
          said = store_->get_to_str(key_of(r));
          there = std::stoull(said);
        }
        const std::string name = std::to_string(ranks_.empty() ? r : ranks_.at(r));
        if (there < work.task().sequence) {
          silent += (silent.empty() ? "" : ", ") + name;
          ++count;
        } else if (there == work.task().sequence && said.substr(said.find(' ') + 1) != work.task().name) {
          others += c10::str("; rank ", name, " is in ", said.substr(said.find(' ') + 1), " instead");
        }
      }
    } catch (const std::exception& e) {
      return c10::str("; the store of the process group does not answer (", e.what(), ")");
    }
    if (count < size_ - 1 || size_ == 2) break;
  } while (CommWork::Clock::now() < until);
  if (!silent.empty())
    return c10::str("; not there: rank ", silent, " (ended, late, or elsewhere in the program)", others);
  return others.empty() ? "; all ranks came to it, so it is the connection or the device that hangs" : others;
}

std::exception_ptr CommWatch::explain(const CommWork& work, const std::exception_ptr& error) {
  if (broken_) {
    std::lock_guard lock(mutex_);
    return comm_error(c10::str(work.task().text, " failed: ", words_of(error), ", after this: ", words_));
  }
  if (is_collective(work.task().type)) publish(work);
  const std::string words = c10::str(work.task().text, " failed: ", words_of(error), missing(work, kPatience));
  poison(words);
  return comm_error(words);
}

void CommWatch::set_vendor(std::function<std::string()> error, std::function<void()> abort) {
  std::lock_guard lock(mutex_);
  vendor_error_ = std::move(error);
  vendor_abort_ = std::move(abort);
}

void CommWatch::poison(const std::string& words) {
  if (const auto end = mark(words)) end();
}

std::function<void()> CommWatch::mark(const std::string& words) {
  std::lock_guard lock(mutex_);
  if (broken_) return {};
  words_ = words;
  broken_ = true;
  return vendor_abort_;
}

void CommWatch::check() {
  std::function<std::string()> ask;
  {
    std::lock_guard lock(mutex_);
    ask = vendor_error_;
  }
  if (!broken_ && ask)
    if (const std::string words = ask(); !words.empty()) poison(words);
  if (!broken_) return;
  std::lock_guard lock(mutex_);
  std::rethrow_exception(
      comm_error("an earlier collective of this process group went wrong, so it cannot go on: " + words_));
}

}  // namespace causeway

// Looks after collectives under way: a thread that ends those which take too long, with words that name the ranks which
// never came.
#pragma once

#include <condition_variable>
#include <memory>
#include <thread>

#include <torch/csrc/distributed/c10d/Store.hpp>

#include "comm/work.h"

namespace causeway {

// A rank that waits longer than an eighth of a timeout says in the store how far it is. When the timeout is over, the ranks
// that said nothing of it are the ones that are missing. Nothing is written while all goes well.
class CommWatch : public std::enable_shared_from_this<CommWatch> {
 public:
  // `ranks` are the group's in the world, for people; empty: the group is the world.
  CommWatch(c10::intrusive_ptr<c10d::Store> store, int rank, int size, std::vector<uint64_t> ranks);
  void add(c10::intrusive_ptr<CommWork> work);
  void settle(std::chrono::milliseconds patience);  // wait so long for what is under way; not after an error
  bool stop();  // whether nothing was under way any more; what was fails
  // An error that came before the timeout: with the ranks that are missing, as far as can be told within a second.
  std::exception_ptr explain(const CommWork& work, const std::exception_ptr& error);
  // Throws what went wrong first, if anything did.
  void check();
  void poison(const std::string& words);
  bool broken() const { return broken_; }
  const c10::intrusive_ptr<c10d::Store>& store() const { return store_; }
  // Whoever works on the device's stream: what went wrong there (empty: nothing), and how to end it.
  void set_vendor(std::function<std::string()> error, std::function<void()> abort);

 private:
  void loop();
  void look(std::vector<c10::intrusive_ptr<CommWork>> works);
  void publish(const CommWork& work);
  std::function<void()> mark(const std::string& words);  // what to call then, if anything
  std::string missing(const CommWork& work, std::chrono::milliseconds patience);

  c10::intrusive_ptr<c10d::Store> store_;
  const int rank_, size_;
  const std::vector<uint64_t> ranks_;
  std::mutex mutex_;
  std::mutex store_mutex_;
  std::condition_variable changed_;
  std::vector<c10::intrusive_ptr<CommWork>> works_;
  uint64_t published_ = 0;
  std::atomic<bool> broken_{false};
  std::string words_;
  std::function<std::string()> vendor_error_;
  std::function<void()> vendor_abort_;
  bool stopped_ = false, looking_ = false;
  std::thread thread_;
};

}  // namespace causeway

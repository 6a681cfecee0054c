// The log of calls and the faults on demand. ASCEND_STAND_IN_CALLS=file writes, at exit, a line "count name" for each
// function that was called; ASCEND_STAND_IN_TRACE=1 prints each call. ASCEND_STAND_IN_FAULT=name:2=507015,name:1@507035
// makes the second call of a function return a code, or its work on the stream fail.
#include "calls.hpp"

#include <atomic>
#include <cstdarg>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <map>
#include <mutex>
#include <vector>

#include <unistd.h>

#include "core.hpp"

namespace stand_in {
namespace {

struct Fault {
  std::string name;
  long nth;
  bool later;
  Code code;
};

thread_local std::string message;

std::vector<Fault> parse() {
  std::vector<Fault> faults;
  std::string all = setting("FAULT", "");
  for (size_t at = 0; at < all.size();) {
    size_t end = std::min(all.find(',', at), all.size());
    std::string one = all.substr(at, end - at);
    char name[128];
    long nth = 0;
    char sign = 0;
    int code = 0;
    if (sscanf(one.c_str(), "%127[^:]:%ld%c%d", name, &nth, &sign, &code) != 4 || (sign != '=' && sign != '@') ||
        !code) {
      fprintf(stderr, "ascend stand-in: ASCEND_STAND_IN_FAULT has \"%s\"; a fault is name:nth=code or name:nth@code\n",
              one.c_str());
      abort();
    }
    faults.push_back({name, nth, sign == '@', code});
    at = end + 1;
  }
  return faults;
}

const std::vector<Fault>& faults() {
  static auto* all = new std::vector<Fault>(parse());
  return *all;
}

}  // namespace

struct Site::State {
  std::string name;
  std::atomic<long> count{0};
};

namespace {

// Never destroyed: streams may still work while the process ends.
std::mutex& states_lock() {
  static auto* lock = new std::mutex;
  return *lock;
}

template <class State>
std::map<std::string, State*>& states() {
  static auto* all = new std::map<std::string, State*>;
  return *all;
}

template <class State>
State* state_of(const std::string& name) {
  std::lock_guard<std::mutex> guard(states_lock());
  State*& state = states<State>()[name];
  if (!state) {
    state = new State;
    state->name = name;
  }
  return state;
}

bool tracing() {
  static bool on = number("TRACE", 0);
  return on;
}

}  // namespace

Site::Site(const char* name) : state_(state_of<State>(name)) {}

Code Site::begin() {
  long nth = ++state_->count;
  if (tracing()) fprintf(stderr, "[ascend stand-in] %s\n", state_->name.c_str());
  for (const Fault& fault : faults())
    if (!fault.later && fault.nth == nth && fault.name == state_->name)
      return refuse(fault.code, "%s: fault on demand, call %ld", fault.name.c_str(), nth);
  return kGood;
}

// How often a stream has begun the work of a name.
struct Works {
  std::string name;
  std::atomic<long> count{0};
};

// What this work of `name` on a stream is to fail with, else kGood.
Code planted_work(const char* name) {
  if (faults().empty()) return kGood;
  auto* works = state_of<Works>(name);
  long nth = ++works->count;
  for (const Fault& fault : faults())
    if (fault.later && fault.nth == nth && fault.name == name) return fault.code;
  return kGood;
}

struct Site::Report {
  ~Report() {
    const char* path = setting("CALLS", nullptr);
    if (!path) return;
    FILE* file = fopen(path, "w");
    if (!file) {
      fprintf(stderr, "ascend stand-in: cannot write %s of ASCEND_STAND_IN_CALLS: %s\n", path, strerror(errno));
      return;
    }
    std::lock_guard<std::mutex> guard(states_lock());
    for (auto& [name, state] : states<State>()) fprintf(file, "%ld %s\n", state->count.load(), name.c_str());
    fclose(file);
  }
  static Report report;
};
Site::Report Site::Report::report;

std::string text(const char* format, ...) {
  char buffer[1024];
  va_list values;
  va_start(values, format);
  vsnprintf(buffer, sizeof buffer, format, values);
  va_end(values);
  return buffer;
}

Code refuse(Code code, const char* format, ...) {
  char buffer[1024];
  va_list values;
  va_start(values, format);
  vsnprintf(buffer, sizeof buffer, format, values);
  va_end(values);
  set_message(text("E%d: %s", code, buffer));
  return code;
}

void set_message(const std::string& what) {
  message = what;
  if (tracing()) fprintf(stderr, "[ascend stand-in] refused: %s\n", what.c_str());
}

const char* setting(const char* key, const char* otherwise) {
  const char* value = getenv((std::string("ASCEND_STAND_IN_") + key).c_str());
  return value && *value ? value : otherwise;
}

long number(const char* key, long otherwise) {
  const char* value = setting(key, nullptr);
  if (!value) return otherwise;
  char* end = nullptr;
  long result = strtol(value, &end, 10);
  if (*end) {
    fprintf(stderr, "ascend stand-in: ASCEND_STAND_IN_%s is \"%s\"; it has to be a whole number\n", key, value);
    abort();
  }
  return result;
}

// Said once: the next call has nothing to say.
ENTRY const char* aclGetRecentErrMsg() {
  CALL_ONLY();
  thread_local std::string said;
  said = message;
  message.clear();
  return said.c_str();
}

}  // namespace stand_in

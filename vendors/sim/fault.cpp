#include "fault.hpp"

#include <atomic>
#include <cstring>
#include <deque>

#include "device.hpp"
#include "error.hpp"
#include "ops/bugs.hpp"
#include "settings.hpp"

namespace sim {

namespace {

struct Rule {
  const FaultSetting* setting;
  std::atomic<int64_t> calls{0};
  explicit Rule(const FaultSetting* s) : setting(s) {}
};
std::deque<Rule>* rules = new std::deque<Rule>;
std::atomic<int64_t> corrupt_calls{0};

const char* const entries[] = {"device_count",
                               "device_info",
                               "sync",
                               "mem_alloc",
                               "mem_free",
                               "mem_copy",
                               "bind",
                               "mem_set",
                               "mem_info",
                               "host_alloc",
                               "host_free",
                               "op_find",
                               "stream_create",
                               "stream_query",
                               "stream_destroy",
                               "stream_sync",
                               "stream_wait",
                               "event_create",
                               "event_destroy",
                               "event_record",
                               "event_query",
                               "event_sync",
                               "event_elapsed",
                               "extension",
                               "graph_begin",
                               "graph_end",
                               "graph_launch",
                               "mem_export",
                               "mem_import",
                               "mem_close",
                               "profile_clock",
                               "profile_start",
                               "profile_stop",
                               "profile_read",
                               "code_info",
                               "code_build",
                               "code_launch",
                               "close",
                               "peer_access",
                               "device_attribute",
                               "host_register",
                               "host_unregister",
                               "stream_callback",
                               "host_alloc_for",
                               "host_free_for",
                               "mem_alloc_on",
                               "mem_free_on",
                               "mem_reserve",
                               "mem_map",
                               "mem_unmap",
                               "mem_release",
                               "op_find_for",
                               "code_build_binary",
                               "code_binary",
                               "packed_bytes",
                               "pack",
                               "unpack"};

bool is_entry(const std::string& name) {
  for (const char* entry : entries) {
    if (name == entry) return true;
  }
  return false;
}

// Entries that have two forms: the core calls the further one where it is offered, so a rule for the entry is of both.
std::string plain_form(const char* target) {
  for (const char* further : {"mem_alloc_on", "mem_free_on", "host_alloc_for", "host_free_for", "op_find_for"}) {
    if (std::strcmp(target, further) == 0) return std::string(target, std::string(target).rfind('_'));
  }
  return target;
}

}  // namespace

void arm_faults() {
  for (const FaultSetting& setting : settings().faults) rules->emplace_back(&setting);
}

cw_status injected_fault(const char* target, Device* device) {
  const Rule* fires = nullptr;
  int64_t nth = 0;
  if (rules->empty()) return CW_OK;
  const std::string plain = plain_form(target);
  for (Rule& rule : *rules) {
    if (rule.setting->target != target && rule.setting->target != plain) continue;
    int64_t call = ++rule.calls;  // of every rule, also behind the one that fires: each counts all calls
    if (fires || (rule.setting->nth != 0 && rule.setting->nth != call)) continue;
    fires = &rule;
    nth = call;
  }
  if (!fires) return CW_OK;
  cw_status status = fires->setting->status;
  if (status == CW_DEVICE_LOST && device) device->lose();
  return fail(status, "injected fault: call %lld of %s answers %s", static_cast<long long>(nth),
              fires->setting->target.c_str(), status_name(status));
}

bool skips_wait(const char* target) {
  if (!settings().bugs.empty() && plants_bug("missing_wait", target)) return true;
  const auto& skipped = settings().skip_wait;
  return !skipped.empty() && skipped.count(target) != 0;
}

bool corrupts(const char* op) {
  if (settings().corrupt.empty() || settings().corrupt != op) return false;
  int64_t call = ++corrupt_calls;
  return settings().corrupt_nth == 0 || settings().corrupt_nth == call;
}

bool is_fault_target(const std::string& target) {
  if (target.compare(0, 3, "op:") == 0) return target.find("::") != std::string::npos;
  return is_entry(target);
}

bool is_skip_target(const std::string& target) {
  return target == "stream_wait" || target == "mem_copy" || target == "mem_set" ||
         target.find("::") != std::string::npos;
}

}  // namespace sim

#include "settings.hpp"

#include <algorithm>
#include <cstring>
#include <sstream>

#include "error.hpp"
#include "fault.hpp"
#include "ops/bugs.hpp"

namespace sim {

static Settings* current = new Settings;  // never destroyed: threads may outlive static destructors
static cw_host host_table;

const Settings& settings() { return *current; }
const cw_host& host() { return host_table; }

namespace {

struct Personality {
  const char* name;
  cw_dtypes without;
};
const Personality personalities[] = {
    {"no-bool", CW_BOOL},
    {"no-uint8", CW_UINT8},
    {"no-int8", CW_INT8},
    {"no-int16", CW_INT16},
    {"no-int32", CW_INT32},
    {"no-int64", CW_INT64},
    {"no-uint", CW_UINT16 | CW_UINT32 | CW_UINT64},
    {"no-fp16", CW_FLOAT16 | CW_COMPLEX32},
    {"no-bf16", CW_BFLOAT16},
    {"no-fp64", CW_FLOAT64 | CW_COMPLEX128},
    {"no-complex", CW_COMPLEX32 | CW_COMPLEX64 | CW_COMPLEX128},
    {"no-fp8",
     CW_FLOAT8_E4M3FN | CW_FLOAT8_E5M2 | CW_FLOAT8_E4M3FNUZ | CW_FLOAT8_E5M2FNUZ | CW_FLOAT8_E8M0FNU | CW_FLOAT4_E2M1},
};

std::vector<std::string> split(const std::string& text) {
  std::vector<std::string> parts;
  std::stringstream stream(text);
  for (std::string part; std::getline(stream, part, ',');) {
    size_t first = part.find_first_not_of(" \t"), last = part.find_last_not_of(" \t");
    if (first != std::string::npos) parts.push_back(part.substr(first, last - first + 1));
  }
  return parts;
}

bool parse_number(const std::string& text, int64_t* out) {
  if (text.empty() || text.size() > 15) return false;
  if (!std::all_of(text.begin(), text.end(), [](char c) { return c >= '0' && c <= '9'; })) return false;
  *out = std::stoll(text);
  return true;
}

// "4GiB", "512M", "65536": K, M, G and T are powers of 1024, with or without "iB" or "B".
bool parse_bytes(const std::string& text, uint64_t* out) {
  size_t digits = text.find_first_not_of("0123456789");
  int64_t number = 0;
  if (!parse_number(text.substr(0, digits), &number)) return false;
  std::string suffix = digits == std::string::npos ? "" : text.substr(digits);
  suffix.erase(0, suffix.find_first_not_of(' ') == std::string::npos ? 0 : suffix.find_first_not_of(' '));
  std::transform(suffix.begin(), suffix.end(), suffix.begin(), ::toupper);
  int shift = 0;
  if (!suffix.empty() && suffix != "B") {
    size_t power = std::string("KMGT").find(suffix[0]);
    std::string rest = suffix.substr(1);
    if (power == std::string::npos || (!rest.empty() && rest != "IB" && rest != "B")) return false;
    shift = 10 * (int(power) + 1);
  }
  if (number > (INT64_C(1) << 50) >> shift) return false;
  *out = uint64_t(number) << shift;
  return true;
}

// What `without` may name; see leave_out in backend.cpp.
bool is_left_out(const std::string& entry) {
  static const char* const entries[] = {"bind",        "host_alloc",      "mem_set",          "mem_info",
                                        "close",       "peer_access",     "device_attribute", "host_register",
                                        "fault",       "stream_callback", "host_alloc_for",   "mem_alloc_on",
                                        "mem_reserve", "op_find_for",     "build_binary",     "binary",
                                        "cores.v1",    "layout.v1",       "check.v1",         "dot_bytes",
                                        "dot_tiles"};
  return std::any_of(std::begin(entries), std::end(entries), [&](const char* e) { return entry == e; });
}

bool parse_status(const std::string& text, cw_status* out) {
  for (cw_status status = CW_UNSUPPORTED; status <= CW_NOT_READY; ++status) {
    if (text == status_name(status)) return *out = status, true;
  }
  return false;
}

// "mem_alloc:3=OUT_OF_MEMORY": operators' names hold colons, so the count is after the last one.
bool parse_fault(const std::string& text, FaultSetting* out) {
  size_t equals = text.rfind('='), colon = text.rfind(':', equals);
  if (equals == std::string::npos || colon == std::string::npos) return false;
  out->target = text.substr(0, colon);
  std::string nth = text.substr(colon + 1, equals - colon - 1);
  out->nth = 0;
  if (nth != "*" && (!parse_number(nth, &out->nth) || out->nth == 0)) return false;
  return is_fault_target(out->target) && parse_status(text.substr(equals + 1), &out->status);
}

class Reader {
 public:
  Reader(const cw_host& host, Settings* out) : host_(host), out_(out) {}

  // Hand the value of `key` to `parse`, when it is set; keep the words when it answers false.
  template <class Parse>
  void read(const char* key, const char* allowed, Parse parse) {
    const char* found = host_.setting ? host_.setting(key) : nullptr;
    if (!found || !*found) return;
    std::string value = found;
    if (parse(value) || !out_->error.empty()) return;
    std::string variable = key;
    std::transform(variable.begin(), variable.end(), variable.begin(), ::toupper);
    out_->error = "setting \"" + std::string(key) + "\" of the simulated chip (CAUSEWAY_SIM_" + variable + ") is \"" +
                  value + "\"; allowed: " + allowed;
  }

 private:
  const cw_host& host_;
  Settings* out_;
};

}  // namespace

void read_settings(const cw_host& given) {
  std::memcpy(&host_table, &given, std::min<size_t>(given.struct_size, sizeof(host_table)));
  Settings& s = *current;
  Reader reader(host_table, &s);

  reader.read("devices", "a number from 0 to 64", [&](const std::string& value) {
    int64_t number = 0;
    if (!parse_number(value, &number) || number > 64) return false;
    s.devices = int32_t(number);
    return true;
  });
  reader.read("memory", "bytes from 1M to 1T for each device, such as 67108864, 512M or 4GiB",
              [&](const std::string& value) {
                uint64_t bytes = 0;
                if (!parse_bytes(value, &bytes)) return false;
                if (bytes < UINT64_C(1) << 20 || bytes > UINT64_C(1) << 40) return false;
                s.memory = bytes;
                return true;
              });
  std::string names;
  for (const Personality& p : personalities) names += (names.empty() ? "" : ", ") + std::string(p.name);
  reader.read("personality", ("a comma list of " + names).c_str(), [&](const std::string& value) {
    for (const std::string& part : split(value)) {
      auto found = std::find_if(std::begin(personalities), std::end(personalities),
                                [&](const Personality& p) { return part == p.name; });
      if (found == std::end(personalities)) return false;
      s.dtypes &= ~found->without;
    }
    return true;
  });
  reader.read("memory_model", "unified, discrete", [&](const std::string& value) {
    s.discrete = value == "discrete";
    return s.discrete || value == "unified";
  });
  reader.read("execution", "inline, async", [&](const std::string& value) {
    s.async = value == "async";
    return s.async || value == "inline";
  });
  reader.read("ops", "all, fastest, none", [&](const std::string& value) {
    s.ops = value == "all" ? Offer::all : value == "none" ? Offer::none : Offer::fastest;
    return s.ops != Offer::fastest || value == "fastest";
  });
  reader.read("dense", "0, 1", [&](const std::string& value) {
    s.dense = value == "1";
    return s.dense || value == "0";
  });
  reader.read("level", "0, 1, 2", [&](const std::string& value) {
    if (value.size() != 1 || value[0] < '0' || value[0] > '2') return false;
    s.level = value[0] - '0';
    return true;
  });
  reader.read(
      "without",
      "a comma list of entries that stand alone: bind, mem_set, mem_info, close, peer_access, device_attribute, "
      "host_alloc, host_register, fault, stream_callback, host_alloc_for, mem_alloc_on, mem_reserve (each with what "
      "belongs "
      "to it), op_find_for; of code.v1 build_binary, binary, dot_bytes, dot_tiles; cores.v1, layout.v1, check.v1",
      [&](const std::string& value) {
        for (const std::string& part : split(value)) {
          if (!is_left_out(part)) return false;
          s.without.insert(part);
        }
        return true;
      });
  reader.read("peers", "0, 1", [&](const std::string& value) {
    s.peers = value == "1";
    return s.peers || value == "0";
  });
  reader.read("graphs", "0, 1", [&](const std::string& value) {
    s.graphs = value == "1";
    return s.graphs || value == "0";
  });
  reader.read("code", "0, 1", [&](const std::string& value) {
    s.code = value == "1";
    return s.code || value == "0";
  });
  reader.read("teams", "0, 1", [&](const std::string& value) {
    s.teams = value == "1";
    return s.teams || value == "0";
  });
  reader.read("seed", "a number", [&](const std::string& value) { return parse_number(value, &s.seed); });
  reader.read("grid_limit", "a number from 0 to 65535",
              [&](const std::string& value) { return parse_number(value, &s.grid_limit) && s.grid_limit <= 65535; });
  reader.read("argument_limit", "a number of bytes from 0 to 65536", [&](const std::string& value) {
    return parse_number(value, &s.argument_limit) && s.argument_limit <= 65536;
  });
  reader.read("loop_limit", "a number from 0 to 4294967295", [&](const std::string& value) {
    return parse_number(value, &s.loop_limit) && s.loop_limit <= 4294967295;
  });
  reader.read("bare", "a comma list of numbers of devices", [&](const std::string& value) {
    for (const std::string& part : split(value)) {
      int64_t number = 0;
      if (!parse_number(part, &number)) return false;
      s.bare.insert(int32_t(number));
    }
    return true;
  });
  reader.read("cache", "a folder", [&](const std::string& value) { return s.cache = value, true; });
  reader.read("padding", "bytes from 0 to 4096, or <bytes>:<what device_info says>", [&](const std::string& value) {
    const size_t colon = value.find(':');
    if (!parse_number(value.substr(0, colon), &s.overrun) || s.overrun > 4096) return false;
    s.padding = s.overrun;
    return colon == std::string::npos || parse_number(value.substr(colon + 1), &s.padding);
  });
  reader.read("latency_us", "a number of microseconds up to 10000000",
              [&](const std::string& value) { return parse_number(value, &s.latency_us) && s.latency_us <= 10000000; });
  reader.read("fault",
              "a comma list of <entry>:<n>=<status>; the entry is one of the table's or op:<operator>, n counts "
              "calls from 1 or is *, the status is one of UNSUPPORTED, OUT_OF_MEMORY, INVALID, DEVICE_LOST, "
              "FAILED, NOT_READY",
              [&](const std::string& value) {
                for (const std::string& part : split(value)) {
                  FaultSetting fault;
                  if (!parse_fault(part, &fault)) return false;
                  s.faults.push_back(fault);
                }
                return true;
              });
  reader.read("skip_wait", "a comma list of stream_wait, mem_copy, mem_set and operators' names",
              [&](const std::string& value) {
                for (const std::string& part : split(value)) {
                  if (!is_skip_target(part)) return false;
                  s.skip_wait.insert(part);
                }
                return true;
              });
  reader.read("bug", ("a comma list of " + bug_names()).c_str(), [&](const std::string& value) {
    for (const std::string& part : split(value)) {
      if (!is_bug(part)) return false;
      s.bugs.insert(part);
    }
    return true;
  });
  reader.read("corrupt", "<operator> or <operator>:<n>", [&](const std::string& value) {
    s.corrupt = value;
    size_t colon = value.rfind(':');
    if (colon != std::string::npos && parse_number(value.substr(colon + 1), &s.corrupt_nth)) {
      s.corrupt = value.substr(0, colon);
    }
    return is_fault_target("op:" + s.corrupt);
  });
}

}  // namespace sim

// What each rung served: counts always, dtypes, bytes and seconds while a ledger is open.
#pragma once

#include <array>
#include <chrono>
#include <cstdint>
#include <string>
#include <tuple>
#include <vector>

#include <c10/core/ScalarType.h>

namespace causeway {

enum class Rung : uint8_t { Native, Derived, Portable, Decomposed, Host };
constexpr int kRungs = 5;
extern const char* const kRungNames[kRungs];

struct Operator;

// The running operator's line in the ledger. Copies made on its way add their bytes to it.
class Entry {
 public:
  explicit Entry(Operator& op);
  ~Entry();
  void served(Rung rung, c10::ScalarType dtype) {
    rung_ = rung;
    dtype_ = dtype;
    set_ = true;
  }
  static void add_bytes(uint64_t bytes);

 private:
  Operator& op_;
  Entry* outer_ = nullptr;
  uint64_t bytes_ = 0;
  double inner_worked_ = 0, inner_waited_ = 0;  // of operators that this one called: each second counts once
  double waited_before_ = 0;
  std::chrono::steady_clock::time_point start_;
  Rung rung_ = Rung::Host;
  c10::ScalarType dtype_ = c10::ScalarType::Undefined;
  bool on_;
  bool set_ = false;
};

// Operator, rung, dtype, calls, bytes copied, seconds that the host worked, seconds that it waited for the device.
using LedgerRow = std::tuple<std::string, std::string, std::string, uint64_t, uint64_t, double, double>;
std::vector<LedgerRow> read_ledger();

// A dtype that was narrowed because the chip lacks it, in the ledger as operator "narrowed".
void count_narrowed(c10::ScalarType from, c10::ScalarType to);

}  // namespace causeway

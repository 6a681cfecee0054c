// The device's addresses are reserved and never mapped, so the host faults there. The default answer to that is
// "Segmentation fault" and a hunt; this handler writes one line first, then lets the process die as it would have.
#include "protect.hpp"

#include <signal.h>
#include <unistd.h>

#include <cstdint>
#include <mutex>

#include "device.hpp"
#include "settings.hpp"

namespace sim {

namespace {

struct sigaction previous;

// Only async-signal-safe calls from here on: no printf, no allocation.
struct Line {
  char text[256];
  size_t n = 0;
  void add(const char* words) {
    while (*words && n < sizeof(text)) text[n++] = *words++;
  }
  void number(uint64_t value, unsigned radix) {
    char digits[24];
    int count = 0;
    do digits[count++] = "0123456789abcdef"[value % radix];
    while (value /= radix);
    while (count && n < sizeof(text)) text[n++] = digits[--count];
  }
};

void explain(uintptr_t address) {
  for (int32_t index = 0; index < settings().devices; ++index) {
    const Device& device = *device_at(index);
    if (!device.contains(address)) continue;
    Line line;
    line.add("causeway-sim: the host touched memory of device ");
    line.number(uint64_t(index), 10);
    line.add(" at 0x");
    line.number(address, 16);
    const Allocation* found = device.find(address, 1);
    if (found) {
      line.add(" (allocation of ");
      line.number(found->bytes, 10);
      line.add(" bytes): copy it with .cpu() first\n");
    } else {
      line.add(" (no live allocation: freed, or never allocated)\n");
    }
    ssize_t ignored = write(STDERR_FILENO, line.text, line.n);
    (void)ignored;
    return;
  }
}

void on_fault(int signal, siginfo_t* info, void* context) {
  const bool sent = info->si_code <= 0;  // by kill(): there is no address
  if (!sent) explain(reinterpret_cast<uintptr_t>(info->si_addr));
  if (previous.sa_flags & SA_SIGINFO) return previous.sa_sigaction(signal, info, context);
  if (previous.sa_handler != SIG_DFL && previous.sa_handler != SIG_IGN) return previous.sa_handler(signal);
  // Back to the default, and return: the instruction faults again and the process ends with the right signal.
  struct sigaction standard = {};
  standard.sa_handler = SIG_DFL;
  sigaction(SIGSEGV, &standard, nullptr);
  if (sent) raise(signal);
}

}  // namespace

void protect_ranges() {
  static std::once_flag once;
  std::call_once(once, [] {
    struct sigaction action = {};
    action.sa_sigaction = on_fault;
    action.sa_flags = SA_SIGINFO | SA_ONSTACK | SA_NODEFER;
    sigemptyset(&action.sa_mask);
    sigaction(SIGSEGV, &action, &previous);
  });
}

}  // namespace sim

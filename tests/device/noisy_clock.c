/* For LD_PRELOAD: a wall clock that is up to 400 us late, each time as much as chance has it, as a virtual machine's may
 * be now and then. The processor's own counter stays as it is. */
#include <stdatomic.h>
#include <stdint.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

static _Atomic uint64_t calls = 0;

int clock_gettime(clockid_t which, struct timespec* now) {
  int status = (int)syscall(SYS_clock_gettime, which, now);
  if (status != 0 || which != CLOCK_REALTIME) return status;
  uint64_t chance = (atomic_fetch_add(&calls, 1) + 1) * UINT64_C(0x9E3779B97F4A7C15);
  chance = (chance ^ chance >> 29) * UINT64_C(0xBF58476D1CE4E5B9);
  now->tv_nsec += (long)((chance >> 32) % 400000);
  if (now->tv_nsec >= 1000000000) {
    now->tv_nsec -= 1000000000;
    ++now->tv_sec;
  }
  return status;
}

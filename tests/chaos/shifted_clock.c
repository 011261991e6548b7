// SPDX-License-Identifier: Apache-2.0

// Preloaded: the wall clock of a process is as many seconds ahead as the first 8 bytes of the file
// that SHIFTED_CLOCK names say, at that moment. Also for waits with a deadline on that clock that
// are under way, as when an operator or ntpd sets it. For Linux on x86-64.
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <linux/futex.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

static const int64_t kLookNanoseconds = 10000000;  // how soon a wait learns of a shift
static const int64_t kSecond = 1000000000;
static const volatile int64_t* shift_seconds;

__attribute__((constructor)) static void MapShift(void) {
  const char* const path = getenv("SHIFTED_CLOCK");
  const int file = path == NULL ? -1 : open(path, O_RDONLY | O_CLOEXEC);
  if (file < 0) return;
  void* const map = mmap(NULL, sizeof(int64_t), PROT_READ, MAP_SHARED, file, 0);
  close(file);
  if (map != MAP_FAILED) shift_seconds = map;
}

static int IsWallClock(clockid_t clock) {
  return clock == CLOCK_REALTIME || clock == CLOCK_REALTIME_COARSE;
}

// Not by the name that is replaced here.
static long Kernel(long number, long a, long b, long c, long d, long e, long f) {
  long result;
  register long r10 __asm__("r10") = d;
  register long r8 __asm__("r8") = e;
  register long r9 __asm__("r9") = f;
  __asm__ volatile("syscall"
                   : "=a"(result)
                   : "a"(number), "D"(a), "S"(b), "d"(c), "r"(r10), "r"(r8), "r"(r9)
                   : "rcx", "r11", "memory");
  if (result >= 0 || result < -4095) return result;
  errno = (int)-result;
  return -1;
}

int clock_gettime(clockid_t clock, struct timespec* now) {
  const long result = Kernel(SYS_clock_gettime, clock, (long)now, 0, 0, 0, 0);
  if (result == 0 && IsWallClock(clock) && shift_seconds != NULL) now->tv_sec += *shift_seconds;
  return (int)result;
}

int gettimeofday(struct timeval* restrict now, void* restrict zone) {
  (void)zone;
  struct timespec at;
  clock_gettime(CLOCK_REALTIME, &at);
  now->tv_sec = at.tv_sec;
  now->tv_usec = at.tv_nsec / 1000;
  return 0;
}

time_t time(time_t* now) {
  struct timespec at;
  clock_gettime(CLOCK_REALTIME, &at);
  if (now != NULL) *now = at.tv_sec;
  return at.tv_sec;
}

// Waits on a futex until a time of the wall clock, piece by piece.
static long WaitUntil(long word, long operation, long value, const struct timespec* deadline,
                      long bits) {
  while (1) {
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    const int64_t left =
        (deadline->tv_sec - now.tv_sec) * kSecond + deadline->tv_nsec - now.tv_nsec;
    if (left <= 0) {
      errno = ETIMEDOUT;
      return -1;
    }
    struct timespec until;
    clock_gettime(CLOCK_MONOTONIC, &until);
    const int64_t nanoseconds = until.tv_nsec + (left < kLookNanoseconds ? left : kLookNanoseconds);
    until.tv_sec += nanoseconds / kSecond;
    until.tv_nsec = nanoseconds % kSecond;
    const long result = Kernel(SYS_futex, word, operation & ~FUTEX_CLOCK_REALTIME, value,
                               (long)&until, 0, bits);
    if (result == 0 || errno != ETIMEDOUT) return result;
  }
}

long syscall(long number, ...) {
  va_list list;
  va_start(list, number);
  long a[6];
  for (int i = 0; i < 6; ++i) a[i] = va_arg(list, long);
  va_end(list);
  const int waits_for_wall_clock = FUTEX_WAIT_BITSET | FUTEX_CLOCK_REALTIME;
  if (number == SYS_futex && a[3] != 0 &&
      ((int)a[1] & ~FUTEX_PRIVATE_FLAG) == waits_for_wall_clock) {
    return WaitUntil(a[0], a[1], a[2], (const struct timespec*)a[3], a[5]);
  }
  return Kernel(number, a[0], a[1], a[2], a[3], a[4], a[5]);
}

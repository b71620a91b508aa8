/* clockstep: a preload library that adds an offset to the wall clock of one process.
 *
 * CLOCKSTEP_FILE names a file of 8 bytes: the offset in nanoseconds, signed, little endian. The
 * file is mapped, so a write to it takes effect at once. Monotonic clocks are left alone.
 *
 * Valkey 9.1 reads the wall clock once in a millisecond and adds what the processor's clock counts
 * from then on: it goes back after it was interrupted between the two. It does so if a regular
 * expression finds a flag in /proc/cpuinfo. With this library it finds none, and Valkey reads the
 * wall clock each time.
 *
 * The library allocates nothing, looks up nothing and does not link libc: a server with jemalloc
 * hangs at its start when a preload library calls the allocator, as libfaketime does.
 *
 *   cc -O2 -fPIC -shared -nostdlib -o libclockstep.so clockstep.c
 *   head -c 8 /dev/zero >clock
 *   LD_PRELOAD=./libclockstep.so CLOCKSTEP_FILE=clock redis-server
 *   perl -e 'print pack("q<", -3600e9)' 1<>clock   # an hour back
 */
#include <fcntl.h>
#include <regex.h>
#include <stdint.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <time.h>

extern char **environ;
static volatile const int64_t zero, *off = &zero;

#if defined(__x86_64__)
static long sys6(long n, long a, long b, long c, long d, long e, long f) {
  long r;
  register long r10 __asm__("r10") = d, r8 __asm__("r8") = e, r9 __asm__("r9") = f;
  __asm__ volatile("syscall" : "=a"(r) : "a"(n), "D"(a), "S"(b), "d"(c), "r"(r10), "r"(r8), "r"(r9) : "rcx", "r11", "memory");
  return r;
}
#elif defined(__aarch64__)
static long sys6(long n, long a, long b, long c, long d, long e, long f) {
  register long x8 __asm__("x8") = n, x0 __asm__("x0") = a, x1 __asm__("x1") = b, x2 __asm__("x2") = c,
                x3 __asm__("x3") = d, x4 __asm__("x4") = e, x5 __asm__("x5") = f;
  __asm__ volatile("svc 0" : "+r"(x0) : "r"(x8), "r"(x1), "r"(x2), "r"(x3), "r"(x4), "r"(x5) : "memory");
  return x0;
}
#endif

__attribute__((constructor)) static void init(void) {
  static const char want[] = "CLOCKSTEP_FILE=";
  for (char **e = environ; e && *e; e++) {
    unsigned i = 0;
    while (want[i] && (*e)[i] == want[i]) i++;
    if (want[i]) continue;
    long fd = sys6(SYS_openat, AT_FDCWD, (long)(*e + i), O_RDONLY, 0, 0, 0);
    if (fd < 0) return;
    long p = sys6(SYS_mmap, 0, 8, PROT_READ, MAP_SHARED, fd, 0);
    if (p > 0) off = (const int64_t *)p;
    sys6(SYS_close, fd, 0, 0, 0, 0, 0);
    return;
  }
}

static int64_t now(long clock) {
  struct timespec ts;
  sys6(SYS_clock_gettime, clock, (long)&ts, 0, 0, 0, 0);
  return ts.tv_sec * 1000000000LL + ts.tv_nsec + *off;
}

int clock_gettime(clockid_t c, struct timespec *ts) {
  if (c != CLOCK_REALTIME && c != CLOCK_REALTIME_COARSE)
    return sys6(SYS_clock_gettime, c, (long)ts, 0, 0, 0, 0) < 0 ? -1 : 0;
  int64_t n = now(c);
  ts->tv_sec = n / 1000000000;
  ts->tv_nsec = n % 1000000000;
  return 0;
}

int gettimeofday(struct timeval *restrict tv, void *restrict tz) {
  (void)tz;
  int64_t n = now(CLOCK_REALTIME);
  tv->tv_sec = n / 1000000000;
  tv->tv_usec = n % 1000000000 / 1000;
  return 0;
}

time_t time(time_t *t) {
  time_t s = now(CLOCK_REALTIME_COARSE) / 1000000000;
  if (t) *t = s;
  return s;
}

int regexec(const regex_t *restrict expression, const char *restrict text, size_t n,
            regmatch_t matches[restrict n], int flags) {
  (void)expression, (void)text, (void)n, (void)matches, (void)flags;
  return REG_NOMATCH;
}

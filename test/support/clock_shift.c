/* Preloaded: shifts the system's clock of one process by the seconds, int64, in the file that CLOCK_SHIFT names.
   Waits until a time of that clock end when the shifted clock says so, as if the clock had been set. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <semaphore.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

#define SLICE_NS 20000000L
#define YEARS_20_S (20LL * 365 * 86400)

static int64_t shift_s(void) {
  static volatile int64_t *shift;
  if (!shift) {
    static int64_t none;
    const char *name = getenv("CLOCK_SHIFT");
    int file = name ? open(name, O_RDONLY) : -1;
    void *found = file < 0 ? MAP_FAILED : mmap(0, sizeof none, PROT_READ, MAP_SHARED, file, 0);
    shift = found == MAP_FAILED ? &none : found;
  }
  return *shift;
}

static void real_now(struct timespec *now) {
  static int (*real)(clockid_t, struct timespec *);
  if (!real) real = (int (*)(clockid_t, struct timespec *))dlsym(RTLD_NEXT, "clock_gettime");
  real(CLOCK_REALTIME, now);
}

int clock_gettime(clockid_t clock, struct timespec *now) {
  static int (*real)(clockid_t, struct timespec *);
  if (!real) real = (int (*)(clockid_t, struct timespec *))dlsym(RTLD_NEXT, "clock_gettime");
  int failed = real(clock, now);
  if (!failed && (clock == CLOCK_REALTIME || clock == CLOCK_REALTIME_COARSE)) now->tv_sec += shift_s();
  return failed;
}

int gettimeofday(struct timeval *restrict now, void *restrict zone) {
  struct timespec exact;
  (void)zone;
  clock_gettime(CLOCK_REALTIME, &exact);
  now->tv_sec = exact.tv_sec;
  now->tv_usec = exact.tv_nsec / 1000;
  return 0;
}

time_t time(time_t *out) {
  struct timespec exact;
  clock_gettime(CLOCK_REALTIME, &exact);
  if (out) *out = exact.tv_sec;
  return exact.tv_sec;
}

/* Whether the shifted clock has reached a deadline; else `slice` is a short real time from now. */
static int reached(const struct timespec *deadline, struct timespec *slice) {
  struct timespec now;
  clock_gettime(CLOCK_REALTIME, &now);
  if (now.tv_sec > deadline->tv_sec || (now.tv_sec == deadline->tv_sec && now.tv_nsec >= deadline->tv_nsec)) return 1;
  int64_t left_ns = (deadline->tv_sec - now.tv_sec > 1) ? SLICE_NS
    : (deadline->tv_sec - now.tv_sec) * 1000000000LL + deadline->tv_nsec - now.tv_nsec;
  real_now(slice);
  slice->tv_nsec += left_ns < SLICE_NS ? left_ns : SLICE_NS;
  if (slice->tv_nsec >= 1000000000L) {
    slice->tv_sec += 1;
    slice->tv_nsec -= 1000000000L;
  }
  return 0;
}

/* Times of the steady clock count from the boot: they are years before those of the system's clock. */
static int is_steady(const struct timespec *deadline) {
  struct timespec now;
  real_now(&now);
  return deadline->tv_sec < now.tv_sec - YEARS_20_S;
}

int pthread_cond_timedwait(pthread_cond_t *restrict cond, pthread_mutex_t *restrict mutex,
                           const struct timespec *restrict deadline) {
  static int (*real)(pthread_cond_t *, pthread_mutex_t *, const struct timespec *);
  if (!real) {
    /* x86-64 keeps an older one beside it, which dlsym may find. */
    void *found = dlvsym(RTLD_NEXT, "pthread_cond_timedwait", "GLIBC_2.3.2");
    if (!found) found = dlsym(RTLD_NEXT, "pthread_cond_timedwait");
    real = (int (*)(pthread_cond_t *, pthread_mutex_t *, const struct timespec *))found;
  }
  if (is_steady(deadline)) return real(cond, mutex, deadline);
  struct timespec slice;
  while (!reached(deadline, &slice)) {
    int ended = real(cond, mutex, &slice);
    if (ended != ETIMEDOUT) return ended;
  }
  return ETIMEDOUT;
}

int sem_timedwait(sem_t *restrict sem, const struct timespec *restrict deadline) {
  static int (*real)(sem_t *, const struct timespec *);
  if (!real) real = (int (*)(sem_t *, const struct timespec *))dlsym(RTLD_NEXT, "sem_timedwait");
  struct timespec slice;
  while (!reached(deadline, &slice)) {
    if (!real(sem, &slice)) return 0;
    if (errno != ETIMEDOUT) return -1;
  }
  errno = ETIMEDOUT;
  return -1;
}

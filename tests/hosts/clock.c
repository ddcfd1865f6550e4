/* A wall clock of its own for a host of tests.hosts: the kernel has one for all.
 *
 * Preloaded, it adds to CLOCK_REALTIME the nanoseconds that stand in the file HOWDAH_TEST_CLOCK (eight bytes,
 * mapped: what is written there counts at once). The monotonic clock and the times of files are left alone.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <fcntl.h>
#include <pthread.h>
#include <semaphore.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

#define SECOND 1000000000LL

static volatile int64_t none, *ahead = &none;

__attribute__((constructor)) static void begin(void) {
    const char *path = getenv("HOWDAH_TEST_CLOCK");
    int file = path ? open(path, O_RDONLY | O_CLOEXEC) : -1;
    if (file < 0) return;
    void *there = mmap(NULL, sizeof *ahead, PROT_READ, MAP_SHARED, file, 0);
    if (there != MAP_FAILED) ahead = there;
    close(file);
}

static void shift(struct timespec *at, int64_t by) {
    int64_t ns = at->tv_sec * SECOND + at->tv_nsec + by;
    at->tv_sec = ns / SECOND;
    at->tv_nsec = ns % SECOND;
}

int clock_gettime(clockid_t clock, struct timespec *at) {
    if (syscall(SYS_clock_gettime, clock, at)) return -1;
    if (clock == CLOCK_REALTIME || clock == CLOCK_REALTIME_COARSE) shift(at, *ahead);
    return 0;
}

int gettimeofday(struct timeval *restrict at, void *restrict zone) {
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    at->tv_sec = now.tv_sec;
    at->tv_usec = now.tv_nsec / 1000;
    return 0;
}

time_t time(time_t *at) {
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    if (at) *at = now.tv_sec;
    return now.tv_sec;
}

/* Waits until a time: of the wall clock if it lies after 2001, of the monotonic one else. */
static const struct timespec *until(const struct timespec *at, struct timespec *own) {
    if (!at || at->tv_sec < SECOND) return at;
    *own = *at;
    shift(own, -*ahead);
    return own;
}

#define NEXT(name, version) \
    static __typeof__(&name) next; \
    if (!next) next = (__typeof__(next))dlvsym(RTLD_NEXT, #name, version); \
    if (!next) next = (__typeof__(next))dlsym(RTLD_NEXT, #name)

int pthread_cond_timedwait(pthread_cond_t *restrict c, pthread_mutex_t *restrict m,
                           const struct timespec *restrict at) {
    NEXT(pthread_cond_timedwait, "GLIBC_2.3.2");
    struct timespec own;
    return next(c, m, until(at, &own));
}

int sem_timedwait(sem_t *restrict s, const struct timespec *restrict at) {
    NEXT(sem_timedwait, "GLIBC_2.34");
    struct timespec own;
    return next(s, until(at, &own));
}

int pthread_mutex_timedlock(pthread_mutex_t *restrict m, const struct timespec *restrict at) {
    NEXT(pthread_mutex_timedlock, "GLIBC_2.34");
    struct timespec own;
    return next(m, until(at, &own));
}

int clock_nanosleep(clockid_t clock, int flags, const struct timespec *at, struct timespec *left) {
    NEXT(clock_nanosleep, "GLIBC_2.17");
    struct timespec own;
    return next(clock, flags, clock == CLOCK_REALTIME && (flags & TIMER_ABSTIME) ? until(at, &own) : at, left);
}

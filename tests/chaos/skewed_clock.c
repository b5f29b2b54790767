/* The wall clock of one process, put forward or back: clock_gettime, gettimeofday and time with SKEW_S added.
   Loaded before the C library; monotonic clocks stay as they are. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdlib.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

static long skew(void) {
    static long seconds;
    static int known;
    if (!known) {
        const char *text = getenv("SKEW_S");
        seconds = text ? atol(text) : 0;
        known = 1;
    }
    return seconds;
}

int clock_gettime(clockid_t clock, struct timespec *when) {
    long failed = syscall(SYS_clock_gettime, clock, when);
    if (!failed && (clock == CLOCK_REALTIME || clock == CLOCK_REALTIME_COARSE)) when->tv_sec += skew();
    return (int)failed;
}

int gettimeofday(struct timeval *when, void *zone) {
    struct timespec now;
    (void)zone;
    if (clock_gettime(CLOCK_REALTIME, &now)) return -1;
    when->tv_sec = now.tv_sec;
    when->tv_usec = now.tv_nsec / 1000;
    return 0;
}

time_t time(time_t *when) {
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    if (when) *when = now.tv_sec;
    return now.tv_sec;
}

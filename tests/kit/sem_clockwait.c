/* For ThreadSanitizer, which knows sem_timedwait, but not sem_clockwait: by that CPython's locks wait
 * for a time, and what a thread did before it opened one would seem unordered. */
#define _GNU_SOURCE
#include <semaphore.h>
#include <time.h>

int sem_clockwait(sem_t *lock, clockid_t clock, const struct timespec *until)
{
    struct timespec now, real;
    long long wait;
    clock_gettime(clock, &now);
    clock_gettime(CLOCK_REALTIME, &real);
    wait = (until->tv_sec - now.tv_sec) * 1000000000LL + until->tv_nsec - now.tv_nsec + real.tv_nsec;
    if (wait < 0)
        wait = 0;
    real.tv_sec += wait / 1000000000;
    real.tv_nsec = wait % 1000000000;
    return sem_timedwait(lock, &real);
}

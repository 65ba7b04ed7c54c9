/* Bus errors in mapped files, and the maps of log files in which they are handled.
 *
 * Access to a page that cannot be read, or is after the end of a truncated file, raises SIGBUS. If
 * a thread copies from a map (`copying`), the copy is abandoned. In a registered map of the log,
 * which is read and written directly, zeros replace the page and the map counts a fault: from then
 * on no data read there is valid, and no data written there is acknowledged. Anywhere else the
 * signal has its previous effect.
 */

#include <errno.h>
#include <setjmp.h>
#include <signal.h>
#include <stdint.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

enum { MAX_LOG_MAPS = 8192, MAX_DOUBLINGS = 30 };

typedef struct {
    uint32_t version; /* odd while the fields change */
    uint32_t faults;
    uintptr_t start, end;
    int protection, fd;
} LogMap;

static LogMap log_maps[MAX_LOG_MAPS];
static size_t log_maps_end;  /* after the last one that was ever used */
static int64_t *faulty_maps; /* how many of those that are registered now have faults */
static uintptr_t page_mask = 4095;
static __thread sigjmp_buf *volatile copying;
static struct sigaction bus_before;

/* Set the counter of faulty maps, which compiled code of other modules reads. Once, first. */
static void count_faults_in(int64_t *maps) { faulty_maps = maps; }

/* Whether a map holds the address, without a lock; of another map the fields may change meanwhile. */
static int log_map_holds(const LogMap *map, uintptr_t address, uintptr_t *end) {
    uint32_t version = __atomic_load_n(&map->version, __ATOMIC_ACQUIRE);
    uintptr_t start = __atomic_load_n(&map->start, __ATOMIC_RELAXED);
    *end = __atomic_load_n(&map->end, __ATOMIC_RELAXED);
    __atomic_thread_fence(__ATOMIC_ACQUIRE);
    return !(version & 1) && version == __atomic_load_n(&map->version, __ATOMIC_RELAXED)
        && start <= address && address < *end;
}

/* The number of the map that holds an address; -1: none. */
static int64_t log_map_of(const void *address) {
    uintptr_t end;
    size_t count = __atomic_load_n(&log_maps_end, __ATOMIC_ACQUIRE);
    for (size_t at = 0; at < count; at++)
        if (log_map_holds(&log_maps[at], (uintptr_t)address, &end)) return (int64_t)at;
    return -1;
}

/* Replace the page by zeros, and as many after it as the map had faults: so a file of any size has
 * few faults. In a signal handler: no lock, no allocation, only async-signal-safe calls. */
static int log_map_patch(void *address) {
    int64_t at = log_map_of(address);
    if (at < 0) return 0;
    LogMap *map = &log_maps[at];
    uint32_t before = __atomic_fetch_add(&map->faults, 1, __ATOMIC_SEQ_CST); /* first: see faults_seen */
    if (!before) __atomic_fetch_add(faulty_maps, 1, __ATOMIC_SEQ_CST);
    uintptr_t page = (uintptr_t)address & ~page_mask;
    uintptr_t end = (map->end + page_mask) & ~page_mask;
    uintptr_t size = (page_mask + 1) << (before < MAX_DOUBLINGS ? before : MAX_DOUBLINGS);
    if (size > end - page) size = end - page;
    return mmap((void *)page, size, map->protection, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0)
        != MAP_FAILED;
}

static void on_bus(int number, siginfo_t *about, void *context) {
    (void)context;
    int sent = about->si_code <= 0; /* by a process; otherwise a fault, which is raised again */
    if (!sent) {
        int kept = errno;
        if (copying) siglongjmp(*copying, 1);
        if (log_map_patch(about->si_addr)) {
            errno = kept;
            return;
        }
    }
    sigaction(number, &bus_before, NULL);
    if (sent) raise(number);
}

static int install_bus_handler(void) {
    struct sigaction action;
    page_mask = (uintptr_t)sysconf(_SC_PAGESIZE) - 1;
    memset(&action, 0, sizeof action);
    action.sa_sigaction = on_bus;
    action.sa_flags = SA_SIGINFO | SA_NODEFER | SA_ONSTACK;
    return sigaction(SIGBUS, &action, &bus_before);
}

static int copy_from_map(void *to, const void *from, size_t size) {
    sigjmp_buf there;
    if (sigsetjmp(there, 0)) {
        copying = NULL;
        return 0;
    }
    copying = &there;
    __asm__ volatile("" ::: "memory");
    memcpy(to, from, size);
    __atomic_thread_fence(__ATOMIC_ACQUIRE); /* later reads are ordered after */
    copying = NULL;
    return 1;
}

/* Register a map; its number, or -1 if there are too many. One thread at a time. */
static int64_t log_map_register(void *start, size_t size, int is_writable, int fd) {
    for (size_t at = 0; at < MAX_LOG_MAPS; at++) {
        LogMap *map = &log_maps[at];
        if (map->end) continue;
        __atomic_fetch_add(&map->version, 1, __ATOMIC_SEQ_CST);
        map->faults = 0;
        map->protection = is_writable ? PROT_READ | PROT_WRITE : PROT_READ;
        map->fd = fd;
        __atomic_store_n(&map->start, (uintptr_t)start, __ATOMIC_RELAXED);
        __atomic_store_n(&map->end, (uintptr_t)start + size, __ATOMIC_RELAXED);
        __atomic_fetch_add(&map->version, 1, __ATOMIC_SEQ_CST);
        if (at >= log_maps_end) __atomic_store_n(&log_maps_end, at + 1, __ATOMIC_RELEASE);
        return (int64_t)at;
    }
    return -1;
}

/* Unregister a map without references, before it is unmapped. */
static void log_map_unregister(int64_t at) {
    LogMap *map = &log_maps[at];
    __atomic_fetch_add(&map->version, 1, __ATOMIC_SEQ_CST);
    __atomic_store_n(&map->start, 0, __ATOMIC_RELAXED);
    __atomic_store_n(&map->end, 0, __ATOMIC_RELAXED);
    __atomic_fetch_add(&map->version, 1, __ATOMIC_SEQ_CST);
    if (map->faults) __atomic_fetch_sub(faulty_maps, 1, __ATOMIC_SEQ_CST);
}

static uint32_t log_map_faults(int64_t at) {
    return __atomic_load_n(&log_maps[at].faults, __ATOMIC_ACQUIRE);
}

/* Whether the map is valid: no fault, and its file is as long as the map. */
static int log_map_is_whole(int64_t at) {
    struct stat about;
    const LogMap *map = &log_maps[at];
    return !log_map_faults(at) && fstat(map->fd, &about) == 0
        && (uint64_t)about.st_size >= map->end - map->start;
}

/* Read a byte of each page, to detect unreadable ones; return the last byte. */
static uint8_t touch_pages(const uint8_t *data, size_t size) {
    for (size_t at = 0; at < size; at += page_mask + 1) (void)*(const volatile uint8_t *)(data + at);
    return *(const volatile uint8_t *)(data + size - 1);
}

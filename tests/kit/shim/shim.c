/* Refusals of disk and memory, and a clock, for one process: loaded by LD_PRELOAD, it stands before the
   C library.

   Calls are met whoever makes them: the interpreter, the compiled core, RocksDB. What takes a
   descriptor is met where /proc/self/fd leads below `root`, what takes a path where that is there.
   Not seen: the library's own calls (a `FILE`'s writes), bare `syscall`, io_uring, pages that the
   kernel writes back. Every call is let through until `shim_arm` has been called. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/sendfile.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include <time.h>
#include <unistd.h>

enum kind { OPEN, WRITE, PWRITE, FSYNC, FDATASYNC, FALLOCATE, FTRUNCATE, RENAME, UNLINK, MKDIR, MMAP,
            MSYNC, RANGE, LINK, KINDS };
enum { PATH = 4096, SHORT = -1, KILLED = -2 };

/* What tests/kit/shim reads and writes; the order is told there too. */
struct shim_state {
    long counts[KINDS];      /* of calls met since `shim_arm` */
    long foreign[KINDS];     /* of those the ones that libpython did not make */
    long matched;            /* of the kinds and the part that are armed */
    long struck;             /* of those the ones that were refused, or cut short */
    long locked;             /* of all calls met the ones made with the interpreter's lock held */
    char where[PATH];        /* the path of the first that was struck */
    char caller[PATH];       /* the library that made it */
    int all_short;           /* every write takes a part only */
} shim_state;

static struct { unsigned kinds; long first, last; int code; char root[PATH], part[PATH]; } rule;
static volatile int is_on;
static void (*notified)(int kind, const char *path);
static char notified_libraries[PATH];
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

/* The child of a fork finds the lock free, whatever another thread of its parent is doing. */
static void take(void) { pthread_mutex_lock(&lock); }
static void give(void) { pthread_mutex_unlock(&lock); }
__attribute__((constructor)) static void heed_forks(void) { pthread_atfork(take, give, give); }

/* Meet calls below `root`; from the `first` to the `last` one of `kinds` whose path holds `part`
   give `code` (SHORT: take a part; KILLED: kill this process first). */
void shim_arm(unsigned kinds, long first, long last, int code, const char *root, const char *part) {
    pthread_mutex_lock(&lock);
    memset(&shim_state, 0, offsetof(struct shim_state, all_short));
    rule.kinds = kinds, rule.first = first, rule.last = last, rule.code = code;
    snprintf(rule.root, PATH, "%s", root);
    snprintf(rule.part, PATH, "%s", part);
    is_on = 1;
    pthread_mutex_unlock(&lock);
}

void shim_off(void) { is_on = 0, notified = NULL; }

/* Have a function told of each call by libraries, whose paths hold texts, before it is made; the
   texts are parted by colons. */
void shim_notify(void (*function)(int, const char *), const char *libraries) {
    snprintf(notified_libraries, PATH, "%s", libraries);
    notified = function;
}

static int is_notified_of(const char *caller) {
    char text[PATH], *rest = text, *one;
    snprintf(text, PATH, "%s", notified_libraries);
    while ((one = strsep(&rest, ":")) != NULL)
        if (strstr(caller, one) != NULL) return 1;
    return 0;
}

static int has_lock(void) {
    static int (*check)(void);
    if (check == NULL)
        check = (int (*)(void))dlsym(RTLD_DEFAULT, "PyGILState_Check");
    return check != NULL && check();
}

static int meet(enum kind kind, const char *path, void *from) {
    size_t size = strlen(rule.root);
    int code = 0;
    if (strncmp(path, rule.root, size) != 0)
        return 0;
    Dl_info found = {0};
    const char *caller = dladdr(from, &found) && found.dli_fname ? found.dli_fname : "";
    int is_foreign = strstr(caller, "libpython") == NULL && strstr(caller, "/bin/python") == NULL;
    void (*notify)(int, const char *) = notified;
    if (notify && is_notified_of(caller))
        notify(kind, path);
    int is_locked = has_lock();
    pthread_mutex_lock(&lock);
    shim_state.counts[kind]++;
    shim_state.locked += is_locked;
    shim_state.foreign[kind] += is_foreign;
    if (rule.kinds >> kind & 1 && strstr(path, rule.part) != NULL) {
        long number = ++shim_state.matched;
        if (rule.first <= number && number <= rule.last) {
            code = rule.code;
            if (shim_state.struck++ == 0) {
                snprintf(shim_state.where, PATH, "%s", path);
                snprintf(shim_state.caller, PATH, "%s", caller);
            }
        }
    }
    if (code == KILLED) kill(getpid(), SIGKILL);
    if (!code && shim_state.all_short)
        code = SHORT;
    pthread_mutex_unlock(&lock);
    return code;
}

static int meet_fd(enum kind kind, int fd, void *from) {
    char link[64], path[PATH];
    int kept = errno;
    snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
    ssize_t size = readlink(link, path, PATH - 1);
    errno = kept;
    if (size < 0)
        return 0;
    path[size] = 0;
    return meet(kind, path, from);
}

static int meet_at(enum kind kind, int folder, const char *name, void *from) {
    char link[64] = "/proc/self/cwd", path[2 * PATH];
    int kept = errno;
    if (name[0] == '/')
        return meet(kind, name, from);
    if (folder != AT_FDCWD)
        snprintf(link, sizeof link, "/proc/self/fd/%d", folder);
    ssize_t size = readlink(link, path, PATH - 1);
    errno = kept;
    if (size < 0)
        return 0;
    snprintf(path + size, PATH, "/%s", name);
    return meet(kind, path, from);
}

/* Have the function of `shim_notify` told of a read, which is neither counted nor refused. */
static void notify_of_read(int fd, void *from) {
    char link[64], path[PATH];
    int kept = errno;
    Dl_info found = {0};
    void (*notify)(int, const char *) = notified;
    if (!is_on || !notify || !dladdr(from, &found) || !found.dli_fname || !is_notified_of(found.dli_fname))
        return;
    snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
    ssize_t size = readlink(link, path, PATH - 1);
    errno = kept;
    if (size < 0)
        return;
    path[size] = 0;
    if (strncmp(path, rule.root, strlen(rule.root)) == 0)
        notify(KINDS, path);
}

#define REAL(name) \
    static __typeof__(name) *real; \
    if (!real) real = (__typeof__(name) *)dlsym(RTLD_NEXT, #name)
#define CALLER __builtin_return_address(0)
#define REFUSE(met, failed) \
    do { int code_ = is_on ? (met) : 0; if (code_ > 0) { errno = code_; return failed; } } while (0)
#define HALF(size) ((size) > 1 ? (size) / 2 : (size))
#define SIZED(kind, fd, size) \
    do { int code_ = is_on ? meet_fd(kind, fd, CALLER) : 0; \
         if (code_ > 0) { errno = code_; return -1; } if (code_ == SHORT) size = HALF(size); } while (0)
/* The first vector is enough for a part of what many hold. */
#define VECTORS(kind, fd) \
    struct iovec one_; \
    do { int code_ = is_on ? meet_fd(kind, fd, CALLER) : 0; \
         if (code_ > 0) { errno = code_; return -1; } \
         if (code_ == SHORT && count > 0) { \
             one_ = vectors[0]; one_.iov_len = HALF(one_.iov_len); vectors = &one_; count = 1; } } while (0)
#define ALSO(name, of) extern __typeof__(of) name __attribute__((alias(#of)))

#define OPENS(name, folder, ...) { \
    mode_t mode = 0; \
    if (flags & (O_CREAT | __O_TMPFILE)) { \
        va_list rest; va_start(rest, flags); mode = va_arg(rest, mode_t); va_end(rest); } \
    REAL(name); REFUSE(meet_at(OPEN, folder, path, CALLER), -1); return real(__VA_ARGS__, mode); }
int open(const char *path, int flags, ...) OPENS(open, AT_FDCWD, path, flags)
int openat(int at, const char *path, int flags, ...) OPENS(openat, at, at, path, flags)
FILE *fopen(const char *path, const char *mode) {
    REAL(fopen); REFUSE(meet_at(OPEN, AT_FDCWD, path, CALLER), NULL); return real(path, mode); }

ssize_t write(int fd, const void *data, size_t size) {
    REAL(write); SIZED(WRITE, fd, size); return real(fd, data, size); }
ssize_t pwrite(int fd, const void *data, size_t size, off_t at) {
    REAL(pwrite); SIZED(PWRITE, fd, size); return real(fd, data, size, at); }
ssize_t writev(int fd, const struct iovec *vectors, int count) {
    REAL(writev); VECTORS(WRITE, fd); return real(fd, vectors, count); }
ssize_t pwritev(int fd, const struct iovec *vectors, int count, off_t at) {
    REAL(pwritev); VECTORS(PWRITE, fd); return real(fd, vectors, count, at); }
ssize_t pwritev2(int fd, const struct iovec *vectors, int count, off_t at, int flags) {
    REAL(pwritev2); VECTORS(PWRITE, fd); return real(fd, vectors, count, at, flags); }
ssize_t sendfile(int fd, int from, off_t *at, size_t size) {
    REAL(sendfile); SIZED(WRITE, fd, size); return real(fd, from, at, size); }
ssize_t copy_file_range(int from, off_t *at, int fd, off_t *to, size_t size, unsigned flags) {
    REAL(copy_file_range); SIZED(WRITE, fd, size); return real(from, at, fd, to, size, flags); }

ssize_t pread(int fd, void *data, size_t size, off_t at) {
    REAL(pread); if (is_on) notify_of_read(fd, CALLER); return real(fd, data, size, at); }
ssize_t preadv2(int fd, const struct iovec *vectors, int count, off_t at, int flags) {
    REAL(preadv2); if (is_on) notify_of_read(fd, CALLER); return real(fd, vectors, count, at, flags); }

int fsync(int fd) { REAL(fsync); REFUSE(meet_fd(FSYNC, fd, CALLER), -1); return real(fd); }
int fdatasync(int fd) { REAL(fdatasync); REFUSE(meet_fd(FDATASYNC, fd, CALLER), -1); return real(fd); }
int syncfs(int fd) { REAL(syncfs); REFUSE(meet_fd(FSYNC, fd, CALLER), -1); return real(fd); }
int sync_file_range(int fd, off_t at, off_t size, unsigned flags) {
    REAL(sync_file_range); REFUSE(meet_fd(RANGE, fd, CALLER), -1); return real(fd, at, size, flags); }
int fallocate(int fd, int mode, off_t at, off_t size) {
    REAL(fallocate); REFUSE(meet_fd(FALLOCATE, fd, CALLER), -1); return real(fd, mode, at, size); }
int posix_fallocate(int fd, off_t at, off_t size) {
    REAL(posix_fallocate);
    int code = is_on ? meet_fd(FALLOCATE, fd, CALLER) : 0;
    return code > 0 ? code : real(fd, at, size); }
int ftruncate(int fd, off_t size) {
    REAL(ftruncate); REFUSE(meet_fd(FTRUNCATE, fd, CALLER), -1); return real(fd, size); }
int truncate(const char *path, off_t size) {
    REAL(truncate); REFUSE(meet_at(FTRUNCATE, AT_FDCWD, path, CALLER), -1); return real(path, size); }

int rename(const char *old, const char *path) {
    REAL(rename); REFUSE(meet_at(RENAME, AT_FDCWD, old, CALLER), -1); return real(old, path); }
int renameat(int from, const char *old, int at, const char *path) {
    REAL(renameat); REFUSE(meet_at(RENAME, from, old, CALLER), -1); return real(from, old, at, path); }
int renameat2(int from, const char *old, int at, const char *path, unsigned flags) {
    REAL(renameat2);
    REFUSE(meet_at(RENAME, from, old, CALLER), -1); return real(from, old, at, path, flags); }
int link(const char *old, const char *path) {
    REAL(link); REFUSE(meet_at(LINK, AT_FDCWD, path, CALLER), -1); return real(old, path); }
int linkat(int from, const char *old, int at, const char *path, int flags) {
    REAL(linkat);
    REFUSE(meet_at(LINK, at, path, CALLER), -1); return real(from, old, at, path, flags); }
int unlink(const char *path) {
    REAL(unlink); REFUSE(meet_at(UNLINK, AT_FDCWD, path, CALLER), -1); return real(path); }
int unlinkat(int at, const char *path, int flags) {
    REAL(unlinkat); REFUSE(meet_at(UNLINK, at, path, CALLER), -1); return real(at, path, flags); }
int rmdir(const char *path) {
    REAL(rmdir); REFUSE(meet_at(UNLINK, AT_FDCWD, path, CALLER), -1); return real(path); }
int mkdir(const char *path, mode_t mode) {
    REAL(mkdir); REFUSE(meet_at(MKDIR, AT_FDCWD, path, CALLER), -1); return real(path, mode); }
int mkdirat(int at, const char *path, mode_t mode) {
    REAL(mkdirat); REFUSE(meet_at(MKDIR, at, path, CALLER), -1); return real(at, path, mode); }

void *mmap(void *address, size_t size, int access, int flags, int fd, off_t at) {
    REAL(mmap);
    if (fd >= 0)
        REFUSE(meet_fd(MMAP, fd, CALLER), MAP_FAILED);
    return real(address, size, access, flags, fd, at); }
int msync(void *address, size_t size, int flags) { /* of no path: the kernel alone knows it */
    REAL(msync); REFUSE(meet(MSYNC, rule.root, CALLER), -1); return real(address, size, flags); }

/* The machine's clock as a test has set it, for Python and C alike; ns since the epoch. */
struct shim_clock {
    long long stopped;       /* where it stands; 0: it runs */
    long long step;          /* how far each look moves it on while it stands */
    long long ahead;         /* how far it is set forward while it runs */
} shim_clock;

int clock_gettime(clockid_t which, struct timespec *now) {
    enum { SECOND = 1000000000 };
    REAL(clock_gettime);
    int failed = real(which, now);
    if (failed || which != CLOCK_REALTIME || !(shim_clock.stopped || shim_clock.ahead))
        return failed;
    long long told = now->tv_sec * (long long)SECOND + now->tv_nsec + shim_clock.ahead;
    if (shim_clock.stopped)
        told = __atomic_fetch_add(&shim_clock.stopped, shim_clock.step, __ATOMIC_RELAXED);
    long long rest = (told % SECOND + SECOND) % SECOND;
    now->tv_sec = (told - rest) / SECOND, now->tv_nsec = rest;
    return 0; }

/* Memory that is refused to one library: the n-th block that it asks for from `shim_lack` on, in the
   thread of that call. */
extern void *__libc_malloc(size_t), *__libc_calloc(size_t, size_t), *__libc_realloc(void *, size_t);
static struct { char library[PATH]; long number, met; pthread_t thread; } lack;
static volatile int is_lacking;

/* Refuse the block of this `number`, counted from 1, to the library whose path holds this text.
   Returns how many blocks the library before it has asked for. */
long shim_lack(const char *library, long number) {
    long met = lack.met;
    snprintf(lack.library, PATH, "%s", library);
    lack.number = number, lack.met = 0, lack.thread = pthread_self(), is_lacking = number > 0;
    return met; }

static int is_refused(void *from) {
    Dl_info found = {0};
    return pthread_equal(pthread_self(), lack.thread) && dladdr(from, &found) && found.dli_fname &&
        strstr(found.dli_fname, lack.library) && ++lack.met == lack.number; }

#define BLOCK(...) \
    if (is_lacking && is_refused(CALLER)) { errno = ENOMEM; return NULL; } \
    return __VA_ARGS__
void *malloc(size_t size) { BLOCK(__libc_malloc(size)); }
void *calloc(size_t count, size_t size) { BLOCK(__libc_calloc(count, size)); }
void *realloc(void *block, size_t size) { BLOCK(__libc_realloc(block, size)); }

ALSO(open64, open); ALSO(openat64, openat); ALSO(fopen64, fopen); ALSO(pwrite64, pwrite);
ALSO(pread64, pread); ALSO(preadv64v2, preadv2);
ALSO(pwritev64, pwritev); ALSO(pwritev64v2, pwritev2); ALSO(sendfile64, sendfile);
ALSO(fallocate64, fallocate); ALSO(posix_fallocate64, posix_fallocate); ALSO(mmap64, mmap);
ALSO(ftruncate64, ftruncate); ALSO(truncate64, truncate);

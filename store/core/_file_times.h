/* Times of a file's status, in ns. Only inlined functions, so that each module uses what it needs. */

#ifndef CQSTORE_FILE_TIMES_H
#define CQSTORE_FILE_TIMES_H

#include <stdint.h>
#include <sys/stat.h>

static inline int64_t in_ns(struct timespec time) {
    return (int64_t)time.tv_sec * 1000000000 + time.tv_nsec;
}

/* Return the time of the last change of the bytes. */
static inline int64_t modified_ns(const struct stat *status) {
#ifdef __APPLE__
    return in_ns(status->st_mtimespec);
#else
    return in_ns(status->st_mtim);
#endif
}

/* Return the time of the last change of the inode. */
static inline int64_t changed_ns(const struct stat *status) {
#ifdef __APPLE__
    return in_ns(status->st_ctimespec);
#else
    return in_ns(status->st_ctim);
#endif
}

#endif

# cython: language_level=3, boundscheck=False, wraparound=False
"""Lists a folder that contains regular files only, with the status of each file.

Folders with anything else, and all errors, are left to the slow path in Python.
"""

from libc.stdint cimport int64_t

cdef extern from "Python.h":
    bytes PyUnicode_EncodeFSDefault(object)
    str PyUnicode_DecodeFSDefault(const char *)
    const char *PyBytes_AS_STRING(object) noexcept nogil


cdef extern from *:
    """
    #ifndef _GNU_SOURCE
    #define _GNU_SOURCE
    #endif
    #include <dirent.h>
    #include <errno.h>
    #include <fcntl.h>
    #include <stdint.h>
    #include <string.h>
    #include <sys/stat.h>
    #include <unistd.h>
    #include "_file_times.h"

    typedef struct {
        const char *name;  /* valid until the next call */
        int64_t size, inode, modified_ns, changed_ns;
    } regular_file;

    /* Find the next entry. 1: a regular file; 0: there is none; -1: another entry, or an error. */
    static int next_regular(DIR *folder, regular_file *found) {
        struct dirent *entry;
        struct stat status;
        for (;;) {
            errno = 0;
            entry = readdir(folder);
            if (entry == NULL)
                return errno ? -1 : 0;
            if (strcmp(entry->d_name, ".") != 0 && strcmp(entry->d_name, "..") != 0)
                break;
        }
        if (fstatat(dirfd(folder), entry->d_name, &status, AT_SYMLINK_NOFOLLOW) != 0
            || !S_ISREG(status.st_mode))
            return -1;
        found->name = entry->d_name;
        found->size = status.st_size;
        found->inode = (int64_t)status.st_ino;
        found->modified_ns = modified_ns(&status);
        found->changed_ns = changed_ns(&status);
        return 1;
    }
    """
    ctypedef struct DIR:
        pass
    ctypedef struct regular_file:
        const char *name
        int64_t size, inode, modified_ns, changed_ns
    DIR *opendir(const char *) noexcept nogil
    int closedir(DIR *) noexcept nogil
    int next_regular(DIR *, regular_file *) noexcept nogil


def regular_files(str folder not None):
    """Return name, size, inode, and times of the last changes of bytes and inode, of each file.

    By name; times are in ns. ``None``: an entry is not a regular file, or the folder cannot be
    listed.
    """
    cdef bytes path = PyUnicode_EncodeFSDefault(folder)
    cdef regular_file found
    cdef list rows = []
    cdef int state
    cdef DIR *opened
    cdef const char *name_of_folder = PyBytes_AS_STRING(path)
    if b"\0" in path:
        return None
    with nogil:
        opened = opendir(name_of_folder)
    if opened == NULL:
        return None
    try:
        while True:
            with nogil:
                state = next_regular(opened, &found)
            if state <= 0:
                break
            name = PyUnicode_DecodeFSDefault(found.name)
            rows.append((name, found.size, found.inode, found.modified_ns, found.changed_ns))
    finally:
        closedir(opened)
    if state < 0:
        return None
    rows.sort()
    return rows

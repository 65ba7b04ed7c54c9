# cython: language_level=3, boundscheck=False, wraparound=False
"""Lists folders of queues, and finds the ends and units of short queues in the same pass.

Names are looked up below open folders, and the interpreter's lock is released for many queues at
once, so that threads share the work. A topic or a queue with anything unusual, such as a link, and
all errors are left to the slow path in Python.
"""

from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize
from libc.stdint cimport int32_t, int64_t, uint8_t
from libc.stdio cimport snprintf
from libc.stdlib cimport free, malloc, qsort, realloc
from libc.string cimport memcpy, strchr
from posix.unistd cimport close

from cqstore.cq_file._short_queue cimport (
    O_NOFOLLOW,
    PAGE,
    ShortUnits,
    open_file,
    path_bytes,
    read_only_page,
    stat,
    units_of_page,
)
from cqstore.store.core._bytes cimport load64
from cqstore.store.core._layout cimport UNIT_OF_FILES

cdef enum:
    NAME_DIGITS = 20
    ID_TEXT = 12
    FACTS = NAME_DIGITS + 1 + 32


cdef extern from *:
    """
    #include <dirent.h>
    #include <stdlib.h>
    #include <string.h>
    #include "_file_times.h"

    enum { NAME_BYTES = 20 };

    static int64_t inode_of(const struct stat *status) { return (int64_t)status->st_ino; }
    static int status_of(const char *path, struct stat *found) { return stat(path, found) == 0; }
    static int status_below(int folder, const char *name, struct stat *found) {
        return fstatat(folder, name, found, AT_SYMLINK_NOFOLLOW) == 0 && S_ISREG(found->st_mode);
    }

    static int compare_ids(const void *one, const void *other) {
        int32_t left = *(const int32_t *)one, right = *(const int32_t *)other;
        return (left > right) - (left < right);
    }

    /* Open a folder below another one; NULL: it is a link, not a folder, or an error. */
    static DIR *open_folder(int parent, const char *name) {
        int number = openat(parent, name, O_RDONLY | O_DIRECTORY | O_CLOEXEC | O_NOFOLLOW);
        DIR *folder = number < 0 ? NULL : fdopendir(number);
        if (folder == NULL && number >= 0)
            close(number);
        return folder;
    }

    /* Return the next entry, without those of the folder itself; NULL: none, or an error (errno). */
    static struct dirent *next_entry(DIR *folder) {
        struct dirent *entry;
        do {
            errno = 0;
            entry = readdir(folder);
        } while (entry != NULL
                 && (strcmp(entry->d_name, ".") == 0 || strcmp(entry->d_name, "..") == 0));
        return entry;
    }

    /* As `parse_queue_id` of the layout. */
    static int parse_id(const char *name, int32_t *found) {
        int is_negative = *name == '-';
        const char *at = name + is_negative;
        int64_t value = 0;
        if (strcmp(name, "0") != 0 && (*at < '1' || *at > '9'))
            return 0;
        for (; *at != 0; at++) {
            if (*at < '0' || *at > '9' || value > INT32_MAX)
                return 0;
            value = 10 * value + (*at - '0');
        }
        value = is_negative ? -value : value;
        *found = (int32_t)value;
        return value >= INT32_MIN && value <= INT32_MAX;
    }

    /* As `is_file_name`; `start` gets the number. */
    static int parse_name(const char *name, int64_t *start) {
        size_t at;
        int64_t value = 0;
        for (at = 0; at < NAME_BYTES; at++) {
            if (name[at] < '0' || name[at] > '9')
                return 0;
        }
        if (name[at] != 0 || strcmp(name, "09223372036854775807") > 0)
            return 0;
        for (at = 0; at < NAME_BYTES; at++)
            value = 10 * value + (name[at] - '0');
        *start = value;
        return 1;
    }

    /* Copy the name of the only entry of a folder, a queue file, and parse it. */
    static int only_file(DIR *folder, char *name, int64_t *start) {
        struct dirent *entry = next_entry(folder);
        if (entry == NULL || entry->d_type != DT_REG || !parse_name(entry->d_name, start))
            return 0;
        memcpy(name, entry->d_name, NAME_BYTES + 1);
        return next_entry(folder) == NULL && errno == 0;
    }

    /* Return 1 with the next queue id of a topic's folder; 0: there is none; -1: left to others. */
    static int next_id(DIR *folder, int32_t *found) {
        struct dirent *entry;
        for (;;) {
            entry = next_entry(folder);
            if (entry == NULL)
                return errno ? -1 : 0;
            if (entry->d_type == DT_LNK || entry->d_type == DT_UNKNOWN)
                return -1;
            if (entry->d_type == DT_DIR && parse_id(entry->d_name, found))
                return 1;
        }
    }
    """
    ctypedef struct DIR:
        pass
    int compare_ids(const void *, const void *) noexcept nogil
    DIR *open_folder(int parent, const char *name) noexcept nogil
    int only_file(DIR *folder, char *name, int64_t *start) noexcept nogil
    int next_id(DIR *folder, int32_t *found) noexcept nogil
    DIR *opendir(const char *) noexcept nogil
    int closedir(DIR *) noexcept nogil
    int dirfd(DIR *) noexcept nogil
    int64_t modified_ns(const stat *) noexcept nogil
    int64_t changed_ns(const stat *) noexcept nogil
    int64_t inode_of(const stat *) noexcept nogil
    int status_of(const char *, stat *) noexcept nogil
    int status_below(int folder, const char *name, stat *) noexcept nogil


cdef struct Queue:
    int32_t queue_id
    int64_t start
    int64_t size  # of its only file; -1: left to the slow path
    int64_t live  # the first unit at or after the log's minimum
    ShortUnits units


cdef struct Found:
    Queue *rows
    Py_ssize_t count
    Py_ssize_t room


cdef int find_queue(int topic, const char *name, Queue *queue, stat *status, uint8_t *page,
                    int64_t max_phy_offset) noexcept nogil:
    """Read the first page of a short queue; return whether it is one with a single file."""
    cdef char file_name[NAME_DIGITS + 1]
    cdef Py_ssize_t size
    cdef int file = -1
    cdef bint found
    cdef DIR *folder = open_folder(topic, name)
    if folder == NULL:
        return False
    found = only_file(folder, file_name, &queue.start)
    if found:
        file = open_file(dirfd(folder), file_name, O_NOFOLLOW, status)
    closedir(folder)
    if file < 0:
        return False
    size = read_only_page(file, page, PAGE, status.st_size)
    close(file)
    queue.size = status.st_size
    return size >= UNIT_OF_FILES and units_of_page(
        page, size, status.st_size, max_phy_offset, &queue.units
    )


cdef Queue *new_row(Found *found) noexcept nogil:
    """Return a new last row; ``NULL``: there is no memory."""
    cdef Queue *rows
    cdef Py_ssize_t room
    if found.count == found.room:
        room = 2 * found.room + 64
        rows = <Queue *> realloc(found.rows, room * sizeof(Queue))
        if rows == NULL:
            return NULL
        found.rows, found.room = rows, room
    found.count += 1
    return &found.rows[found.count - 1]


cdef int32_t *ids_of(DIR *topic, Py_ssize_t *count) noexcept nogil:
    """Return the queue ids of a topic, increasing; ``NULL``: left to the slow path."""
    cdef Py_ssize_t room = 16
    cdef int state
    cdef int32_t *larger
    cdef int32_t *ids = <int32_t *> malloc(room * sizeof(int32_t))
    count[0] = 0
    while ids != NULL:
        if count[0] == room:
            room *= 2
            larger = <int32_t *> realloc(ids, room * sizeof(int32_t))
            if larger == NULL:
                break
            ids = larger
        state = next_id(topic, &ids[count[0]])
        if state == 0:
            qsort(ids, count[0], sizeof(int32_t), compare_ids)
            return ids
        if state < 0:
            break
        count[0] += 1
    free(ids)
    return NULL


cdef Py_ssize_t find_topic(int parent, const char *name, Found *found, int64_t min_phy_offset,
                           int64_t max_phy_offset) noexcept nogil:
    """Add a row for each queue of a topic; return their number, -1: left to the slow path."""
    cdef uint8_t page[PAGE]
    cdef char id_name[ID_TEXT]
    cdef Py_ssize_t count = 0, at, before = found.count
    cdef stat status
    cdef Queue *queue
    cdef int32_t *ids = NULL
    cdef DIR *topic = open_folder(parent, name)
    if topic != NULL:
        ids = ids_of(topic, &count)
    if ids != NULL:
        for at in range(count):
            queue = new_row(found)
            if queue == NULL:
                free(ids)
                ids = NULL
                break
            snprintf(id_name, ID_TEXT, "%d", <int> ids[at])
            queue.queue_id, queue.live = ids[at], 0
            if not find_queue(dirfd(topic), id_name, queue, &status, page, max_phy_offset):
                queue.size = -1
                continue
            while queue.live < queue.units.count and load64(
                page + queue.live * UNIT_OF_FILES
            ) < min_phy_offset:
                queue.live += 1
    if topic != NULL:
        closedir(topic)
    if ids == NULL:
        found.count = before
        return -1
    free(ids)
    return count


cdef list rows_of(Found *found, Py_ssize_t first, Py_ssize_t count):
    cdef list rows = []
    cdef Py_ssize_t at
    cdef Queue *queue
    for at in range(first, first + count):
        queue = &found.rows[at]
        rows.append((queue.queue_id, None) if queue.size < 0 else (queue.queue_id, (
            queue.start, queue.size, queue.units.count, queue.live,
            queue.units.last_phy, queue.units.end_phy,
        )))
    return rows


def topic_ends(
    str parent not None, list topics not None, int64_t min_phy_offset, int64_t max_phy_offset
):
    """List the queues of ``topics``, folders of ``parent``; return a list or ``None`` for each.

    The list has, by rising queue id, ``(queue_id, end)``. The end of a short queue, see
    ``short_queue``, is ``(start, size, units, live, last_phy, end_phy)``: start and size of its
    file in bytes, number of units, those of them before ``min_phy_offset``, phy offset of the last
    unit and end of its record. It is ``None`` for all other queues. ``None`` instead of a list: the
    topic is left to the slow path. Any thread; the lock is not held while folders are read.
    """
    cdef Found found = Found(NULL, 0, 0)
    cdef bytes folder = path_bytes(parent)
    cdef list names = [path_bytes(name) for name in topics]
    cdef Py_ssize_t count = len(names), at, first = 0
    cdef int number
    cdef stat status
    if folder is None or None in names:
        return [None] * count
    cdef const char *path = PyBytes_AS_STRING(folder)
    cdef const char **texts = <const char **> malloc((count + 1) * sizeof(char *))
    cdef Py_ssize_t *counts = <Py_ssize_t *> malloc((count + 1) * sizeof(Py_ssize_t))
    cdef DIR *opened
    try:
        if texts == NULL or counts == NULL:
            raise MemoryError
        for at in range(count):
            texts[at] = PyBytes_AS_STRING(<bytes> names[at])
            counts[at] = -1
        with nogil:
            opened = opendir(path)
            if opened != NULL:
                for at in range(count):
                    if strchr(texts[at], c'/') == NULL:
                        counts[at] = find_topic(
                            dirfd(opened), texts[at], &found, min_phy_offset, max_phy_offset
                        )
                closedir(opened)
        lists = []
        for at in range(count):
            lists.append(None if counts[at] < 0 else rows_of(&found, first, counts[at]))
            first += max(counts[at], 0)
        return lists
    finally:
        free(texts)
        free(counts)
        free(found.rows)


cdef bytes facts_of(const char *name, const stat *status):
    """Return name, size, inode and times of a queue file, as ``file_facts`` packs them."""
    cdef int64_t[4] numbers = [
        status.st_size, inode_of(status), modified_ns(status), changed_ns(status),
    ]
    cdef bytes facts = PyBytes_FromStringAndSize(NULL, FACTS)
    cdef char *to = PyBytes_AS_STRING(facts)
    memcpy(to, name, NAME_DIGITS + 1)
    memcpy(to + NAME_DIGITS + 1, numbers, sizeof(numbers))
    return facts


def topic_files(str topic not None, list queue_ids not None):
    """List queues of one topic, a folder, that have one file; return a tuple or ``None`` for each.

    The tuple is ``(start, facts)``: start of the file in bytes, and its facts, see ``file_facts``.
    ``None``: no folder, no file, several files, or anything else in the folder.
    """
    cdef char name[ID_TEXT]
    cdef char file_name[NAME_DIGITS + 1]
    cdef stat status
    cdef int64_t start
    cdef int32_t queue_id
    cdef bint found
    cdef bytes path = path_bytes(topic)
    cdef list rows = []
    cdef DIR *above = NULL
    cdef DIR *folder
    if path is not None:
        above = opendir(PyBytes_AS_STRING(path))
    if above == NULL:
        return [None] * len(queue_ids)
    try:
        for number in queue_ids:
            queue_id = number
            snprintf(name, ID_TEXT, "%d", <int> queue_id)
            with nogil:
                folder = open_folder(dirfd(above), name)
                found = folder != NULL and only_file(folder, file_name, &start)
                found = found and status_below(dirfd(folder), file_name, &status)
                if folder != NULL:
                    closedir(folder)
            rows.append((start, facts_of(file_name, &status)) if found else None)
    finally:
        closedir(above)
    return rows


def changed_at(str folder not None, list paths not None, int64_t size):
    """Return the times of the last change of a folder and of files, ns; see ``known_ends``.

    ``(0, 0)``: one of them cannot be accessed. Without files, or if one has another size, the
    second time is 0.
    """
    cdef stat status
    cdef int64_t of_folder, of_files = 0
    cdef bint is_whole = True
    cdef bytes path = path_bytes(folder)
    if path is None or not status_of(PyBytes_AS_STRING(path), &status):
        return 0, 0
    of_folder = modified_ns(&status)
    for each in paths:
        path = path_bytes(each)
        if path is None or not status_of(PyBytes_AS_STRING(path), &status):
            return 0, 0
        is_whole = is_whole and status.st_size == size
        of_files = max(of_files, modified_ns(&status))
    return of_folder, of_files if is_whole else 0

# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True
"""KeyWriter: writes rows of keys as entries of an index file, and links them into slot chains.

All of it runs without the GIL. When to write, the files and the error messages are decided in
Python, see ``cqstore.store.index.index_file``.
"""

import os

from libc.errno cimport EINTR, EIO, errno
from libc.stdint cimport INT32_MAX, int32_t, int64_t, uint8_t, uint32_t
from libc.stdlib cimport calloc, free, malloc
from libc.string cimport memcpy, memset
from posix.unistd cimport pread, pwrite

from cqstore.store.core._bytes cimport load32, store32, store64
from cqstore.store.core._column cimport Block
from cqstore.store.core._layout cimport (
    AT_INDEX_SLOTS_USED, AT_PHY_OF_ENTRY, AT_PREVIOUS_OF_ENTRY, AT_TIME_OF_ENTRY, INDEX_ENTRY,
    INDEX_HEADER, INDEX_SLOT,
)
from cqstore.store.index._batch cimport KeyColumns, KeyRow

cdef extern from *:
    """
    #include <sys/stat.h>

    static int64_t size_of(int fd) { /* -1: see errno */
        struct stat about;
        return fstat(fd, &about) == 0 ? (int64_t)about.st_size : -1;
    }
    """
    int64_t size_of(int fd) noexcept nogil

cdef enum:
    DIGIT_BITS = 8  # digit of a slot number; one pass sorts by one digit
    DIGITS = 256
    PAGE = 4096
    BLOCK_ENTRIES = 3000  # written with one call
    MAX_KEPT = 1 << 26  # limit of the bytes of slots that are cached in memory
cdef int64_t MAX_IN_FILE = <int64_t> 1 << 56  # so that no position in a file overflows


class UnreadSlotsError(Exception):
    """Slots could not be read: position, bytes expected, bytes read, and the errno or 0."""


cdef struct Link:
    # An entry of a batch, with its slot; after sorting, the newest entries of the slots are the
    # chains.
    uint32_t slot, row


cdef struct Write:
    # The data to write, and the error.
    int fd
    int64_t first, begin_timestamp
    int32_t first_time_diff, slots_used
    const KeyRow *rows
    Py_ssize_t count, chain_count
    Link *chains  # distinct slots, ascending, each with its newest row
    int32_t *previous  # of each row; negative: the head of chain -1 - n
    uint8_t *block  # for entries
    int code  # errno
    int64_t position, size, got  # of a failed read; size 0: a write failed


cdef class KeyWriter:
    """Writes keys of one index file: entries, then header, then slots. One thread at a time.

    So a concurrent reader finds complete chains. A failed write may be repeated with the same keys:
    the old values of the slots are kept until ``forget_heads``, because some slots may have been
    written already.

    Only this writer writes slots. So each page of slots is read once and cached for the life of the
    writer, except in a very large file, whose slots are read and written one by one.
    """

    cdef int64_t slots, entries
    cdef uint8_t *kept  # the file up to the end of its slots, with the pages read so far; or NULL
    cdef uint8_t *is_kept  # a byte per page
    cdef int32_t *heads  # of the chains of the last write
    cdef Py_ssize_t head_count
    cdef int64_t heads_first  # number of its first entry; 0: no chains
    cdef bint is_writing

    def __cinit__(self, int64_t slots, int64_t entries):
        if not (1 <= slots <= MAX_IN_FILE and 1 <= entries <= MAX_IN_FILE):
            raise ValueError("invalid number of slots or entries")
        self.slots, self.entries = slots, entries

    def __dealloc__(self):
        free(self.heads)
        free(self.kept)
        free(self.is_kept)

    def write(
        self, int fd, KeyColumns keys not None, Py_ssize_t start, Py_ssize_t end, int64_t first,
        int64_t begin_timestamp, int32_t first_time_diff, bytes header not None,
    ):
        """Write rows ``start:end`` of ``keys``; return how many slots are in use afterwards.

        Args:
            fd: the open file.
            keys: other threads may search them concurrently, and their owner may add more.
            start: the first row.
            end: the row after the last one.
            first: number of the entry that the first row becomes.
            begin_timestamp: store time to which the times of the entries are relative, ms.
            first_time_diff: the time of entry 1.
            header: its number of used slots is updated before it is written.

        Raises:
            UnreadSlotsError: slots could not be read; nothing, or everything but slots, was
                written.
            OSError: a write failed; a part may have been written.
        """
        cdef Block held = keys.entries.block  # its rows do not move when keys are added
        cdef Write write
        cdef uint8_t head[INDEX_HEADER]
        cdef bint is_done
        if not 0 <= start < end <= keys.entries.used:
            raise IndexError("rows out of range")
        if not (1 <= first <= INT32_MAX - (end - start) and first + (end - start) <= self.entries):
            raise IndexError("entries out of range")
        if len(header) != INDEX_HEADER:
            raise ValueError("the header has the wrong size")
        if self.is_writing:
            raise RuntimeError("another thread is writing to the index file")
        memcpy(head, <const char *> header, INDEX_HEADER)
        memset(&write, 0, sizeof(write))
        write.fd, write.first, write.begin_timestamp = fd, first, begin_timestamp
        write.first_time_diff, write.rows = first_time_diff, <const KeyRow *> held.data + start
        write.count = end - start
        self.is_writing = True
        with nogil:
            is_done = self._write(&write, head)
            free(write.chains)
            free(write.previous)
            free(write.block)
        self.is_writing = False
        if is_done:
            return write.slots_used
        if write.size:
            raise UnreadSlotsError(write.position, write.size, write.got, write.code)
        if not write.code:
            raise MemoryError
        raise OSError(write.code, os.strerror(write.code))

    def has_heads(self, int64_t first):
        """Return whether a write of keys from entry ``first`` on has reached the slots."""
        return self.heads_first == first

    def forget_heads(self):
        """Forget the values that slots had before a write."""
        if self.is_writing:
            raise RuntimeError("another thread is writing to the index file")
        free(self.heads)
        self.heads, self.heads_first = NULL, 0

    cdef bint _write(self, Write *write, uint8_t *header) noexcept nogil:
        """Write everything; False: `write` has the error."""
        write.previous = <int32_t *> malloc(write.count * sizeof(int32_t))
        write.block = <uint8_t *> malloc(BLOCK_ENTRIES * INDEX_ENTRY)
        if write.previous == NULL or write.block == NULL or not link(write, self.slots):
            return False
        if not (self._check_size(write) and self._find_heads(write)):
            return False
        self._count_slots(write, header)
        return (
            self._write_entries(write)
            and write_whole(write, header, INDEX_HEADER, 0)
            and self._write_slots(write)
        )

    cdef bint _check_size(self, Write *write) noexcept nogil:
        """Check that the file was not truncated: cached slots would be written after its end."""
        cdef int64_t wanted = slot_position(self.slots) + INDEX_ENTRY * self.entries
        cdef int64_t size = size_of(write.fd)
        if size >= wanted:
            return True
        write.code = errno if size < 0 else 0
        write.position, write.size, write.got = 0, wanted, max(size, <int64_t> 0)
        return False

    cdef bint _find_heads(self, Write *write) noexcept nogil:
        """Find the old heads of the chains; read once, because some may be written afterwards."""
        cdef Py_ssize_t at
        cdef int32_t head
        if self.heads_first == write.first and self.head_count == write.chain_count:
            return True
        free(self.heads)
        self.heads_first = 0
        self.heads = <int32_t *> malloc(write.chain_count * sizeof(int32_t))
        if self.heads == NULL or not self._keep_slots():
            return False
        for at in range(write.chain_count):
            if not self._read_slot(write, write.chains[at].slot, &head):
                return False
            # left by an interrupted batch: the entry does not exist
            self.heads[at] = head if 0 < head < write.first else 0
        self.heads_first, self.head_count = write.first, write.chain_count
        return True

    cdef bint _keep_slots(self) noexcept nogil:
        """Allocate memory to cache slots, unless there are too many; False: out of memory."""
        cdef int64_t size = slot_position(self.slots)
        if size > MAX_KEPT or self.is_kept != NULL:
            return True
        if self.kept == NULL:
            self.kept = <uint8_t *> malloc(size)
        if self.kept != NULL:
            self.is_kept = <uint8_t *> calloc(size // PAGE + 1, 1)
        return self.is_kept != NULL

    cdef bint _read_slot(self, Write *write, int64_t slot, int32_t *head) noexcept nogil:
        cdef int64_t position = slot_position(slot), page = position // PAGE
        cdef int64_t size
        cdef uint8_t found[INDEX_SLOT]
        if self.is_kept == NULL:
            if not read_whole(write, found, INDEX_SLOT, position):
                return False
            head[0] = load32(found)
            return True
        if not self.is_kept[page]:
            size = min(<int64_t> PAGE, slot_position(self.slots) - page * PAGE)
            if not read_whole(write, self.kept + page * PAGE, size, page * PAGE):
                return False
            self.is_kept[page] = True
        head[0] = load32(self.kept + position)
        return True

    cdef void _count_slots(self, Write *write, uint8_t *header) noexcept nogil:
        """Update the number of slots in use in the header."""
        cdef int64_t used = max(load32(header + AT_INDEX_SLOTS_USED), 0)
        cdef Py_ssize_t chain
        for chain in range(write.chain_count):
            used += self.heads[chain] == 0
        used = min(used, self.slots, <int64_t> INT32_MAX)  # the number in the file may be wrong
        write.slots_used = <int32_t> used
        store32(header + AT_INDEX_SLOTS_USED, write.slots_used)

    cdef bint _write_entries(self, Write *write) noexcept nogil:
        cdef Py_ssize_t start = 0, end, row
        cdef int64_t position = INDEX_HEADER + INDEX_SLOT * self.slots + INDEX_ENTRY * write.first
        cdef int32_t previous
        cdef uint8_t *entry
        while start < write.count:
            end = min(write.count, start + BLOCK_ENTRIES)
            entry = write.block
            for row in range(start, end):
                previous = write.previous[row]
                if previous < 0:
                    previous = self.heads[-1 - previous]
                store32(entry, write.rows[row].key_hash)
                store64(entry + AT_PHY_OF_ENTRY, write.rows[row].phy_offset)
                store32(entry + AT_TIME_OF_ENTRY, time_diff(write, row))
                store32(entry + AT_PREVIOUS_OF_ENTRY, previous)
                entry += INDEX_ENTRY
            if not write_whole(write, write.block, entry - write.block, position):
                return False
            position += entry - write.block
            start = end
        return True

    cdef bint _write_slots(self, Write *write) noexcept nogil:
        """Write the newest entry of each chain; slots close together are written with one call."""
        cdef Py_ssize_t at = 0
        cdef int64_t start, position
        cdef uint8_t newest[INDEX_SLOT]
        cdef uint8_t *data
        while at < write.chain_count:
            start = position = slot_position(write.chains[at].slot)
            data = newest
            if self.is_kept != NULL:
                data = self.kept + start
            while True:
                store32(data + (position - start), newest_of(write, at))
                at += 1
                if at == write.chain_count or self.is_kept == NULL:
                    break
                if slot_position(write.chains[at].slot) - position > PAGE:  # else both are cached
                    break
                position = slot_position(write.chains[at].slot)
            if not write_whole(write, data, position + INDEX_SLOT - start, start):
                return False
        return True


cdef bint link(Write *write, int64_t slots) noexcept nogil:
    """Find the previous row of each row in its chain, and the chains; False: out of memory."""
    cdef Link *links = <Link *> malloc(write.count * sizeof(Link))
    cdef Link *spare = <Link *> malloc(write.count * sizeof(Link))
    cdef uint32_t divisor = <uint32_t> min(slots, <int64_t> INT32_MAX + 1)  # no hash is larger
    cdef Py_ssize_t row, at
    cdef Link one
    write.chains = spare
    if links == NULL or spare == NULL:
        free(links)
        return False
    for row in range(write.count):
        links[row].slot = <uint32_t> write.rows[row].key_hash % divisor
        links[row].row = <uint32_t> row
    links = sort(links, &write.chains, write.count, divisor - 1)
    for at in range(write.count):
        one = links[at]
        if at and links[at - 1].slot == one.slot:
            write.previous[one.row] = <int32_t> (write.first + links[at - 1].row)
        else:
            write.chain_count += 1
            write.previous[one.row] = <int32_t> -write.chain_count
        write.chains[write.chain_count - 1] = one
    free(links)
    return True


cdef Link *sort(Link *links, Link **spare, Py_ssize_t count, uint32_t largest) noexcept nogil:
    """Sort by slot, stable; return the sorted array; the other one becomes spare."""
    cdef Py_ssize_t starts[DIGITS]
    cdef Py_ssize_t at, before, digit, size
    cdef int shift = 0
    while largest >> shift:
        memset(starts, 0, sizeof(starts))
        for at in range(count):
            starts[(links[at].slot >> shift) & (DIGITS - 1)] += 1
        before = 0
        for digit in range(DIGITS):
            size, starts[digit] = starts[digit], before
            before += size
        for at in range(count):
            digit = (links[at].slot >> shift) & (DIGITS - 1)
            spare[0][starts[digit]] = links[at]
            starts[digit] += 1
        links, spare[0] = spare[0], links
        shift += DIGIT_BITS
        if shift >= 32:
            break
    return links


cdef int32_t time_diff(const Write *write, Py_ssize_t row) noexcept nogil:
    """Return the seconds that an entry stores, as ``layout.time_diff`` does."""
    cdef int64_t stored = write.rows[row].store_timestamp
    if write.first + row == 1:
        return write.first_time_diff
    if write.begin_timestamp <= 0 or stored <= write.begin_timestamp:
        return 0
    return <int32_t> min((stored - write.begin_timestamp) // 1000, <int64_t> INT32_MAX)


cdef int32_t newest_of(const Write *write, Py_ssize_t chain) noexcept nogil:
    return <int32_t> (write.first + write.chains[chain].row)


cdef int64_t slot_position(int64_t slot) noexcept nogil:
    return INDEX_HEADER + INDEX_SLOT * slot


cdef bint read_whole(Write *write, uint8_t *to, int64_t size, int64_t position) noexcept nogil:
    cdef int64_t got = pread(write.fd, to, size, position)
    while got < 0 and errno == EINTR:
        got = pread(write.fd, to, size, position)
    if got == size:
        return True
    write.code = errno if got < 0 else 0
    write.position, write.size, write.got = position, size, max(got, <int64_t> 0)
    return False


cdef bint write_whole(
    Write *write, const uint8_t *data, Py_ssize_t size, int64_t position
) noexcept nogil:
    """Write all bytes, in as many calls as the system needs."""
    cdef Py_ssize_t done
    while size > 0:
        done = pwrite(write.fd, data, size, position)
        if done > 0:
            data, size, position = data + done, size - done, position + done
        elif done == 0 or errno != EINTR:
            write.code = errno if done < 0 else EIO
            return False
    return True

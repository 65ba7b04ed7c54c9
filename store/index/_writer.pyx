# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True
"""KeyWriter: rows of keys become entries of an index file, linked into the chains of its slots.

All of it runs without the interpreter's lock. When to write, files and the names in errors are
Python's, see ``cqstore.store.index.index_file``.
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
    DIGIT_BITS = 8  # of a slot's number, by which one pass sorts
    DIGITS = 256
    PAGE = 4096
    BLOCK_ENTRIES = 3000  # that are written with one call
    MAX_KEPT = 1 << 26  # bytes of slots up to which they are kept in memory
cdef int64_t MAX_IN_FILE = <int64_t> 1 << 56  # so that no position in a file overflows


class UnreadSlotsError(Exception):
    """Slots could not be read: position, bytes, bytes that came, and the error's number or 0."""


cdef struct Link:
    # An entry of a batch by its slot; of sorted ones that are the newest of their slots: a chain.
    uint32_t slot, row


cdef struct Write:
    # What is to be written, and what was refused.
    int fd
    int64_t first, begin_timestamp
    int32_t first_time_diff, slots_used
    const KeyRow *rows
    Py_ssize_t count, chain_count
    Link *chains  # distinct slots, ascending, each with its newest row
    int32_t *previous  # of each row; negative: that of chain -1 - n is its slot's head
    uint8_t *block  # for entries
    int code  # of the error
    int64_t position, size, got  # of a read that was refused; size 0: it was a write


cdef class KeyWriter:
    """Writes keys of one index file: entries, then header, then slots. One thread at a time.

    So a reader finds whole chains meanwhile. A write that was refused may be repeated with the same
    keys: what the slots held before it is kept until ``forget_heads``, as some may already have
    been written.

    Slots are written here alone. So pages of them are read once and kept as long as the writer is,
    but those of a very large file, whose slots are read and written one by one.
    """

    cdef int64_t slots, entries
    cdef uint8_t *kept  # the file up to the end of its slots, as far as it was read; or NULL
    cdef uint8_t *is_kept  # a byte for each page
    cdef int32_t *heads  # of the chains of the last write
    cdef Py_ssize_t head_count
    cdef int64_t heads_first  # number of its first entry; 0: there are none
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
        """Write rows ``start:end`` of ``keys``; return how many slots are in use then.

        Args:
            fd: the open file.
            keys: other threads may search them meanwhile, and their owner may add more.
            start: the first row.
            end: the row behind the last one.
            first: number of the entry that the first row becomes.
            begin_timestamp: what the times of the entries count from, ms.
            first_time_diff: the time of entry 1.
            header: with the slots in use before; it is written with those in use then.

        Raises:
            UnreadSlotsError: slots could not be read; nothing was written, or all but slots.
            OSError: a write was refused; a part may have been written.
        """
        cdef Block held = keys.entries.block  # its rows stay where they are when keys are added
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
        """Return whether a write of keys from entry ``first`` on got as far as their slots."""
        return self.heads_first == first

    def forget_heads(self):
        """Forget what slots held before a write."""
        if self.is_writing:
            raise RuntimeError("another thread is writing to the index file")
        free(self.heads)
        self.heads, self.heads_first = NULL, 0

    cdef bint _write(self, Write *write, uint8_t *header) noexcept nogil:
        """Write all; False: `write` says what was refused."""
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
        """Check that the file was not cut: what is kept of it would be written behind its end."""
        cdef int64_t wanted = slot_position(self.slots) + INDEX_ENTRY * self.entries
        cdef int64_t size = size_of(write.fd)
        if size >= wanted:
            return True
        write.code = errno if size < 0 else 0
        write.position, write.size, write.got = 0, wanted, max(size, <int64_t> 0)
        return False

    cdef bint _find_heads(self, Write *write) noexcept nogil:
        """Find what the slots held before; read once, for then some may be written."""
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
            # of an interrupted batch: no entry is there
            self.heads[at] = head if 0 < head < write.first else 0
        self.heads_first, self.head_count = write.first, write.chain_count
        return True

    cdef bint _keep_slots(self) noexcept nogil:
        """Find room to keep slots, unless they are too many; False: there is none."""
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
        """Count the slots in use into the header."""
        cdef int64_t used = max(load32(header + AT_INDEX_SLOTS_USED), 0)
        cdef Py_ssize_t chain
        for chain in range(write.chain_count):
            used += self.heads[chain] == 0
        used = min(used, self.slots, <int64_t> INT32_MAX)  # the file may have said anything
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
        """Write the newest of each chain; close ones together with what lies between them."""
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
                if slot_position(write.chains[at].slot) - position > PAGE:  # else both are kept
                    break
                position = slot_position(write.chains[at].slot)
            if not write_whole(write, data, position + INDEX_SLOT - start, start):
                return False
        return True


cdef bint link(Write *write, int64_t slots) noexcept nogil:
    """Find the row before each one in its chain, and the chains; False: no memory."""
    cdef Link *links = <Link *> malloc(write.count * sizeof(Link))
    cdef Link *spare = <Link *> malloc(write.count * sizeof(Link))
    cdef uint32_t divisor = <uint32_t> min(slots, <int64_t> INT32_MAX + 1)  # no hash is as large
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
    """Sort by slots, rows of one in order; return those that are sorted, the others are spare."""
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
    """Write all, in as many calls as the system takes."""
    cdef Py_ssize_t done
    while size > 0:
        done = pwrite(write.fd, data, size, position)
        if done > 0:
            data, size, position = data + done, size - done, position + done
        elif done == 0 or errno != EINTR:
            write.code = errno if done < 0 else EIO
            return False
    return True

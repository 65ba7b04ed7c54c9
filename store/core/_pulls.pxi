# The sweep over the units of a pull. Part of `_reads.pyx`.

cdef enum:
    AT_SIZE_OF_UNIT = 8
    MOST_AT_ONCE = 1024


cdef class Sweep:
    """Takes the first units of a pull without a filter, as long as all of them are plain.

    Their records lie in memory and in the log, and are where they should be. Any thread; never
    gives up the interpreter between looking at a file of the log and holding it.
    """

    cdef object readable
    cdef int64_t most_bytes, most_count, in_memory

    def __init__(self, readable, int64_t most_bytes, int64_t most_count, int64_t in_memory):
        """Take the limits of a transfer from memory, and what of the log is there.

        ``readable`` gives the file that holds an offset: where it starts, its map, and how many
        bytes of it may be read; ``None`` where there is none.
        """
        self.readable, self.in_memory = readable, in_memory
        self.most_bytes, self.most_count = most_bytes, max(most_count, 1)

    def take(
        self, GetMessageResult result not None, data, Py_ssize_t stride, int64_t first,
        int64_t most_messages, int64_t most_bytes, int64_t log_end,
    ):
        """Put into ``result`` what the units ``data`` lead to; False and nothing: for the twin."""
        cdef Held units = Held(data)
        cdef Py_ssize_t count
        if stride < 20:
            return False
        count = units.buffer.len // stride
        if count > most_messages:
            count = most_messages
        return self._take(
            result, <const uint8_t *> units.buffer.buf, count, stride, first, most_bytes, log_end
        )

    cdef bint _take(
        self, GetMessageResult result, const uint8_t *unit, Py_ssize_t count, Py_ssize_t stride,
        int64_t first, int64_t most_bytes, int64_t log_end,
    ) except -1:
        cdef Found found[MOST_AT_ONCE]
        cdef list files = []
        cdef Held held = None
        cdef const uint8_t *base = NULL
        cdef const uint8_t *record
        cdef int64_t start = 0, there = 0, phy, at, total = 0
        cdef int32_t size
        cdef Py_ssize_t number, taken = 0
        count = min(count, self.most_count)
        if not 1 <= count <= MOST_AT_ONCE or log_end - load64(unit) > self.in_memory:
            return False
        most_bytes = min(most_bytes, self.most_bytes)
        for number in range(count):
            phy, size = load64(unit), load32(unit + AT_SIZE_OF_UNIT)
            unit += stride
            if phy < 0:
                return False
            at = phy - start
            if not 0 <= at < there:
                file = self.readable(phy)
                if file is None:
                    return False
                start, map_, there = file
                held = Held(map_)
                there = min(there, held.buffer.len)
                base, at = <const uint8_t *> held.buffer.buf, phy - start
                files.append(held)
            if size < LEAST_RECORD or at < 0 or at > there - size:
                return False
            if total + size > most_bytes and taken:
                break
            record = base + at
            if (
                load32(record) != size or load32(record + AT_MAGIC) != MAGIC_V1
                or load64(record + AT_PHY_OFFSET) != phy
                or load32(record + AT_SYS_FLAG) & PASSED_OVER
            ):
                return False
            total += size
            found[taken].data, found[taken].size = record, size
            found[taken].file = <int32_t> (len(files) - 1)
            taken += 1
        result._take(files, found, taken, first)
        result.next_begin_offset, result.total_bytes = first + taken, total
        result.status = _status_found
        return True

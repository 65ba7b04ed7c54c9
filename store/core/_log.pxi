# Files of the log, held while they are read. Part of `_reads.pyx`.

cdef struct Part:
    # What may be read of a file of the log: offsets of the log, and the byte at `start`.
    int64_t start, end
    const uint8_t *data


cdef bint open_part(readable, int64_t phy, Part *part, list files) except -1:
    """Hold the file that ``phy`` lies in, in ``files``, and find what of it may be read.

    False: no file holds it; ``part`` is as it was.
    """
    cdef Held held
    cdef int64_t start, end
    file = readable(phy)
    if file is None:
        return False
    start, map_, there = file
    held = Held(map_)
    end = start + min(<int64_t> there, <int64_t> held.buffer.len)
    if not start <= phy < end:
        return False
    files.append(held)
    part.start, part.end, part.data = start, end, <const uint8_t *> held.buffer.buf
    return True


cdef enum:
    PARTS = 4
    STAMP_SPAN = 76  # bytes that hold the store time of any record


@cython.final
@cython.internal
@cython.no_gc
@cython.freelist(8)
cdef class StoreTimes:
    """Store times of records, for one search: what was looked at stays held until its end."""

    cdef object readable
    cdef list files
    cdef Part parts[PARTS]
    cdef int64_t least, end
    cdef int last

    def __cinit__(self, log, int64_t least):
        self.readable, self.files, self.last = log.readable, [], 0
        self.least, self.end = least, log.max_phy_offset()
        for at in range(PARTS):
            self.parts[at].start = self.parts[at].end = 0

    cdef int64_t of(self, int64_t phy, int32_t size, bint *is_plain) except? -2:
        """Return the store time of the record of ``size`` bytes; -1 if it is not in the log.

        ``is_plain`` becomes false where its file does not lie there: the twin knows what that is.
        """
        cdef Part *part = &self.parts[self.last]
        cdef const uint8_t *record
        cdef int at
        if phy < 0 or phy < self.least or size < LEAST_RECORD or phy > self.end - size:
            return -1
        if not part.start <= phy < part.end:
            for at in range(PARTS):
                if self.parts[at].start <= phy < self.parts[at].end:
                    self.last = at
                    break
            else:
                self.last = (self.last + 1) % PARTS
                if not open_part(self.readable, phy, &self.parts[self.last], self.files):
                    is_plain[0] = False
                    return -1
            part = &self.parts[self.last]
        if part.end - phy < STAMP_SPAN:
            return -1
        record = part.data + (phy - part.start)
        return load64(record + HEAD_BYTES + (
            HOST_V6 if load32(record + AT_SYS_FLAG) & BORN_V6 else HOST_V4
        ))

    cdef void ahead(self, int64_t phy) noexcept:
        """Let memory fetch what ``of`` will read there, if the file is the one of last time."""
        cdef Part *part = &self.parts[self.last]
        if part.start <= phy < part.end:
            fetch_ahead(part.data + (phy - part.start) + AT_SYS_FLAG)
            fetch_ahead(part.data + (phy - part.start) + HEAD_BYTES + HOST_V4)

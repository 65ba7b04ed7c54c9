"""What malloc has given to this process and not got back."""

import ctypes

_SIZES = (
    "arena", "ordblks", "smblks", "hblks", "hblkhd", "usmblks", "fsmblks", "uordblks", "fordblks",
    "keepcost",
)  # fmt: skip


class _Mallinfo2(ctypes.Structure):
    """What glibc says of its heaps, see mallinfo(3)."""

    _fields_ = tuple((name, ctypes.c_size_t) for name in _SIZES)


def given_memory() -> int:
    """Return the bytes, of all threads; what AddressSanitizer keeps of freed blocks is not in it.

    Not what is resident: a heap goes on holding pages that were freed, and a sanitizer blocks.
    """
    libc = ctypes.CDLL(None)
    if hasattr(libc, "__sanitizer_get_current_allocated_bytes"):
        libc.__sanitizer_get_current_allocated_bytes.restype = ctypes.c_size_t
        return int(libc.__sanitizer_get_current_allocated_bytes())
    libc.mallinfo2.restype = _Mallinfo2
    info = libc.mallinfo2()
    return int(info.uordblks + info.hblkhd)

"""Memory that is refused to one library: what its caller does where ``malloc`` gives nothing.

``shim.c`` stands before ``malloc``, ``calloc`` and ``realloc``. Memory that compiled code takes
from Python is asked for by Python's own library.
"""

import ctypes
import os
from collections.abc import Callable
from itertools import count

import pytest

_lack = ctypes.PyDLL(None).shim_lack
_lack.argtypes, _lack.restype = (ctypes.c_char_p, ctypes.c_long), ctypes.c_long


def without_memory(library: str, call: Callable[[], object], then: Callable[[], object]) -> int:
    """Call ``call`` once for each block that a library takes there, and refuse that block.

    Each refusal must end in ``MemoryError``; ``then`` is called after it, when there is memory
    again. Return how many were refused; the last call is refused none. ``library`` is a part of its
    file's name. Where a sanitizer has an allocator of its own, the test is skipped.
    """
    if any(each in os.environ.get("LD_PRELOAD", "") for each in ("libasan", "libtsan")):
        pytest.skip("the sanitizer's allocator stands before the one that refuses memory")
    for number in count(1):
        _lack(library.encode(), number)
        try:
            call()
        except MemoryError:
            _lack(b"", 0)
            then()
        else:
            met = _lack(b"", 0)
            assert met < number, f"no error though block {number} was refused"
            return number - 1
        finally:
            _lack(b"", 0)
    raise AssertionError

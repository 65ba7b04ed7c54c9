"""The machine's clock as a test sets it, for Python and compiled code alike.

``shim.c`` stands before ``clock_gettime``. A test changes a field of ``CLOCK`` by ``monkeypatch``,
which sets it back.
"""

import ctypes


class _Clock(ctypes.Structure):
    """Nanoseconds: where it stands (0: it runs), what a look adds there, how far it is ahead."""

    _fields_ = (
        ("stopped", ctypes.c_longlong),
        ("step", ctypes.c_longlong),
        ("ahead", ctypes.c_longlong),
    )


CLOCK = _Clock.in_dll(ctypes.PyDLL(None), "shim_clock")

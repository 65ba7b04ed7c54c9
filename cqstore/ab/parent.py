"""A process that dies with the one that started it, however that ends."""

import ctypes
import os
import signal

_PR_SET_PDEATHSIG = 1


def die_with_parent(parent: int) -> None:
    """Have the system kill this process when its parent, process ``parent``, has ended.

    Where the system cannot do that (it is no Linux) nothing happens; a process that reads from its
    parent then ends with the input.
    """
    prctl = getattr(ctypes.CDLL(None), "prctl", None)
    if prctl is not None:
        prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
        if os.getppid() != parent:  # it was faster
            os.kill(os.getpid(), signal.SIGKILL)

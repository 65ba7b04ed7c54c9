"""Ends a process when its parent process ends, for whatever reason."""

import ctypes
import os
import signal

_PR_SET_PDEATHSIG = 1


def die_with_parent(parent: int) -> None:
    """Have the system kill this process when its parent, process ``parent``, ends.

    Does nothing on systems other than Linux; there, a process that reads from its parent ends with
    its input.
    """
    prctl = getattr(ctypes.CDLL(None), "prctl", None)
    if prctl is not None:
        prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
        if os.getppid() != parent:  # the parent ended before the call
            os.kill(os.getpid(), signal.SIGKILL)

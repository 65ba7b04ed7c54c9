"""A disk whose syncs are counted, wait until they are let through, and fail when told to."""

import os
import threading

import pytest


class GatedDisk:
    """Stands before ``os.fdatasync``: counts, waits, fails."""

    def __init__(self) -> None:
        self.syncs = 0
        self.entered = threading.Semaphore(0)
        self.open = threading.Event()
        self.open.set()
        self.fails = False
        self._real = os.fdatasync

    def sync(self, fd: int) -> None:
        self.syncs += 1
        self.entered.release()
        assert self.open.wait(30)
        if self.fails:
            self.fails = False  # as the kernel: the pages are gone, the next sync succeeds
            raise OSError(5, "Input/output error")
        self._real(fd)


def gated(monkeypatch: pytest.MonkeyPatch) -> GatedDisk:
    """Put one before ``os.fdatasync``; it lets all through at first."""
    made = GatedDisk()
    monkeypatch.setattr(os, "fdatasync", made.sync)
    return made

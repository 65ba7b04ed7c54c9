"""Fuzzing asks what is read, not what lasts: nothing of Python's waits for the disk here."""

import os

import pytest


@pytest.fixture(autouse=True)
def _no_syncs(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("fsync", "fdatasync"):
        monkeypatch.setattr(os, name, lambda _: None)

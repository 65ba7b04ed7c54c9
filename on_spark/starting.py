"""The start of Spark's Java process, which may be cut short.

pyspark removes the folder in which Java is to tell its port, and leaves Java alone. That fails to
write there, and its threads keep it for ever. So whoever starts it ends it.
"""

import os
import signal
import subprocess
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from types import FrameType
from typing import Any

_SECONDS_TO_END = 10


@contextmanager
def ended_if_cut_short() -> Iterator[None]:
    """End the Java process that the block starts, and its launchers, if the block raises."""
    from pyspark import SparkContext, java_gateway  # noqa: PLC0415 - an extra

    started: list[subprocess.Popen[bytes]] = []

    class Noted(subprocess.Popen):  # type: ignore[type-arg]
        """A process in a group of its own, noted before it runs."""

        def __init__(self, *words: Any, **options: Any) -> None:
            started.append(self)
            with _interrupts_wait():  # until its number is known
                super().__init__(*words, **options, process_group=0)

    names = vars(java_gateway)
    before = names["Popen"]
    names["Popen"] = Noted
    try:
        yield
    except BaseException:
        with _interrupts_wait():
            for process in started:
                _end(process)
            if started:  # a session of later starts another one
                for name in ("_gateway", "_jvm", "_active_spark_context"):
                    setattr(SparkContext, name, None)
        raise
    finally:
        names["Popen"] = before


def _end(process: "subprocess.Popen[bytes]") -> None:
    """End a process and those it has started; Java removes its folders where it can."""
    if getattr(process, "pid", None) is None or process.poll() is not None:
        return
    for number in (signal.SIGTERM, signal.SIGKILL):
        with suppress(ProcessLookupError):
            os.killpg(process.pid, number)
        with suppress(subprocess.TimeoutExpired):
            process.wait(_SECONDS_TO_END)
            break
    with suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)  # a launcher that Java has not replaced yet


@contextmanager
def _interrupts_wait() -> Iterator[None]:
    """Let Ctrl-C come at the end of the block; in another thread than the first it never comes."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    noted: list[int] = []

    def note(number: int, frame: FrameType | None) -> None:
        _ = frame
        noted.append(number)

    before = signal.signal(signal.SIGINT, note)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)
    if noted:
        raise KeyboardInterrupt

"""Starts Spark's Java process, and ends it on Ctrl-C while it starts or runs.

If the start is interrupted, pyspark removes the folder for Java's port but does not end Java. Java
then fails to write its port, and its threads keep it running forever. So the process that starts
Java also ends it.
"""

import logging
import os
import signal
import subprocess
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from types import FrameType
from typing import Any

from cqstore.spark.java_notes import pass_on

_SECONDS_TO_END = 10


@contextmanager
def ended_if_cut_short() -> Iterator[None]:
    """End the Java process that the block starts, and its launchers, if the block raises."""
    from pyspark import java_gateway  # noqa: PLC0415 - an extra

    started: list[subprocess.Popen[bytes]] = []

    class Noted(subprocess.Popen):  # type: ignore[type-arg]
        """Process in its own group, recorded before it starts."""

        silenced: threading.Event
        """Set once what it prints is no news any more."""

        def __init__(self, *words: Any, **options: Any) -> None:
            started.append(self)
            options = {"stderr": subprocess.PIPE, **options}
            with _interrupts_wait():  # until its number is known
                super().__init__(*words, **options, process_group=0)
            if self.stderr is not None:
                self.silenced = pass_on(self.stderr)

    names = vars(java_gateway)
    before = names["Popen"]
    names["Popen"] = Noted
    try:
        yield
    except BaseException:
        with _interrupts_wait():
            for process in started:
                _end(process)
            if started:
                _forget_java()
        raise
    finally:
        names["Popen"] = before


@dataclass(slots=True)
class JavaEnd:
    """Whether Ctrl-C has ended the Java process."""

    has_come: bool = False


@contextmanager
def ended_by_interrupt() -> Iterator[JavaEnd]:
    """Let Ctrl-C in the block end the Java process that was started here, and the block at once.

    pyspark's own handler cancels the running jobs and waits for the end of the query, which
    continues if the signal arrives between two jobs. After Ctrl-C any exception of the block
    becomes a ``KeyboardInterrupt``. Only the main thread receives Ctrl-C.
    """
    ended, process = JavaEnd(), _java_process()
    if process is None or threading.current_thread() is not threading.main_thread():
        yield ended
        return

    def end(number: int, frame: FrameType | None) -> None:
        _ = number, frame
        if not ended.has_come:
            ended.has_come = True
            _silence(process)
            _end(process)
        raise KeyboardInterrupt

    before = signal.signal(signal.SIGINT, end)
    try:
        yield ended
    except Exception:
        if ended.has_come:  # of Spark's, whose Java has gone
            raise KeyboardInterrupt from None
        raise
    finally:
        signal.signal(signal.SIGINT, before)
        if ended.has_come:
            _forget_java()


def _silence(process: "subprocess.Popen[bytes]") -> None:
    """Suppress what Java, py4j and the tasks' accumulators say of the end.

    Threads of Spark that are still at work when its parts are stopped log exceptions of any kind.
    """
    from pyspark import SparkContext  # noqa: PLC0415 - an extra

    if (silenced := getattr(process, "silenced", None)) is not None:
        silenced.set()
    logging.getLogger("py4j").setLevel(logging.CRITICAL + 1)
    server: Any = getattr(SparkContext._active_spark_context, "_accumulatorServer", None)  # noqa: SLF001
    if server is not None:
        server.handle_error = lambda *_: None


def _java_process() -> "subprocess.Popen[bytes] | None":
    """Return the Java process of Spark's gateway if it was started here, in its own group."""
    from pyspark import SparkContext  # noqa: PLC0415 - an extra

    process: Any = getattr(SparkContext._gateway, "proc", None)  # noqa: SLF001
    with suppress(ProcessLookupError):
        if isinstance(process, subprocess.Popen) and os.getpgid(process.pid) == process.pid:
            return process
    return None


def _forget_java() -> None:
    """Let pyspark start a new Java process for the next session."""
    from pyspark import SparkContext  # noqa: PLC0415 - an extra

    if (context := SparkContext._active_spark_context) is not None:  # noqa: SLF001
        context._jsc = None  # noqa: SLF001 - as one that was stopped
    for name in ("_gateway", "_jvm", "_active_spark_context"):
        setattr(SparkContext, name, None)


def _end(process: "subprocess.Popen[bytes]") -> None:
    """End a process and its child processes; give Java time to remove its folders."""
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
    """Delay Ctrl-C to the end of the block; only the main thread ever receives it."""
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

"""An exception raised wherever a signal's handler may raise one, one place a run.

CPython calls the handlers of signals when a function begins, behind a call, and when a loop goes
back. A trace function that sees every instruction stands in for the handler there. Left out is
only what differs from a signal: an instruction that another ``try`` or ``with`` guards than the
call before it.
"""

import dis
import gc
import inspect
import sys
from collections.abc import Callable
from functools import cache
from itertools import count
from pathlib import Path
from types import CodeType, FrameType
from typing import Any

import pytest

IGNORED = pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
"""For what an interrupt leaves open: a file, a listing, a generator that is being closed."""
_ROOT = Path(__file__).parents[2]
_OURS = (
    *[f"{_ROOT / 'cqstore' / name}/"
      for name in ("store", "cli", "cq_file", "cq_rocksdb", "replication", "embedded")],
    f"{_ROOT / 'cq_lmdb'}/",
)  # fmt: skip
_CONTEXTS = "contextlib.py"
_Tracer = Callable[..., Any]
_LOOKS = {"CALL", "CALL_KW", "CALL_FUNCTION_EX", "JUMP_BACKWARD"}
"""Instructions behind which handlers run."""


class Interrupted(BaseException):
    """What the handler of a signal raises, as ``KeyboardInterrupt`` is."""


def _show_opcodes() -> None:
    """Have later trace functions see opcodes; CPython 3.12 shows none before one has asked."""

    def ask(frame: FrameType, event: str, _: object) -> _Tracer:
        frame.f_trace_opcodes = True
        return ask

    former = sys.gettrace()
    sys.settrace(ask)
    inspect.cleandoc("")  # any code in Python
    sys.settrace(former)


_show_opcodes()


@cache
def _places(code: CodeType) -> frozenset[int]:
    """Return the positions of the instructions before which a handler may run."""
    found = set()
    entries = dis._parse_exception_table(code)  # type: ignore[attr-defined]

    def guard(position: int) -> int:
        """Return where an exception at this instruction is handled, -1 if nowhere."""
        return next((each.target for each in entries if each.start <= position < each.end), -1)

    last = None
    for instruction in dis.get_instructions(code):
        if last is not None and last.opname in _LOOKS:
            target = last.argval if last.opname == "JUMP_BACKWARD" else instruction.offset
            if guard(last.offset) == guard(target):
                found.add(target)
        last = instruction
    return frozenset(found)


def _watching(code: CodeType, pass_place: Callable[[FrameType], object]) -> _Tracer | None:
    """Return what is called at each instruction of ``code``, ``None`` if it is not looked into."""
    name = code.co_filename
    if not (name.startswith(_OURS) or name.endswith(_CONTEXTS)):
        return None
    if code.co_name == "__del__":  # what it raises is not seen
        return None
    places = _places(code)

    def pass_instruction(frame: FrameType, event: str, _: object) -> _Tracer:
        if event == "opcode" and frame.f_lasti in places:
            pass_place(frame)
        return pass_instruction

    return pass_instruction


def throw() -> None:
    """Interrupt."""
    raise Interrupted


def first_places(step: Callable[[], object]) -> list[int]:
    """Run ``step``; return the numbers of the places that were not passed before.

    Of a loop, those of its first round alone.
    """
    first: dict[tuple[CodeType, int], int] = {}
    numbers = count(1)
    run_interrupted(
        step,
        on_place=lambda frame: first.setdefault((frame.f_code, frame.f_lasti), next(numbers)),
    )
    return [*first.values()]


def run_interrupted(
    step: Callable[[], object],
    number: int = 0,
    handler: Callable[[], object] = throw,
    on_place: Callable[[FrameType], object] = lambda _: None,
) -> int:
    """Run ``step``, call ``handler`` at place ``number`` (0: nowhere); return the places seen.

    ``on_place`` is called at each place, with the frame.

    What ``step`` raises itself goes through. Only this thread is interrupted, in the code of the
    store and in ``contextlib``; not in finalizers that the garbage collector calls meanwhile, for
    what an earlier case left behind is let go there.
    """
    seen = 0
    known: dict[int, tuple[CodeType, _Tracer | None]] = {}  # the hash of a code is a long one
    collecting, former = gc.isenabled(), sys.gettrace()

    def pass_place(frame: FrameType) -> None:
        nonlocal seen
        seen += 1
        on_place(frame)
        if seen == number:
            sys.settrace(None)
            handler()

    def enter(frame: FrameType, event: str, _: object) -> _Tracer | None:
        code = frame.f_code
        if event != "call":
            return None
        if id(code) not in known:
            known[id(code)] = code, _watching(code, pass_place)
        watching = known[id(code)][1]
        if watching is None:
            return None
        frame.f_trace = watching  # since CPython 3.13 a code's first call has no opcodes else
        frame.f_trace_lines, frame.f_trace_opcodes = False, True
        if not code.co_flags & inspect.CO_GENERATOR:  # it may be entered to be closed
            pass_place(frame)
        return watching

    gc.disable()
    sys.settrace(enter)
    try:
        step()
    finally:
        sys.settrace(former)  # a debugger's, or that of coverage
        if collecting:
            gc.enable()
    return seen

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
from itertools import count
from pathlib import Path
from types import CodeType, FrameType
from typing import Any

_ROOT = Path(__file__).parents[2]
_OURS = tuple(f"{_ROOT / name}/" for name in ("store", "cq_file", "cq_rocksdb", "replication"))
_CONTEXTS = "contextlib.py"
_KNOWN: dict[int, tuple[CodeType, frozenset[int] | None]] = {}
"""Places by the number of their code, ``None`` for code of others; it is kept, and so its number.

A code's own hash is that of all its names and constants, and is asked at each call.
"""
_LOOKS = {"CALL", "CALL_FUNCTION_EX", "JUMP_BACKWARD"}
"""Instructions behind which handlers run."""


class Interrupted(BaseException):
    """What the handler of a signal raises, as ``KeyboardInterrupt`` is."""


def _places_in(code: CodeType) -> frozenset[int] | None:
    """Return where handlers may run in code that is interrupted, ``None`` of other code."""
    known = _KNOWN.get(id(code))
    if known is None:
        name = code.co_filename
        taken = name.startswith(_OURS) or name.endswith(_CONTEXTS)
        taken &= code.co_name != "__del__"  # what it raises, nobody sees
        known = _KNOWN[id(code)] = code, _places(code) if taken else None
    return known[1]


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
    inside: dict[frozenset[int], Callable[..., Any]] = {}
    collecting, former = gc.isenabled(), sys.gettrace()

    def pass_place(frame: FrameType) -> None:
        nonlocal seen
        seen += 1
        on_place(frame)
        if seen == number:
            sys.settrace(None)
            handler()

    def enter(frame: FrameType, event: str, _: object) -> Callable[..., Any] | None:
        places = _places_in(frame.f_code) if event == "call" else None
        if places is None:
            return None
        frame.f_trace_lines, frame.f_trace_opcodes = False, True
        if not frame.f_code.co_flags & inspect.CO_GENERATOR:  # it may be entered to be closed
            pass_place(frame)
        found = inside.get(places)
        if found is None:
            found = inside[places] = at_places(places)
        return found

    def at_places(places: frozenset[int]) -> Callable[..., Any]:
        def pass_instruction(frame: FrameType, event: str, _: object) -> Callable[..., Any]:
            if event == "opcode" and frame.f_lasti in places:
                pass_place(frame)
            return pass_instruction

        return pass_instruction

    gc.disable()
    sys.settrace(enter)
    try:
        step()
    finally:
        sys.settrace(former)  # a debugger's, or that of coverage
        if collecting:
            gc.enable()
    return seen

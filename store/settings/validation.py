"""What pydantic refuses, in sentences: where, why, and what was found there."""

from pydantic import ValidationError
from pydantic_core import ErrorDetails

_OF_PYDANTIC = ("Value error, ", "Assertion failed, ")
"""Before the words of a validator of ours."""
_MAX_SHOWN = 60
"""Characters of what was found."""


def faults(exc: ValidationError) -> list[str]:
    """Return a sentence for each fault, in the order of the fields."""
    return [fault(each) for each in exc.errors(include_url=False)]


def first_fault(exc: ValidationError, skip: int = 0) -> str:
    """Return the first one; ``skip``: levels of the place that say nothing to its reader."""
    return fault(exc.errors(include_url=False)[0], skip)


def fault(error: ErrorDetails, skip: int = 0) -> str:
    """Return where something is wrong, and what; of a value that does not fit also what it is."""
    place, reason = ".".join(map(str, error["loc"][skip:])), error["msg"]
    for words in _OF_PYDANTIC:
        if reason.startswith(words):
            return ": ".join(filter(None, (place, reason.removeprefix(words))))
    found = error["input"]
    if isinstance(found, str | int | float):
        reason += f", found {_shown(found)}"
    return ": ".join(filter(None, (place, reason)))


def fault_of_value(exc: ValidationError) -> str:
    """Return the first fault without its place, for a sentence that names the setting."""
    reason = exc.errors(include_url=False)[0]["msg"]
    for words in _OF_PYDANTIC:
        reason = reason.removeprefix(words)
    return reason.replace("Input should be", "expected")


def _shown(value: object) -> str:
    text = repr(value)
    return text if len(text) <= _MAX_SHOWN else f"{text[:_MAX_SHOWN]}..."

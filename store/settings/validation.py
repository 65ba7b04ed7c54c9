"""Sentences for pydantic's validation errors: location, reason, and the value found."""

from pydantic import ValidationError
from pydantic_core import ErrorDetails

_OF_PYDANTIC = ("Value error, ", "Assertion failed, ")
"""Prefixes that pydantic adds to the messages of our validators."""
_MAX_SHOWN = 60
"""Maximum number of characters of the value that are shown."""


def faults(exc: ValidationError) -> list[str]:
    """Return a sentence for each fault, in field order."""
    return [fault(each) for each in exc.errors(include_url=False)]


def first_fault(exc: ValidationError, skip: int = 0) -> str:
    """Return the sentence of the first fault; ``skip``: levels of the location to leave out."""
    return fault(exc.errors(include_url=False)[0], skip)


def fault(error: ErrorDetails, skip: int = 0) -> str:
    """Return the location and reason of a fault, and the value found if it is invalid."""
    place, reason = ".".join(map(str, error["loc"][skip:])), error["msg"]
    for words in _OF_PYDANTIC:
        if reason.startswith(words):
            return ": ".join(filter(None, (place, reason.removeprefix(words))))
    found = error["input"]
    if isinstance(found, str | int | float):
        reason += f", found {_shown(found)}"
    return ": ".join(filter(None, (place, reason)))


def fault_of_value(exc: ValidationError) -> str:
    """Return the first fault without its location, for a sentence that names the setting."""
    reason = exc.errors(include_url=False)[0]["msg"]
    for words in _OF_PYDANTIC:
        reason = reason.removeprefix(words)
    return reason.replace("Input should be", "expected")


def _shown(value: object) -> str:
    text = repr(value)
    return text if len(text) <= _MAX_SHOWN else f"{text[:_MAX_SHOWN]}..."

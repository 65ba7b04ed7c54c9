"""The workloads by name."""

from collections.abc import Mapping, Sequence
from fnmatch import fnmatchcase

from cqstore.ab.trace.derived import DEFAULT_MIX, KINDS
from cqstore.ab.workloads.base import Workload
from cqstore.ab.workloads.lifecycle import Dispatch, Expiry, Restart, RestartAfterKill
from cqstore.ab.workloads.mixed import Mixed
from cqstore.ab.workloads.reads import READS, GivenTrace
from cqstore.ab.workloads.topics import TopicCreate, TopicDelete
from cqstore.store.errors import StoreConfigError

TRACE = "trace"


def workloads(mix: Mapping[str, int] = DEFAULT_MIX) -> dict[str, Workload]:
    """Return all workloads in running order: workloads on a closed store first."""
    made: list[Workload] = [
        Dispatch(), Expiry(), Restart(), RestartAfterKill(),
        *READS, Mixed(mix), TopicCreate(), TopicDelete(), GivenTrace(),
    ]  # fmt: skip
    return {each.name: each for each in made}


def chosen(patterns: Sequence[str], *, given_trace: bool) -> list[str]:
    """Return the names that match ``patterns`` (with ``*`` and ``?``), in order.

    Without patterns: the trace, if one was given, else all others.

    Raises:
        StoreConfigError: a pattern matches no workload.
    """
    names = [name for name in workloads() if given_trace or name != TRACE]
    if not patterns:
        return [TRACE] if given_trace else names
    for pattern in patterns:
        if not any(fnmatchcase(name, pattern) for name in names):
            raise StoreConfigError(f"no workload {pattern!r}; workloads: {', '.join(names)}")
    return [name for name in names if any(fnmatchcase(name, each) for each in patterns)]


def parse_mix(text: str | None) -> dict[str, int]:
    """Parse the shares of a mixed workload, such as ``tail-pull=60,put=20``.

    Raises:
        StoreConfigError: a kind is unknown or repeated, or a share is not a positive number.
    """
    if text is None:
        return dict(DEFAULT_MIX)
    mix: dict[str, int] = {}
    for pair in text.split(","):
        kind, _, part = (word.strip() for word in pair.partition("="))
        if kind not in KINDS or not part.isdecimal() or not int(part) or kind in mix:
            raise StoreConfigError(
                f"--mix {text!r}: invalid {pair.strip()!r}: expected KIND=PARTS, each kind once;"
                f" kinds: {', '.join(KINDS)}"
            )
        mix[kind] = int(part)
    return mix

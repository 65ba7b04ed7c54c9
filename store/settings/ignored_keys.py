"""The keys of RocketMQ that are not settings of cqstore, each with the reason.

``ignored_keys.json`` has every key of the newest release that ``StoreConfig`` does not have, in
classes with a reason. A key of ``named`` may change what a store contains or how it answers, and
has RocketMQ's default; with any other value it is named wherever a file is read. A key of
``broker`` concerns services that a store does not have.
"""

import json
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from functools import cache
from importlib.resources import files
from typing import Any, NamedTuple

from cqstore.store.settings.broker_keys import UNUSED, broker_keys, release

_NO_EFFECT = "without effect in RocketMQ too"


class IgnoredKey(NamedTuple):
    """A key that cqstore does not use."""

    reason: str
    is_named: bool = False
    """Whether the key may change what a store contains or how it answers."""
    default: Any = None
    """The default in RocketMQ of a named key."""


@cache
def ignored_keys() -> Mapping[str, IgnoredKey]:
    """Return key → reason for each key of the newest release that is not a setting of cqstore."""
    table = json.loads(files(__package__).joinpath("ignored_keys.json").read_text(encoding="utf-8"))
    found = dict.fromkeys(UNUSED, IgnoredKey(_NO_EFFECT))
    for each in table["broker"].values():
        found |= dict.fromkeys(each["keys"], IgnoredKey(each["reason"]))
    for each in table["named"].values():
        reason = each["reason"]
        found |= {
            key: IgnoredKey(reason, is_named=True, default=value)
            for key, value in each["keys"].items()
        }
    return found


def named_sentences(values: Mapping[str, Any]) -> Iterator[str]:
    """Yield a sentence per reason about the named keys whose value is not RocketMQ's default.

    Args:
        values: key → value as the broker has it, in file order; ``None``: its default.
    """
    keys = ignored_keys()
    differing = [
        name
        for name, value in values.items()
        if name in keys and keys[name].is_named and value not in {None, keys[name].default}
    ]
    for reason, names in by_reason(differing).items():
        yield f"cqstore does not use {', '.join(names)}: {reason}"


def by_reason(names: Iterable[str]) -> Mapping[str, list[str]]:
    """Return reason → keys, in the order of ``names``."""
    found = defaultdict[str, list[str]](list)
    for name in names:
        found[_reason(name)].append(name)
    return found


def _reason(name: str) -> str:
    if name in ignored_keys():
        return ignored_keys()[name].reason
    key = broker_keys().get(name)
    if key is None or key.since is None or key.until is None:
        return "not a key of RocketMQ"
    return f"removed in RocketMQ {release(key.until)}"

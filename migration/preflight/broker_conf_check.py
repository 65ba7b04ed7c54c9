"""The linter of a broker.conf: RocketMQ ignores in silence what it does not know.

Every key gives at most one finding of its own; what several keys mean together, and against the
store on disk, comes after. Keys that nothing is known of, and that resemble none, are told in one
finding: the broker's plug-ins have keys too.
"""

from collections.abc import Iterator, Mapping
from difflib import get_close_matches

from cqstore.migration.preflight.broker_keys import (
    CHOICES,
    INSTEAD,
    NO_NEED,
    UNUSED,
    BrokerKey,
    Version,
    broker_keys,
    release,
)
from cqstore.migration.preflight.broker_rules import meaning
from cqstore.migration.preflight.broker_values import bad_value
from cqstore.migration.preflight.folder_verdict import FolderKind
from cqstore.migration.preflight.preflight_report import (
    Affected,
    NameCount,
    PreflightFinding,
    Severity,
)
from cqstore.store.settings.config import StoreConfig

_ALIKE = 0.85
"""Likeness from which on an unknown key passes for a misspelt one."""


def usable_config(values: Mapping[str, str]) -> StoreConfig:
    """Return the settings of the store in ``values``, without those whose value is bad."""
    keys = broker_keys()
    return StoreConfig.from_mapping(
        {
            name: value.strip()
            for name, value in values.items()
            if name in StoreConfig.known_keys()
            and bad_value(name, value.strip(), keys[name]) is None
        }
    )


def lint(
    values: Mapping[str, str], version: Version, to: str, verdict: FolderKind | None = None
) -> Iterator[PreflightFinding]:
    """Yield what is wrong with the settings of a broker of that release.

    Args:
        values: keys and values as they are in the file.
        version: RocketMQ's release.
        to: where the queues are to go, ``rocksdb`` or ``file``.
        verdict: what lies on disk, ``None`` if that is not known.
    """
    keys = broker_keys()
    good: dict[str, str] = {}
    unknown = NameCount()
    for name, value in values.items():
        key = keys.get(name)
        finding = _misspelt(name) if key is None else _of_key(name, value, key, version)
        if finding is not None:
            yield finding
        elif key is None:
            unknown.add(name)
        else:
            good[name] = value.strip()
    yield from unknown.finding(
        "keys-unknown",
        Severity.INFO,
        "Nothing is known of these keys: a plug-in may have them, RocketMQ itself ignores them.",
    )
    takes_default = "storeType" in values and "storeType" not in good
    yield from meaning(good, version, to, None if takes_default else verdict)


def _of_key(name: str, value: str, key: BrokerKey, version: Version) -> PreflightFinding | None:
    """Return what is wrong with a setting under a release; ``None``: nothing."""
    text = release(version)
    if key.until is not None and version >= key.until:
        return _finding("key-removed", name, _removed(name, key, text), instead=INSTEAD.get(name))
    if key.since is not None and version < key.since:
        first = release(key.since)
        sentence = f"RocketMQ {text} does not know {name}, which came with {first}."
        return _finding("key-too-new", name, sentence, since=first)
    fault = bad_value(name, value, key)
    if fault is not None:
        sentence = f"The value {value!r} of {name} is {fault}."
        allowed = ", ".join(CHOICES[name]) if name in CHOICES else None
        return _finding("value-bad", name, sentence, value=value, allowed=allowed)
    if name in UNUSED:
        sentence = f"Nothing in RocketMQ acts on {name}."
        return _finding("key-unused", name, sentence, Severity.INFO)
    return None


def _removed(name: str, key: BrokerKey, text: str) -> str:
    """Return the sentence about a key that the release does not have any more."""
    if key.since is None:
        gone = f"No RocketMQ reads {name}"
    else:
        gone = f"RocketMQ {text} has no {name} any more"
    if name in INSTEAD:
        return f"{gone}: write {INSTEAD[name]}."
    return f"{gone}: {NO_NEED.get(name, 'there is no replacement')}."


def _misspelt(name: str) -> PreflightFinding | None:
    """Return the finding of a key that is unknown, but one like it is not; ``None``: none is."""
    keys = broker_keys()
    lower = {each.lower(): each for each in keys}
    close = get_close_matches(name.lower(), lower, 1, _ALIKE)
    if not close:
        return None
    meant = lower[close[0]]
    sentence = f"RocketMQ has no key {name}; is {meant} meant?"
    return _finding("key-misspelt", name, sentence, meant=meant)


def _finding(
    code: str, name: str, sentence: str, severity: Severity = Severity.WARN, **figures: str | None
) -> PreflightFinding:
    """Return a finding about one key."""
    return PreflightFinding(
        code=code, severity=severity, sentence=sentence,
        figures={label: value for label, value in figures.items() if value is not None},
        affected=[Affected(name=name)], affected_total=1,
    )  # fmt: skip

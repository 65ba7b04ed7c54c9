"""Check a broker.conf: RocketMQ silently ignores keys that it does not know.

The values are read like ``--config`` of every command (``settings/broker_conf.py``). Every key
gives at most one finding; findings about combinations of keys, and about keys that contradict the
store, follow. Unknown keys that do not resemble a known one are in one finding, because plug-ins
of the broker have keys too.
"""

from collections.abc import Iterable, Iterator, Mapping
from itertools import chain
from pathlib import Path

from cqstore.migration.preflight.broker_rules import meaning
from cqstore.migration.preflight.folder_verdict import FolderKind
from cqstore.migration.preflight.preflight_report import (
    Figure,
    NameCount,
    PreflightFinding,
    Severity,
    finding,
)
from cqstore.store.paths import StorePaths
from cqstore.store.settings.broker_conf import BrokerConf
from cqstore.store.settings.broker_keys import (
    CHOICES,
    INSTEAD,
    NO_NEED,
    OLDEST,
    UNUSED,
    BrokerKey,
    Version,
    broker_keys,
    release,
)
from cqstore.store.settings.conf_notes import line_notes, near_key
from cqstore.store.settings.conf_values import Outcome, judge

_TRIMS: Version = (5, 2, 0)
"""First release that trims values."""
_UNIT = 20
_SIZES = {
    "mappedFileSizeConsumeQueue": "mappedFileSizeConsumeQueue",
    "mapedFileSizeConsumeQueue": "mappedFileSizeConsumeQueue",
    "mappedFileSizeCommitLog": "mappedFileSizeCommitLog",
    "mapedFileSizeCommitLog": "mappedFileSizeCommitLog",
}
"""Key of a file size → the key since 4.5.2. A broker only starts on files of that size."""
_DEFAULTS = {"mappedFileSizeConsumeQueue": 300_000 * _UNIT, "mappedFileSizeCommitLog": 1 << 30}
_WHAT = {"mappedFileSizeConsumeQueue": "queue", "mappedFileSizeCommitLog": "log"}


def lint(
    conf: BrokerConf,
    version: Version,
    to: str,
    verdict: FolderKind | None = None,
    sizes: Mapping[str, int] | None = None,
) -> Iterator[PreflightFinding]:
    """Yield findings about the settings of a broker of the release.

    Args:
        conf: the configuration file.
        version: RocketMQ release.
        to: target backend, ``rocksdb`` or ``file``.
        verdict: layout of the folder; ``None`` if it is unknown.
        sizes: result of ``file_sizes``; ``None`` if it is unknown.
    """
    keys = broker_keys()
    good: dict[str, str] = {}
    unknown = NameCount()
    for name, text in conf.values.items():
        key = keys.get(name)
        if key is None:
            fault = _misspelt(name)
        elif name in _SIZES and (found := (sizes or {}).get(_SIZES[name])):
            fault = _of_size(name, text, key, version, found)
        else:
            fault = _of_key(name, text, key, version)
        if fault is not None:
            yield fault
        elif key is None:
            unknown.add(name)
        else:
            good[name] = text.strip()
    yield from unknown.finding(
        "keys-unknown",
        Severity.INFO,
        "These keys are unknown: RocketMQ ignores them, but a plug-in may use them.",
    )
    for note in line_notes(conf.lines):
        yield _finding(note.code, note.key, _capital(note.sentence))
    takes_default = "storeType" in conf.values and "storeType" not in good
    yield from meaning(good, version, to, None if takes_default else verdict)


def _of_key(name: str, text: str, key: BrokerKey, version: Version) -> PreflightFinding | None:
    """Return the finding about a setting under a release, or ``None``."""
    shown = release(version)
    if key.until is not None and version >= key.until:
        return _finding("key-removed", name, _removed(name, key, shown), instead=INSTEAD.get(name))
    if key.since is not None and version < key.since:
        first = release(key.since)
        sentence = f"RocketMQ {shown} does not support {name}, which was added in {first}."
        return _finding("key-too-new", name, sentence, since=first)
    judged = judge(name, text, key, trims=version >= _TRIMS)
    if judged.sentence:
        choices = key.names or CHOICES.get(name, ())
        allowed = ", ".join(choices) if choices and judged.outcome is not Outcome.TAKEN else None
        sentence = _capital(judged.sentence)
        return _finding("value-bad", name, sentence, value=text, allowed=allowed)
    if name in UNUSED:
        sentence = f"{name} has no effect in RocketMQ."
        return _finding("key-unused", name, sentence, Severity.INFO)
    return None


def _of_size(
    name: str, text: str, key: BrokerKey, version: Version, found: int
) -> PreflightFinding | None:
    """Return the finding about a size that must match files of ``found`` bytes, or ``None``."""
    fault, current = _of_key(name, text, key, version), _SIZES[name]
    is_read = (key.since or OLDEST) <= version and (key.until is None or version < key.until)
    value = judge(name, text, key).value if is_read else None
    here = f"the {_WHAT[current]} files of this store have {found} bytes"
    right = "remove the key" if found == _DEFAULTS[current] else f"set {current}={found}"
    if isinstance(value, int):
        unit = _UNIT if current == "mappedFileSizeConsumeQueue" else 1
        if -(-value // unit) * unit == found:
            return fault
        sentence = f"{name}={value} is wrong: {here}, and a broker does not start with another size"
        return _finding("conf-against-layout", name, f"{sentence}; {right}.", foundBytes=found)
    if fault is None or is_read:
        return fault
    sentence = f"RocketMQ {release(version)} does not read {name}; {here}: {right}."
    return _finding(fault.code, name, sentence, foundBytes=found)


def file_sizes(paths: StorePaths, log_folders: Iterable[Path]) -> dict[str, int]:
    """Return the sizes of the first queue file and the first log file, by key.

    Raises:
        OSError: a folder cannot be read.
    """
    name = "[0-9]" * 20
    logs = chain.from_iterable(folder.glob(name) for folder in log_folders)
    found = {
        "mappedFileSizeConsumeQueue": paths.consume_queue.glob(f"*/*/{name}"),
        "mappedFileSizeCommitLog": logs,
    }
    sizes = {key: (path.stat().st_size for path in files) for key, files in found.items()}
    first = {key: next(filter(None, each), 0) for key, each in sizes.items()}
    return {key: size for key, size in first.items() if size}


def _removed(name: str, key: BrokerKey, text: str) -> str:
    """Return the sentence about a key that the release no longer supports."""
    if key.since is None:
        gone = f"No RocketMQ release reads {name}"
    else:
        gone = f"RocketMQ {text} no longer supports {name}"
    if name in INSTEAD:
        return f"{gone}: use {INSTEAD[name]}."
    return f"{gone}: {NO_NEED.get(name, 'there is no replacement')}."


def _misspelt(name: str) -> PreflightFinding | None:
    """Return the finding about a key that resembles a known one, or ``None``."""
    keys = broker_keys()
    meant = near_key(name, [each for each, key in keys.items() if key.until is None])
    if meant is None:
        return None
    sentence = f"RocketMQ has no key {name}; did you mean {meant}?"
    return _finding("key-misspelt", name, sentence, meant=meant)


def _capital(sentence: str) -> str:
    """Return a note as a sentence; a key at its start keeps its lower-case letter."""
    sentence = sentence if sentence.endswith("?") else f"{sentence}."
    return sentence[0].upper() + sentence[1:] if sentence.startswith("line ") else sentence


def _finding(
    code: str, name: str, sentence: str, severity: Severity = Severity.WARN, **figures: Figure
) -> PreflightFinding:
    """Return a finding about one key."""
    known = {label: value for label, value in figures.items() if value is not None}
    return finding(code, severity, sentence, [name], **known)

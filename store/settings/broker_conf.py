"""Reading a ``broker.conf``: the settings that the broker has by it, and what to warn of."""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, NamedTuple, Self

from cqstore.store.concurrency.logger import StoreLogger
from cqstore.store.errors import StoreConfigError
from cqstore.store.settings.broker_keys import BrokerKey, broker_keys, release
from cqstore.store.settings.conf_notes import (
    is_of_another,
    line_notes,
    log_below,
    near_key,
    other_store,
)
from cqstore.store.settings.conf_values import Judged, Outcome, judge
from cqstore.store.settings.config import StoreConfig
from cqstore.store.settings.properties_file import ConfLine, last_values, read_lines

_logger = StoreLogger(__name__)
_NOT_OURS = {
    "readOnlyCommitLogStorePaths": "log files in it are not read; name them in storePathCommitLog",
}


class ConfNote(NamedTuple):
    """Something of a file that is not as it looks."""

    sentence: str
    keeps_out_puts: bool = False
    """Whether a setting of the store has another value than the file shows."""


@dataclass(frozen=True)
class BrokerConf:
    """One ``broker.conf``. Immutable; any thread."""

    path: Path
    lines: tuple[ConfLine, ...]

    @classmethod
    def read(cls, path: Path) -> Self:
        """Read the file; no value is looked at.

        Raises:
            StoreIOError: it cannot be read.
            StoreConfigError: it is no properties file, or no text.
        """
        return cls(path, read_lines(path))

    @cached_property
    def values(self) -> Mapping[str, str]:
        """Return keys with their values, as text; of a key that is there twice the last counts."""
        return last_values(self.lines)

    @cached_property
    def _judged(self) -> dict[str, Judged]:
        keys = broker_keys()
        return {
            name: judge(name, text, keys[name])
            for name, text in self.values.items()
            if name in keys and keys[name].until is None
        }

    def taken(self, names: Iterable[str]) -> dict[str, Any]:
        """Return those of ``names`` that the newest release has by this file, converted."""
        return {
            name: self._judged[name].value
            for name in names
            if name in self._judged and self._judged[name].value is not None
        }

    def settings(self, root: Path | None = None, *, beside: Iterable[Path] = ()) -> StoreConfig:
        """Return the settings of a store as the broker has them.

        What the broker has and cqstore cannot have is left at cqstore's default, see ``notes``.
        ``root``: the folder of the store; a log below another ``storePathRootDir`` is looked for in
        it, for a copy of a store, or one that a container sees elsewhere. ``beside``: stores that
        are read by the same file; if it is the file of one of them, a log in another place is that
        store's alone.

        Raises:
            StoreConfigError: a setting of cqstore's own does not fit, or settings contradict each
                other.
        """
        given = self.taken(StoreConfig.known_keys())
        if root is not None and (here := log_below(self.values, root)) is not None:
            given["storePathCommitLog"] = here
        elif root is not None and is_of_another(self.values, root, beside):
            given.pop("storePathCommitLog", None)
        try:
            return StoreConfig.from_mapping(given)
        except StoreConfigError as exc:
            raise StoreConfigError(exc.reason, path=self.path) from exc

    def unknown(self) -> dict[str, str]:
        """Return the keys with their values that no setting of ours answers to."""
        known = StoreConfig.known_keys()
        return {key: value for key, value in self.values.items() if key not in known}

    def value_faults(self, names: Iterable[str]) -> Iterator[Judged]:
        """Yield what is not as it looks of the values of ``names``."""
        for name in names:
            judged = self._judged.get(name)
            if judged is not None and judged.sentence:
                yield judged

    def notes(self, root: Path | None = None, *, is_new: bool = False) -> Iterator[ConfNote]:
        """Yield what is not as it looks: keys first, then values and lines as they are there.

        ``root`` as for ``settings``; ``is_new``: a store is made there, so no log is looked for.
        """
        for key, why in unused_keys(self.unknown()).items():
            sentence = f"{key} is not a setting of cqstore: {why}"
            yield ConfNote(sentence, keeps_out_puts=True)
        known, keys = StoreConfig.known_keys(), broker_keys()
        last = {line.key: line.number for line in self.lines}
        for key, number in last.items():
            judged = self._judged.get(key)
            if judged is not None and judged.sentence:
                wrong = key in known and judged.outcome in {Outcome.NOT_TAKEN, Outcome.NOT_OURS}
                yield ConfNote(f"line {number}: {judged.sentence}", keeps_out_puts=wrong)
            elif key in keys and (gone := _gone(key, keys[key])):
                yield ConfNote(f"line {number}: {gone}")
        yield from (ConfNote(each.sentence) for each in line_notes(self.lines))
        if root is not None:
            yield from map(ConfNote, other_store(self.values, root, is_new=is_new))


def read_broker_conf(path: Path) -> tuple[StoreConfig, dict[str, str]]:
    """Read a ``broker.conf`` (Java properties) as the newest RocketMQ does.

    A value that a broker does not take is logged as a warning and leaves its default: ``48␠`` and
    ``75%`` are no numbers, and every boolean but ``true`` is false.

    Returns:
        The config, and the keys with their values that no setting of ours answers to.

    Raises:
        StoreIOError: the file cannot be read.
        StoreConfigError: it is no such file, a broker takes a value that cqstore cannot have, or a
            setting of cqstore's own does not fit.
    """
    conf = BrokerConf.read(path)
    notes = list(conf.value_faults(StoreConfig.known_keys()))
    if wrong := [each.sentence for each in notes if each.outcome is Outcome.NOT_OURS]:
        raise StoreConfigError("; ".join(wrong), path=path)
    for each in notes:
        _logger.warning("%s: %s", path, each.sentence)
    return conf.settings(), conf.unknown()


def unused_keys(unknown: Iterable[str]) -> dict[str, str]:
    """Return which of the keys that no setting answers to matter all the same, and why."""
    known, keys = StoreConfig.known_keys(), broker_keys()
    unused: dict[str, str] = {}
    for key in unknown:
        if key in _NOT_OURS:
            unused[key] = _NOT_OURS[key]
        elif key not in keys and (meant := near_key(key, known)):
            unused[key] = f"did you mean {meant}?"
    return unused


def _gone(key: str, known: BrokerKey) -> str | None:
    """Return what to say of a key that looks like a setting and was one; ``None``: nothing."""
    meant = near_key(key, StoreConfig.known_keys())
    if known.until is None or known.since is None or meant is None:
        return None
    return f"RocketMQ removed {key} in {release(known.until)}; it is ignored"

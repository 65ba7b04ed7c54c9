"""Reader of a ``broker.conf``: the settings that a broker takes from it, and warnings."""

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
    read_only_without_effect,
)
from cqstore.store.settings.conf_values import Judged, Outcome, judge
from cqstore.store.settings.config import StoreConfig
from cqstore.store.settings.ignored_keys import named_sentences
from cqstore.store.settings.properties_file import ConfLine, last_values, read_lines

_logger = StoreLogger(__name__)


class ConfNote(NamedTuple):
    """A warning: something in the file does not have the effect that it seems to have."""

    sentence: str
    keeps_out_puts: bool = False
    """Whether a setting of the store has a different value from the one in the file."""


@dataclass(frozen=True)
class BrokerConf:
    """The content of one ``broker.conf``. Immutable, usable from any thread."""

    path: Path
    lines: tuple[ConfLine, ...]

    @classmethod
    def read(cls, path: Path) -> Self:
        """Read the file, without checking the values.

        Raises:
            StoreIOError: the file cannot be read.
            StoreConfigError: the file is not a properties file, or not a text file.
        """
        return cls(path, read_lines(path))

    @cached_property
    def values(self) -> Mapping[str, str]:
        """Return key → value, as text; if a key is given twice, the last value counts."""
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
        """Return the converted values of ``names`` that the newest release takes from this file."""
        return {
            name: self._judged[name].value
            for name in names
            if name in self._judged and self._judged[name].value is not None
        }

    def settings(self, root: Path | None = None, *, beside: Iterable[Path] = ()) -> StoreConfig:
        """Return the settings of a store as the broker uses them.

        A value that the broker accepts and cqstore does not is left at cqstore's default, see
        ``notes``. ``root`` is the folder of the store. If the file names a log below another
        ``storePathRootDir``, the log is searched below ``root``: the store may be a copy, or
        mounted elsewhere in a container. ``beside``: other stores that are read with the same file;
        if ``storePathRootDir`` is one of them, a log in another place applies to that store only.

        Raises:
            StoreConfigError: a setting of cqstore itself is invalid, or settings contradict each
                other.
        """
        given = self.taken(StoreConfig.known_keys())
        if root is not None and (here := log_below(self.values, root)):
            given |= here
        elif root is not None and is_of_another(self.values, root, beside):
            for key in ("storePathCommitLog", "readOnlyCommitLogStorePaths"):
                given.pop(key, None)
        try:
            return StoreConfig.from_mapping(given)
        except StoreConfigError as exc:
            raise StoreConfigError(exc.reason, path=self.path) from exc

    def unknown(self) -> dict[str, str]:
        """Return key → value for the keys that are not settings of cqstore."""
        known = StoreConfig.known_keys()
        return {key: value for key, value in self.values.items() if key not in known}

    def not_used(self) -> Iterator[str]:
        """Yield a sentence about the keys that concern a store and that cqstore does not use."""
        return named_sentences({name: each.value for name, each in self._judged.items()})

    def value_faults(self, names: Iterable[str]) -> Iterator[Judged]:
        """Yield the values of ``names`` that do not have the effect that they seem to have."""
        for name in names:
            judged = self._judged.get(name)
            if judged is not None and judged.sentence:
                yield judged

    def notes(self, root: Path | None = None, *, is_new: bool = False) -> Iterator[ConfNote]:
        """Yield the warnings about the file: keys first, then values and lines in file order.

        ``root``: see ``settings``. ``is_new``: a store is created there, so no log is searched.
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
        yield from map(ConfNote, self.not_used())
        yield from (ConfNote(each.sentence) for each in line_notes(self.lines))
        yield from map(ConfNote, read_only_without_effect(self.values))
        if root is not None:
            yield from map(ConfNote, other_store(self.values, root, is_new=is_new))


def read_broker_conf(path: Path) -> tuple[StoreConfig, dict[str, str]]:
    """Read a ``broker.conf`` (Java properties) as the newest RocketMQ does.

    A value that a broker does not accept is logged as a warning, and the setting keeps its default:
    ``48␠`` and ``75%`` are not numbers. Every boolean other than ``true`` is false. Keys that
    concern a store and that cqstore does not use are logged too.

    Returns:
        The config, and key → value for the keys that are not settings of cqstore.

    Raises:
        StoreIOError: the file cannot be read.
        StoreConfigError: the file is not a properties file, has a value that a broker accepts and
            cqstore does not, or has an invalid value for a setting of cqstore itself.
    """
    conf = BrokerConf.read(path)
    notes = list(conf.value_faults(StoreConfig.known_keys()))
    if wrong := [each.sentence for each in notes if each.outcome is Outcome.NOT_OURS]:
        raise StoreConfigError("; ".join(wrong), path=path)
    for sentence in (*(each.sentence for each in notes), *conf.not_used()):
        _logger.warning("%s: %s", path, sentence)
    return conf.settings(), conf.unknown()


def unused_keys(unknown: Iterable[str]) -> dict[str, str]:
    """Return key → reason for the unknown keys that are worth a warning."""
    known, keys = StoreConfig.known_keys(), broker_keys()
    unused: dict[str, str] = {}
    for key in unknown:
        if key not in keys and (meant := near_key(key, known)):
            unused[key] = f"did you mean {meant}?"
    return unused


def _gone(key: str, known: BrokerKey) -> str | None:
    """Return a warning about a removed key that resembles a setting; else ``None``."""
    meant = near_key(key, StoreConfig.known_keys())
    if known.until is None or known.since is None or meant is None:
        return None
    return f"RocketMQ removed {key} in {release(known.until)}; it is ignored"

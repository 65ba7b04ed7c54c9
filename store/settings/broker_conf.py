"""Reading a ``broker.conf``: the settings in it, and what its reader is to be warned of."""

from collections.abc import Iterable, Iterator
from pathlib import Path

from cqstore.store.errors import StoreConfigError, os_errors
from cqstore.store.files import read_file
from cqstore.store.path_kind import exists, is_dir, is_file
from cqstore.store.settings.conf_notes import (
    control_character,
    ignored_lines,
    near_key,
    other_store,
)
from cqstore.store.settings.config import StoreConfig

MAX_CONFIG_BYTES = 1 << 20
"""Of a ``broker.conf``."""
_NOT_OURS = {
    "readOnlyCommitLogStorePaths": "log files there are not read; name them in storePathCommitLog",
}


def read_broker_conf(path: Path) -> tuple[StoreConfig, dict[str, str]]:
    """Read a ``broker.conf`` (Java properties).

    Returns:
        The config, and the keys with their values that no setting of ours answers to.

    Raises:
        StoreIOError: the file cannot be read.
        StoreConfigError: a value does not fit its setting.
    """
    pairs = read_properties(path)
    known = StoreConfig.known_keys()
    given = {key: value.strip() for key, value in pairs.items() if key in known}
    try:
        config = StoreConfig.from_mapping(given)
    except StoreConfigError as exc:
        raise StoreConfigError(exc.reason, path=path) from exc
    return config, {key: value for key, value in pairs.items() if key not in known}


def read_properties(path: Path) -> dict[str, str]:
    """Return keys and values as Java's ``Properties`` reads them; of a key twice, the last.

    Raises:
        StoreIOError: the file cannot be read.
        StoreConfigError: it is no properties file, or no text.
    """
    import javaproperties  # noqa: PLC0415 - with it come HTTP and TLS, which few commands need

    text = _text(path)
    try:
        pairs: dict[str, str] = javaproperties.loads(text)
    except javaproperties.InvalidUEscapeError as exc:
        raise StoreConfigError(f"not a properties file: {exc}", path=path) from exc
    return pairs


def conf_notes(path: Path, root: Path) -> Iterator[str]:
    """Yield warnings about a ``broker.conf`` whose settings are used for the store ``root``.

    Raises:
        StoreError: as ``read_properties``.
    """
    yield from ignored_lines(_text(path))
    yield from other_store(read_properties(path), root)


def _text(path: Path) -> str:
    """Return the text of a properties file.

    Raises:
        StoreConfigError: it is a folder, or has control characters.
        StoreIOError: it cannot be read.
    """
    if is_dir(path):
        raise StoreConfigError("this is a folder, not a properties file", path=path)
    if exists(path) and not is_file(path):
        raise StoreConfigError("this is a device or a pipe, not a properties file", path=path)
    with os_errors("read the configuration", path):
        text = read_file(path, MAX_CONFIG_BYTES).decode("utf-8", errors="replace")
    if (at := control_character(text)) is not None:
        raise StoreConfigError(
            f"not a properties file: found the control character {text[at]!r} behind {at}"
            " characters, expected text",
            path=path,
        )
    return text


def unused_keys(unknown: Iterable[str]) -> dict[str, str]:
    """Return which of the keys that no setting answers to matter all the same, and why."""
    known = StoreConfig.known_keys()
    unused: dict[str, str] = {}
    for key in unknown:
        if key in _NOT_OURS:
            unused[key] = _NOT_OURS[key]
        elif meant := near_key(key, known):
            unused[key] = f"is {meant} meant?"
    return unused

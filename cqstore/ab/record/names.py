"""Names of a trace: as they are, or replaced so that a trace can be given away."""

import hmac
import secrets

from cqstore.store.record.message import DLQ_PREFIX, LMQ_PREFIX, RETRY_PREFIX
from cqstore.store.record.topic_names import is_system_topic

_DIGITS = 16
_KEY_BYTES = 32
_MAX_NAMES = 100_000


class Names:
    """Topics and tags as a trace shows them: unchanged."""

    def topic(self, name: str) -> str:
        """Return the topic's name in the trace."""
        return name

    def tag(self, name: str | None) -> str | None:
        """Return the tag in the trace."""
        return name


class AnonymousNames(Names):
    """Topics, groups and tags replaced by keyed digests; the key exists only in this object.

    Equal names stay equal within one recording, and different recordings have different names.
    Topics of the broker itself, and the prefixes of retry, dead-letter and light topics stay.
    """

    def __init__(self, key: bytes | None = None) -> None:
        """``key``: secret of the digests; a random key if it is not given."""
        self._key = key or secrets.token_bytes(_KEY_BYTES)
        self._known: dict[tuple[str, str], str] = {}

    def topic(self, name: str) -> str:
        """Return the replaced name of a topic; groups are in names of retry topics."""
        if is_system_topic(name):
            return name
        for prefix in (RETRY_PREFIX, DLQ_PREFIX, LMQ_PREFIX):
            if name.startswith(prefix):
                return prefix + self._replaced("group", name.removeprefix(prefix))
        return self._replaced("topic", name)

    def tag(self, name: str | None) -> str | None:
        """Return the replaced tag."""
        return None if name is None else self._replaced("tag", name)

    def _replaced(self, kind: str, name: str) -> str:
        found = self._known.get((kind, name))
        if found is None:
            text = f"{kind} {name}".encode("utf-8", "surrogatepass")
            found = f"{kind}-{hmac.digest(self._key, text, 'sha256').hex()[:_DIGITS]}"
            if len(self._known) < _MAX_NAMES:  # later names are computed each time
                self._known[kind, name] = found
        return found

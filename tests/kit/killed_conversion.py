"""A verb that changes metadata and kills itself at a change below ROOT, see ``killed_at_change``.

``python -m tests.kit.killed_conversion COUNT ROOT WORD…``, of ``meta`` or, with the first word
``groups``, of that. What RocksDB writes itself is not seen.
"""

import sys
from pathlib import Path

from cqstore.broker.commands import groups_app
from cqstore.broker.commands import meta_app as app
from tests.kit import killed_at_change
from tests.kit.killed_at_change import ALL, run_until_killed


def changes_until_killed(root: Path, *words: str, count: int = ALL) -> int | None:
    """Run the verb in a process; return how many changes it made, ``None`` if it was killed."""
    return killed_at_change.changes_until_killed("tests.kit.killed_conversion", count, root, *words)


def main() -> None:
    count, root, words = int(sys.argv[1]), sys.argv[2], sys.argv[3:]

    def verb() -> None:
        if words[0] == "groups":
            groups_app(words[1:], standalone_mode=False)
        else:
            app(words, standalone_mode=False)

    run_until_killed(count, verb, root)


if __name__ == "__main__":
    main()

"""A run of an archive that kills itself at a change below FOLDER, see ``killed_at_change``.

``python -m tests.kit.killed_archive COUNT FOLDER ROOT FORM``.
"""

import sys
from pathlib import Path

from tests.kit import killed_at_change
from tests.kit.archived import archive
from tests.kit.killed_at_change import ALL, run_until_killed


def changes_until_killed(
    folder: Path, root: Path, count: int = ALL, form: str = "parquet"
) -> int | None:
    """Archive a store in a process; return how many changes it made, ``None`` if it was killed."""
    return killed_at_change.changes_until_killed(
        "tests.kit.killed_archive", count, folder, root, form
    )


def main() -> None:
    count, folder, root, form = int(sys.argv[1]), *sys.argv[2:]
    run_until_killed(count, lambda: archive(Path(folder), form, s=Path(root)), folder)


if __name__ == "__main__":
    main()

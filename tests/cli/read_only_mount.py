"""Every verb that only looks, on a mount that is read-only. Run by ``test_read_only_mount``.

``python -m tests.cli.read_only_mount ROOT``: each verb in a child of its own; lines of what failed.
"""

import os
import sys
import tempfile
from importlib.metadata import entry_points
from pathlib import Path

from cqstore.cli.app import main

VERBS = """\
info ROOT
check ROOT
mode ROOT
clean ROOT
topics ROOT --times
topics ROOT --idle 1
topics ROOT --delete t
get ROOT --topic t
dump ROOT --messages
dump ROOT --topic t
top ROOT --once
query ROOT --topic t --key k
offset ROOT --topic t --time 0
usage ROOT --by topic
usage ROOT --unused
groups ROOT
groups reset ROOT g --topic t --to earliest
pending ROOT
meta ROOT
meta ROOT --check
migrate status ROOT
"""
ROCKSDB = """\
rocksdb stats ROOT
rocksdb audit ROOT
"""


def report(*words: object) -> None:
    sys.stdout.write(" ".join(map(str, words)) + "\n")


def ended(words: list[str], output: Path) -> int:
    """Return how a verb ended, in a child of this process."""
    child = os.fork()
    if not child:
        code = 70
        try:
            to = os.open(output, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
            os.dup2(to, 1)
            os.dup2(to, 2)
            sys.argv[:] = ["cqstore", *words]
            code = 0
            main()
        except SystemExit as exc:
            code = exc.code if isinstance(exc.code, int) else 71
        finally:
            os._exit(code)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


def run(root: str, folder: Path) -> None:
    """Run all of them; what they import is imported once."""
    for group in ("commands", "backends", "mode", "indexes", "topics"):
        for found in entry_points(group=f"cqstore.{group}"):
            found.load()
    verbs = VERBS + (ROCKSDB if Path(root).name != "file" else "")
    for line in verbs.splitlines():
        code = ended(line.replace("ROOT", root).split(), folder / "said")
        if code:
            report(line, code, (folder / "said").read_text(encoding="utf-8"))
    code = ended(["put", root, "--topic", "t", "--body", "x"], folder / "said")
    said = (folder / "said").read_text(encoding="utf-8")
    if code != 2 or "Read-only file system" not in said or root not in said:
        report("put", code, said)
    backup = str(folder / "backup")
    for words in (
        ["backup", root, backup],
        ["check", backup, "--against", f"{backup}/cqstore/backup.json"],
    ):
        if code := ended(words, folder / "said"):
            report(*words, code, (folder / "said").read_text(encoding="utf-8"))


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as made:
        run(sys.argv[1], Path(made))

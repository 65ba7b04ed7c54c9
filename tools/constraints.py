"""Write ``tools/constraints.txt``: the versions that pip chooses today for development.

Run it with the oldest Python that the project supports: newer ones take these versions too.
"""

import json
import subprocess
import sys
from pathlib import Path

TARGET = Path(__file__).with_name("constraints.txt")
HEAD = """\
# Versions of the development environment, for Python 3.11 and later.
# Renew them with `make constraints`; what is allowed at all is in pyproject.toml.
"""
BUILD = ["setuptools", "cython"]
"""What ``make`` installs before the project, to compile it."""

OWN = {"cqstore", "cqstore-rocksdb", "cqstore-lmdb"}
"""Made in this repository."""


def main() -> None:
    """Resolve the environment anew and write the file; RocksDB's library is in ``dist``."""
    command = [sys.executable, "-m", "pip", "install", "--quiet", "--dry-run", "--ignore-installed"]
    report = subprocess.run(
        [*command, "--find-links", "dist", "--report", "-", *BUILD, ".[dev]"],
        check=True,
        stdout=subprocess.PIPE,
    )
    packages = (one["metadata"] for one in json.loads(report.stdout)["install"])
    pins = {one["name"].lower(): one["version"] for one in packages if one["name"] not in OWN}
    lines = [f"{name}=={version}\n" for name, version in sorted(pins.items())]
    TARGET.write_text(HEAD + "".join(lines), encoding="utf-8")


if __name__ == "__main__":
    main()

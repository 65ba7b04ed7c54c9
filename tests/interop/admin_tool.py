"""Runs RocketMQ's ``mqadmin``."""

import subprocess
import tempfile
from dataclasses import dataclass
from pathlib import Path

from bench.peer.maven import JavaProgram

VERSION = "5.5.0"
"""The tools of 5.5.1 are not published."""


@dataclass(frozen=True)
class AdminTool:
    """RocketMQ's tools, built."""

    program: JavaProgram

    @classmethod
    def build(cls) -> "AdminTool":
        """Compile the program, once.

        Raises:
            UnavailableError: it cannot be done here.
        """
        return cls(JavaProgram.build(Path(__file__).parent / "admin", "interop.Admin", VERSION))

    def run(self, command: str) -> str:
        """Run a command line ``mqadmin …``; return what it prints."""
        name, *words = command.split()
        assert name == "mqadmin"
        with tempfile.TemporaryDirectory() as home:
            done = subprocess.run(
                [*self.program.command(home, ["-Xmx256m"]), *words],
                capture_output=True, text=True, env=JavaProgram.environment(), timeout=120,
                check=True,
            )  # fmt: skip
        return done.stdout

"""Nothing is logged anywhere unless the embedder asks for it."""

import importlib
import logging
import re
import subprocess
import sys
import threading
import tomllib
from collections.abc import Callable
from pathlib import Path

import pytest

from store.logger import StoreLogger
from tests.conftest import pytest_runtest_setup

ROOT = Path(__file__).parents[2]
PACKAGES = sorted(
    pattern.removesuffix("*")
    for pattern in tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["tool"][
        "setuptools"
    ]["packages"]["find"]["include"]
    if pattern != "cqstore"  # names alone: nothing in it logs
)
WARNS = """
import importlib, logging, sys
for name in sys.argv[1:]:
    importlib.import_module(name)
    logging.getLogger(name + ".module").critical("heard from %s", name)
"""


def test_the_packages_warn_nobody_by_default() -> None:
    done = subprocess.run(
        [sys.executable, "-c", WARNS, *PACKAGES], cwd=ROOT, capture_output=True, text=True,
        check=True,
    )  # fmt: skip
    assert PACKAGES == [
        "ab", "analysis", "cq_file", "cq_rocksdb", "embedded", "metadata", "migration", "on_spark",
        "operating", "replication", "store",
    ]  # fmt: skip
    assert (done.stdout, done.stderr) == ("", "")


def test_what_a_store_logs_reaches_who_asks_and_nobody_else(tmp_path: Path) -> None:
    code = """
import logging, sys
from cqstore import Message, MessageStore
if len(sys.argv) > 2:
    logging.basicConfig(level=logging.INFO, format="%(name)s %(levelname)s %(message)s")
with MessageStore.open(sys.argv[1], backend="rocksdb") as store:
    def full(size):
        from store.errors import DiskFullError
        raise DiskFullError("no room")
    store.commit_log._writable = full
    store.put_message(Message("t", b"x"))
"""
    run = [sys.executable, "-c", code, str(tmp_path / "store")]
    silent = subprocess.run(run, cwd=ROOT, capture_output=True, text=True, check=True)
    assert (silent.stdout, silent.stderr) == ("", "")
    asked = subprocess.run(
        [*run, "aloud"], cwd=ROOT, capture_output=True, text=True, check=True
    ).stderr
    assert "store.service.writing.putter ERROR put refused: no room" in asked
    assert "cq_rocksdb.store INFO opened the RocksDB queues" in asked


def test_every_logger_is_below_its_packages_and_lets_no_thread_wait() -> None:
    """Programs ask ``logging`` itself, to add handlers; a module logs by ``StoreLogger``."""
    found = 0
    for package in PACKAGES:
        for path in (ROOT / package).rglob("*.py"):
            text = path.read_text(encoding="utf-8")
            if "StoreLogger(__name__)" not in text:
                assert path.name == "logger.py" or not re.search(r"=\s*logging\.getLogger", text)
                continue
            name = ".".join(path.relative_to(ROOT).with_suffix("").parts)
            module = importlib.import_module(name.removesuffix(".__init__"))
            loggers = [
                value for value in vars(module).values() if isinstance(value, logging.Logger)
            ]
            assert [type(logger) for logger in loggers] == [StoreLogger]
            assert [logger.name for logger in loggers] == [module.__name__]
            found += 1
    assert found > 20


@pytest.mark.parametrize("logger", [StoreLogger, logging.getLogger])
def test_no_lock_that_a_test_left_taken_is_that_of_the_next(
    request: pytest.FixtureRequest,
    caplog: pytest.LogCaptureFixture,
    logger: Callable[[str], logging.Logger],
) -> None:
    handlers = logging.getLogger().handlers
    assert caplog.handler in handlers
    assert len(handlers) > 2
    for handler in handlers:
        handler.acquire()  # as an exception in the middle of a line does
    pytest_runtest_setup(request.node)
    words = ("from a thread",)
    thread = threading.Thread(target=logger("store.test").warning, args=words, daemon=True)
    thread.start()
    thread.join(30)
    assert not thread.is_alive()
    assert caplog.messages == ["from a thread"]

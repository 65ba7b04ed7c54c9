"""Nothing is logged anywhere unless the embedder asks for it."""

import importlib
import logging
import re
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from cqstore.store.concurrency.logger import StoreLogger
from tests.conftest import pytest_runtest_setup
from tests.kit.product_tree import ROOT, module_name, product_files

WARNS = """
import logging
import cqstore.store.concurrency.logger
logging.getLogger("cqstore.migration.module").critical("heard")
"""


def test_the_package_warns_nobody_by_default() -> None:
    done = subprocess.run(
        [sys.executable, "-c", WARNS], cwd=ROOT, capture_output=True, text=True, check=True
    )
    assert (done.stdout, done.stderr) == ("", "")


def test_what_a_store_logs_reaches_who_asks_and_nobody_else(tmp_path: Path) -> None:
    code = """
import logging, sys
from cqstore import Message, MessageStore
from cqstore.store.service.opening.components import components_of
if len(sys.argv) > 2:
    logging.basicConfig(level=logging.INFO, format="%(name)s %(levelname)s %(message)s")
with MessageStore.open(sys.argv[1], backend="rocksdb") as store:
    def full(size):
        from cqstore.store.errors import DiskFullError
        raise DiskFullError("no room")
    components_of(store).log._writable = full
    store.put_message(Message("t", b"x"))
"""
    run = [sys.executable, "-c", code, str(tmp_path / "store")]
    silent = subprocess.run(run, cwd=ROOT, capture_output=True, text=True, check=True)
    assert (silent.stdout, silent.stderr) == ("", "")
    requested = subprocess.run(
        [*run, "aloud"], cwd=ROOT, capture_output=True, text=True, check=True
    ).stderr
    assert "cqstore.store.service.writing.putter ERROR put refused: no room" in requested
    assert "cqstore.cq_rocksdb.queues.rocksdb_store INFO opened the RocksDB queues" in requested


def test_every_logger_is_below_its_packages_and_lets_no_thread_wait() -> None:
    """Programs ask ``logging`` itself, to add handlers; a module logs by ``StoreLogger``."""
    found = 0
    for path in product_files(".py"):
        text = (ROOT / path).read_text(encoding="utf-8")
        if "StoreLogger(__name__)" not in text:
            assert path.name == "logger.py" or not re.search(r"=\s*logging\.getLogger", text)
            continue
        module = importlib.import_module(module_name(path))
        loggers = [value for value in vars(module).values() if isinstance(value, logging.Logger)]
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
    thread = threading.Thread(target=logger("cqstore.store.test").warning, args=words, daemon=True)
    thread.start()
    thread.join(30)
    assert not thread.is_alive()
    assert caplog.messages == ["from a thread"]

"""Asserts are rewritten once, where several workers would each do it for themselves.

A plugin of pytest. The workers of pytest-xdist start at one time, and each of them imports every
file of tests: in a checkout that was never tested each would rewrite all of them, for a quarter of
a minute. What is already cached is left alone.
"""

import os
import sys
from collections.abc import Iterable
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path

import pytest
from _pytest.assertion import rewrite


def files_of(words: Iterable[str]) -> list[Path]:
    """Return the files of tests that the words of a command line name, folders as a whole."""
    paths = {Path(word.partition("::")[0]) for word in words}
    files = {path for path in paths if path.is_file()}
    return sorted(files.union(*(path.rglob("test_*.py") for path in paths if path.is_dir())))


def rewrite_file(path: Path, config: pytest.Config) -> bool:
    """Cache a file's rewritten code where pytest will look for it; return whether it was not."""
    path = path.absolute()
    state = config.stash[rewrite.assertstate_key]
    cached = rewrite.get_cache_dir(path) / (path.name[:-3] + rewrite.PYC_TAIL)
    if rewrite._read_pyc(path, cached, state.trace) is not None:
        return False
    if not rewrite.try_makedirs(cached.parent):
        return False
    known, code = rewrite._rewrite_test(path, config)
    rewrite._write_pyc(state, code, known, cached)
    return True


@pytest.hookimpl(tryfirst=True)  # before pytest-xdist starts its workers
def pytest_sessionstart(session: pytest.Session) -> None:
    """Rewrite in as many processes as there are processors."""
    config = session.config
    if sys.dont_write_bytecode or not getattr(config.option, "numprocesses", None):
        return
    files, share = files_of(config.args), os.cpu_count() or 1
    context = get_context("fork")  # nothing runs beside this process yet
    with ProcessPoolExecutor(share, context, _take, (config,)) as pool:
        list(pool.map(_rewrite, files, chunksize=8))


_config: list[pytest.Config] = []


def _take(config: pytest.Config) -> None:
    _config.append(config)


def _rewrite(path: Path) -> bool:
    return rewrite_file(path, _config[0])

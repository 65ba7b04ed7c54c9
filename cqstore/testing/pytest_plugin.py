"""The fixture ``rocketmq_broker`` of pytest.

It is not installed as a plugin: only test suites that name this module import it.

    pytest_plugins = ["cqstore.testing.pytest_plugin"]  # in the conftest.py at the top
"""

from collections.abc import Iterator

import pytest

from cqstore.testing.broker import RunningBroker, running_broker


@pytest.fixture
def rocketmq_broker(request: pytest.FixtureRequest) -> Iterator[RunningBroker]:
    """A broker with a temporary store, for one test.

    Its queues are in files; for RocksDB, parametrize the fixture indirectly:
    ``@pytest.mark.parametrize("rocketmq_broker", ["file", "rocksdb"], indirect=True)``.
    """
    with running_broker(backend=getattr(request, "param", "file")) as broker:
        yield broker

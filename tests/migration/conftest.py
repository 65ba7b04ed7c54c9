"""One Spark session for the whole run: it costs many seconds to start."""

from collections.abc import Iterator

import pytest
from pyspark.sql import SparkSession

from migration.session import spark_session


@pytest.fixture(scope="session")
def spark() -> Iterator[SparkSession]:
    """The one session, on two threads."""
    with spark_session("tests", "local[2]", settings={"spark.sql.shuffle.partitions": "2"}) as one:
        yield one


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Keep what needs the session on one worker of pytest-xdist (``--dist loadgroup``)."""
    for item in items:
        if "spark" in getattr(item, "fixturenames", ()):
            item.add_marker(pytest.mark.xdist_group("spark"))

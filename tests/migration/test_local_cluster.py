"""Executors in processes of their own read a store, as a cluster with shared storage does."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pyspark
import pytest

from tests.kit.golden import load_dump

pytestmark = [pytest.mark.long, pytest.mark.slow]
NAME = "basic-combine"
_READ = """
import json, os, sys
from cqstore.spark.spark_session import spark_session
from cqstore.analysis.spark_sources import register

def where(batches):
    import pyarrow as pa
    for batch in batches:
        yield pa.RecordBatch.from_pydict({"pid": [os.getppid()], "rows": [batch.num_rows]})

with spark_session("test", "local-cluster[2,1,1024]") as spark:
    register(spark)
    found = {}
    for kind in ("commitlog", "cq"):
        options = {"partition_units": 500, "partition_bytes": 1, "pushdown": True}
        frame = spark.read.format(f"rocketmq_{kind}").options(**options).load(sys.argv[1])
        rows = frame.where("queue_id < 2").mapInArrow(where, "pid long, rows long").collect()
        found[kind] = sum(row.rows for row in rows), len({row.pid for row in rows})
    print(json.dumps(found))
"""


def test_executors_of_their_own_read_a_store(golden_folder: Path, tmp_path: Path) -> None:
    home = Path(pyspark.__file__).parent
    before = sorted(path.name for path in home.iterdir())
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", _READ, str(golden_folder / NAME)],
        cwd=tmp_path, env=_environment(tmp_path), text=True, capture_output=True, check=False,
        timeout=300,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    dump = load_dump(NAME)
    records = sum(row["queueId"] < 2 for row in dump["messages"])
    units = sum(len(queue["units"]) for queue in dump["queues"] if queue["queueId"] < 2)
    assert json.loads(done.stdout) == {"commitlog": [records, 2], "cq": [units, 2]}
    assert sorted(path.name for path in home.iterdir()) == before
    assert list((tmp_path / "temp").glob("cqstore-spark-*")) == []
    assert [path.name for path in tmp_path.iterdir()] == ["temp"]


def _environment(tmp_path: Path) -> dict[str, str]:
    (tmp_path / "temp").mkdir()
    without = {"PYSPARK_PYTHON", "PYSPARK_DRIVER_PYTHON", "SPARK_LOCAL_IP"}
    kept = {name: value for name, value in os.environ.items() if name not in without}
    root = str(Path(__file__).parents[2])
    return kept | {"PYTHONPATH": root, "TMPDIR": str(tmp_path / "temp")}

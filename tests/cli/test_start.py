"""What a start costs, held by what it imports: a time would depend on the machine."""

import inspect
import json
import os
import subprocess
import sys
import tomllib
from importlib.metadata import version
from pathlib import Path

import pytest

import cqstore
from cqstore.embedded.open_log import open_log
from cqstore.store.record.message import Message
from cqstore.store.service.dispatching.arrivals import ArrivalListener
from cqstore.store.service.message_store import MessageStore
from tests.kit.command_tree import listed
from tests.kit.told import CONFIG

EXTRAS = {"pandas", "pyarrow", "pyspark", "jinja2", "scipy", "hdrh", "prometheus_client"}
HEAVY = EXTRAS | {"numpy", "pydantic", "rocksdict", "lz4", "zstandard", "crcmod"}
RARE = {"javaproperties", "ssl", "http.client"}
"""Needed for a ``broker.conf`` alone, and what comes with it."""
GROUPS = ("rocksdb", "migrate", "meta", "ab")


def imported(code: str) -> set[str]:
    """Return the modules of a new process once it has run ``code``."""
    output = "print(json.dumps([*sys.modules]), file=sys.stderr)"
    whole = f"import json, sys\ntry:\n    {code}\nfinally:\n    {output}"
    done = subprocess.run([sys.executable, "-c", whole], capture_output=True, check=False)
    return set(json.loads(next(line for line in done.stderr.splitlines() if line[:2] == b'["')))


def of_command(*words: str) -> set[str]:
    """Return the modules of ``cqstore`` with these words, at its end."""
    return imported(f"from cqstore.cli import main; sys.argv[:] = {['cqstore', *words]}; main()")


def ours(modules: set[str]) -> set[str]:
    return {name for name in modules if name.split(".")[0] == "cqstore"}


def test_the_package_imports_a_name_when_it_is_asked_for() -> None:
    alone = {"cqstore", "cqstore.store", "cqstore.store.lazy_names"}
    assert ours(imported("import cqstore")) == alone
    errors_alone = imported("from cqstore import StoreError")
    assert ours(errors_alone) == {*alone, "cqstore.store.errors"}
    assert not errors_alone & (HEAVY | RARE)


OTHERWISE_NAMED = {"ArrivalListener", "Progress", "open"}  # a kind of function; ``open_log``


def test_every_public_name_is_there() -> None:
    assert cqstore.MessageStore is MessageStore
    assert cqstore.open is open_log
    assert cqstore.ArrivalListener is ArrivalListener
    for name in dir(cqstore):
        if name == "__version__":
            continue
        vars(cqstore).pop(name, None)  # an earlier import
        found = getattr(cqstore, name)
        assert found.__name__ == name or name in OTHERWISE_NAMED
        assert vars(cqstore)[name] is getattr(cqstore, name)  # looked up once
    assert set(cqstore.__all__) <= set(dir(cqstore))
    with pytest.raises(AttributeError, match="module 'cqstore' has no attribute 'Nothing'"):
        cqstore.Nothing  # type: ignore[attr-defined]  # noqa: B018


@pytest.mark.slow
def test_a_library_user_imports_what_a_store_needs_and_no_more() -> None:
    modules = imported("from cqstore import MessageStore")
    assert not modules & (EXTRAS | RARE | {"typer", "rich", "rocksdict"})
    assert not {
        name for name in modules if name.startswith(("cqstore.cq_file", "cqstore.cq_rocksdb"))
    }


@pytest.mark.slow
@pytest.mark.parametrize(
    "words", [(), ("--help",), ("--version",), *[(group,) for group in GROUPS]]
)
def test_what_lists_verbs_imports_none(words: tuple[str, ...]) -> None:
    modules = of_command(*words)
    assert "cqstore.cli.app" in modules
    assert not modules & (HEAVY - {"pydantic"} | RARE)  # typer takes that for options of its own
    assert not {name for name in ours(modules) if name.startswith("cqstore.store.service")}


@pytest.mark.slow
@pytest.mark.parametrize(("given", "reported"), [({}, "1"), ({"OPENBLAS_NUM_THREADS": "2"}, "2")])
def test_numpy_starts_no_threads_for_a_verb_unless_it_is_told_to(
    tmp_path: Path, given: dict[str, str], reported: str
) -> None:
    with MessageStore.open(tmp_path / "s", CONFIG, backend="file") as opened:
        opened.put_message(Message("t", b"x"))
    threads = min(int(reported), len(os.sched_getaffinity(0)))
    reported_last = "print(os.environ[NAME], len(os.listdir('/proc/self/task')), file=sys.stderr)"
    code = f"""
import os, sys
from cqstore.cli import main
from tests.kit.waiting import until
NAME = "OPENBLAS_NUM_THREADS"
sys.argv[:] = ["cqstore", "info", {str(tmp_path / "s")!r}]
try:
    main()
finally:
    assert "numpy" in sys.modules
    until(lambda: len(os.listdir("/proc/self/task")) == {threads})  # a joined thread may show still
    {reported_last}
"""
    without = {key: text for key, text in os.environ.items() if key != "OPENBLAS_NUM_THREADS"}
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True,
        env=without | given,
    )  # fmt: skip
    assert done.stderr.split() == [reported, str(threads)]


@pytest.mark.slow
def test_a_verb_imports_no_other(tmp_path: object) -> None:
    modules = of_command("info", f"{tmp_path}/none", "--output", "json")
    assert "cqstore.cli.commands.info" in modules
    assert not modules & (
        EXTRAS | RARE | {"cqstore.cli.commands.check", "cqstore.migration.commands.plan"}
    )


@pytest.mark.slow
def test_info_of_a_store_imports_what_reading_it_takes(tmp_path: Path) -> None:
    with MessageStore.open(tmp_path / "s", CONFIG, backend="file") as opened:
        assert opened.put_message(Message("t", b"x")).ok
    modules = of_command("info", str(tmp_path / "s"))
    assert "cqstore.cq_file.store" in modules
    assert not modules & {
        "numpy.ma",
        "rich.console",
        "rich.progress",
        "cqstore.store.comparing.compared",
    }
    assert not {
        name for name in modules if name.startswith(("cqstore.ab.mirror", "cqstore.ab.trace"))
    }


@pytest.mark.slow
@pytest.mark.parametrize("share", [0, 0.5])
def test_a_store_without_a_share_of_reads_imports_no_comparison(tmp_path: Path, share: int) -> None:
    code = f"""
    from cqstore import MessageStore, StoreConfig
    settings = {{"rocksdb_cq_double_write_enable": True, "ab_share": {share}}}
    with MessageStore.open({str(tmp_path / "s")!r}, StoreConfig(**settings)) as opened:
        opened.max_offset("t", 0)
"""
    modules = imported(code)
    assert {"cqstore.cq_file.store", "cqstore.cq_rocksdb.queues.rocksdb_store"} <= modules
    found = {name for name in modules if name.startswith("cqstore.ab")}
    assert ("cqstore.ab.mirror.mirror" in found) == (share > 0)
    assert bool(found) == (share > 0)
    assert not modules & EXTRAS


def test_a_verb_is_listed_with_the_first_words_of_its_own_help() -> None:
    reported = [(verb.name, verb.help, verb.load()) for verb in listed()]
    assert len(reported) == 56
    for name, sentence, whole in reported:
        assert whole.name == name
        first = inspect.cleandoc(whole.help).split("\n\n", maxsplit=1)[0]
        assert sentence == " ".join(first.splitlines())


@pytest.mark.parametrize(
    ("module", "code", "sentence"),
    [
        (
            "prometheus_client",
            "import cqstore.metrics.prometheus",
            "ImportError: this needs prometheus-client: pip install 'cqstore[metrics]'",
        ),
        (
            "prometheus_client",
            "import cqstore.serve.server_metrics",
            "StoreConfigError: this needs prometheus-client: pip install 'cqstore[metrics]'",
        ),
        (
            "jinja2",
            "from cqstore.migration.verify.page import page; page(None)",
            "StoreConfigError: this needs jinja2: pip install 'cqstore[report]'",
        ),
        (
            "pyarrow",
            "from cqstore.cli.message_files.message_arrow import require_arrow; require_arrow()",
            "StoreConfigError: Parquet and Arrow need pyarrow: pip install 'cqstore[arrow]'",
        ),
        (
            "pyarrow",
            "import cqstore; cqstore.scan('.')",
            "StoreConfigError: Parquet and Arrow need pyarrow: pip install 'cqstore[arrow]'",
        ),
    ],
)
def test_a_missing_extra_is_named_in_a_sentence(module: str, code: str, sentence: str) -> None:
    without = f"import sys; sys.modules[{module!r}] = None; {code}"
    done = subprocess.run(
        [sys.executable, "-c", without], capture_output=True, text=True, check=False
    )
    assert done.stderr.rstrip().endswith(sentence)


def test_each_extra_that_is_named_is_one() -> None:
    settings = tomllib.loads((Path(__file__).parents[2] / "pyproject.toml").read_text("utf-8"))
    extras = settings["project"]["optional-dependencies"]
    assert {"report", "metrics", "spark", "ab", "arrow"} <= extras.keys()
    assert [each.partition(">")[0] for each in extras["report"]] == ["jinja2"]


def test_the_command_is_a_module_too(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "cqstore", "--version"], cwd=tmp_path, capture_output=True,
        text=True, check=True,
    )  # fmt: skip
    assert done.stdout == f"cqstore {version('cqstore')}\n"


def test_the_package_says_its_version() -> None:
    assert cqstore.__version__ == version("cqstore")

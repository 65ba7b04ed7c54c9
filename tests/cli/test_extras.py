"""Verbs whose extra is not installed: what is wrong with the store comes first, then the extra.

And nothing has been written, and nothing that was there is gone.
"""

import sys
from importlib.machinery import ModuleSpec
from importlib.util import find_spec
from pathlib import Path

import pytest

from cqstore.migration.verify import page
from cqstore.store.errors import RefusedStoreError, StoreConfigError, StoreError
from cqstore.store.record.message import Message
from cqstore.store.service.message_store import MessageStore
from tests.kit.command_tree import verbs
from tests.kit.migrations import NO_SPARK, move
from tests.kit.operating import SMALL
from tests.kit.tree import unchanged

SPARK = "pip install 'cqstore[spark]'"
WITHOUT = f"{SPARK}, or give --master none"


@pytest.fixture(autouse=True)
def bare(monkeypatch: pytest.MonkeyPatch) -> None:
    """No extra is there."""

    def without(name: str) -> ModuleSpec | None:
        return None if name in {"pyspark", "pyarrow"} else find_spec(name)

    monkeypatch.setattr("cqstore.spark.spark_session.find_spec", without)
    for name in ("pyarrow", "scipy", "jinja2"):
        monkeypatch.setitem(sys.modules, name, None)
    page._template.cache_clear()


@pytest.fixture
def root(tmp_path: Path) -> Path:
    root = tmp_path / "store"
    with MessageStore.open(root, SMALL, backend="file") as store:
        for number in range(5):
            assert store.put_message(Message("t", b"x", number)).ok
    return root


def refused(*words: object) -> StoreError:
    verb, *rest = map(str, words)
    with pytest.raises(StoreError) as refusal:
        verbs()[verb].main(rest, prog_name="cqstore", standalone_mode=False)
    return refusal.value


@pytest.mark.parametrize(
    ("words", "extra"),
    [
        (("sql", "{}", "select 1"), SPARK),
        (("archive", "{}", "--to", "{}.archive"), SPARK),
        (("export", "{}", "--to", "{}.parquet"), "pip install 'cqstore[arrow]'"),
        (("ab", "run", "{}"), "pip install 'cqstore[ab]'"),
        (("migrate", "plan", "{}", "--from", "log"), WITHOUT),
    ],
)
def test_no_store_is_said_before_an_extra(
    words: tuple[str, ...], extra: str, root: Path, tmp_path: Path
) -> None:
    for place in ("missing", "empty"):
        (tmp_path / "empty").mkdir(exist_ok=True)
        refusal = refused(*(word.format(tmp_path / place) for word in words))
        assert isinstance(refusal, RefusedStoreError), refusal
        assert str(tmp_path / place) in str(refusal)
        assert "pip" not in str(refusal)
    with unchanged(tmp_path):
        refusal = refused(*(word.format(root) for word in words))
        assert isinstance(refusal, StoreConfigError)
        assert refusal.reason.endswith(extra)


@pytest.mark.parametrize("words", [("report", "{}"), ("compare", "{}", "{}")])
def test_no_result_is_said_before_an_extra(words: tuple[str, ...], tmp_path: Path) -> None:
    missing = tmp_path / "none"
    assert "cannot read the result" in str(refused("ab", *(w.format(missing) for w in words)))


def test_no_mirror_is_said_before_an_extra(root: Path) -> None:
    assert "no reads of this store have been mirrored" in str(refused("ab", "live", root))


def test_a_move_that_cannot_run_has_written_nothing(
    root: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert "no migration found" in str(refused("migrate", "run", root))
    verbs()["migrate"].main(["plan", str(root)], prog_name="cqstore", standalone_mode=False)
    assert "plan" in capsys.readouterr().out
    with unchanged(tmp_path):
        assert refused("migrate", "run", root).reason.endswith(WITHOUT)


def test_a_comparison_that_cannot_be_made_leaves_the_last_report(
    root: Path, tmp_path: Path
) -> None:
    assert "no migration is in progress" in str(refused("migrate", "verify", root))
    space, _, _ = move(root)
    space.report.write_text("the last one")
    with unchanged(tmp_path):
        assert refused("migrate", "verify", root).reason.endswith(WITHOUT)
        reported = refused("migrate", "verify", root, "--master", NO_SPARK).reason
        assert reported == "this needs jinja2: pip install 'cqstore[report]'"

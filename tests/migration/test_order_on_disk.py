"""What a migration has renamed and removed is so on disk before its next step begins."""

import shutil
from collections.abc import Callable
from pathlib import Path

from cqstore.broker.conversion.conversion import NextBroker
from cqstore.migration.plan.planner import make_plan
from cqstore.migration.rollback.rollback import rollback
from cqstore.migration.switch.metadata_steps import prepare_locked
from cqstore.migration.workspace import Workspace
from cqstore.store.paths import StorePaths
from cqstore.store.settings.config import StoreConfig
from tests.kit.call_order import CallOrder
from tests.kit.metadata_forms import unpack_forms

Golden = Callable[[str], Path]


def test_an_emptied_workspace_is_empty_on_disk_before_the_journal_says_so(golden: Golden) -> None:
    root = golden("basic-default")
    make_plan(root, target="rocksdb", segment_units=400)
    space = Workspace.of(root)
    order = CallOrder(root)
    with order.watching():
        rollback(root)
    (gone,) = order.places("remove", str(space.plan.relative_to(root)))
    assert order.made[gone + 1] == ("sync", str(space.root.relative_to(root)))
    assert gone + 1 < min(order.places("sync", str(space.journal.relative_to(root))))


def test_a_database_that_is_moved_away_has_its_new_name_on_disk_first(tmp_path: Path) -> None:
    """After a power failure it is found in one of both places, and never in none."""
    unpack_forms(tmp_path)
    root = tmp_path / "v1"
    for path in (tmp_path / "json" / "config").iterdir():  # written later than the databases
        shutil.copy(path, root / "config")
    order = CallOrder(root)
    with order.watching():
        done = prepare_locked(StorePaths(root), NextBroker(["rocksdb"], StoreConfig()))
    assert any("was older than the files and was moved away" in each for each in done.sentences)
    away = [at for at in order.renamed if order.made[at][1].startswith("cqstore/replaced/")]
    assert len(away) == 3
    for at in away:
        new = str(Path(order.made[at][1]).parent)
        assert order.made[at + 1 : at + 3] == [("sync", new), ("sync", "config")]

"""Verbs before a store that the system does not let them look at, list, or open."""

from pathlib import Path

import pytest

from cqstore.store.record.message import Message
from cqstore.store.service.message_store import MessageStore
from tests.cli.test_inputs import typed
from tests.kit.faults import EACCES, Faults
from tests.kit.operating import SMALL, write_offsets
from tests.kit.tree import tree_digest

VERBS = [
    "info {}", "dump {} --messages", "get {} --topic t", "tail {} t", "export {}", "topics {}",
    "offset {} --topic t --time 0", "query {} --topic t --key k", "clean {}", "mode {}",
    "rebuild {}", "put {} --topic t --body x",
    "top {} --once", "top {} --once --by group", "dlq {}", "pending {}", "usage {}", "groups {}",
    "meta {}", "meta convert {} --to v1", "migrate preflight {}", "migrate status {}",
    "migrate run {} --master none", "migrate verify {} --master none", "migrate tables {}",
    "ha check {} {}/other", "ab live {}", "ab policy {}", "rocksdb stats {}",
]  # fmt: skip


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("made") / "forbidden"
    with MessageStore.open(root, SMALL, backend="file") as store:
        assert store.put_message(Message("t", b"x")).ok
    write_offsets(root, {"t@g": {0: 0}})
    return root


@pytest.mark.parametrize("call", ["stat", "list", "open"])
@pytest.mark.parametrize("words", VERBS)
def test_what_is_forbidden_is_one_sentence(
    words: str, call: str, root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = tree_digest(root)
    faults = Faults(monkeypatch)
    faults.fail(call, EACCES, "/forbidden")
    code, _, err = typed([word.format(*[root] * 2) for word in words.split()], monkeypatch)
    faults.heal()
    assert "Traceback" not in err
    if call == "stat":
        assert code == 2
        assert "Permission denied" in err
    if code:  # some need no file of what is forbidden, or say first what else is wrong
        assert str(root) in err
    assert tree_digest(root) == before

"""Paths that verbs take: an empty one is refused by each, and an output in a store by each."""

from pathlib import Path
from typing import Any, get_args

import pytest

from cqstore.cli.path_marks import OutputPath, guarded, path_marks
from cqstore.store.errors import RefusedStoreError, StoreLockedError
from cqstore.store.journals.output_lock import output_lock
from cqstore.store.record.message import Message
from cqstore.store.service.message_store import MessageStore
from cqstore.store.settings.config import StoreConfig
from tests.kit.command_tree import subcommands, verbs
from tests.kit.tree import unchanged

INPUTS = {
    "--against", "--base", "--broker-conf", "--commitlog", "--config", "--delete-from",
    "--tls-ca", "--tls-cert", "--tls-client-ca", "--tls-key", "--trace", "--users",
    "root", "roots", "source", "place", "former", "file", "before", "after",
}  # fmt: skip
"""What verbs only read, or the store that they are for; whatever else is a path is an output."""
OUTPUTS = {
    "--copy-to", "--html", "--into", "--offsets", "--position", "--result", "--spool", "--to",
    "--work", "--workspace", "target",
}  # fmt: skip


def is_path(parameter: Any) -> bool:
    described = getattr(parameter, "type_descriptor", None)
    taken = getattr(described, "annotation", None)
    return Path in {taken, *get_args(taken)}


def all_paths() -> list[tuple[str, str]]:
    """Return the words of each verb with the name of each of its parameters that is a path."""
    found = []
    for name, verb in verbs().items():
        below = subcommands(verb)
        commands = {f"{name} {word}": one for word, one in below.items()} or {name: verb}
        for words, command in commands.items():
            found += [(words, one.opts[0]) for one in command.params if is_path(one)]
    return found


def failure(*words: object) -> Exception | None:
    """Run a verb, also one of an upper layer; return the exception that ended it."""
    first, *rest = map(str, words)
    try:
        verbs()[first].main(rest, prog_name=f"cqstore {first}", standalone_mode=False)
    except Exception as exc:  # noqa: BLE001 - the caller looks at it
        return exc
    return None


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    made = tmp_path_factory.mktemp("paths") / "s"
    config = StoreConfig(mapped_file_size_commit_log=1 << 16, mapped_file_size_consume_queue=2000)
    with MessageStore.open(made, config, backend="file") as store:
        assert store.put_message(Message("t", b"body")).ok
    return made


def test_each_path_is_known_as_an_input_or_an_output() -> None:
    found = {name for _, name in all_paths()}
    assert found == INPUTS | OUTPUTS
    assert len(all_paths()) > 100


@pytest.mark.parametrize(("words", "name"), all_paths())
def test_an_empty_path_is_refused(
    words: str, name: str, root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(root)  # where an empty path would find a store
    with unchanged(root):
        master = ["127.0.0.1:1"] if words in {"follow", "ab record", "ab follow"} else []
        found = failure(*words.split(), *([name, ""] if name.startswith("-") else [*master, ""]))
        assert "path is empty" in getattr(found, "message", ""), found


def outputs() -> list[Any]:
    return [
        pytest.param(words, name, id=f"{words} {name}")
        for words, name in all_paths()
        if name in OUTPUTS
    ]


def given(words: str, name: str, root: Path, output: Path) -> list[object]:
    """Return the words of a call of a verb that writes ``output``, with all that it needs."""
    store: list[object] = [] if words == "ab report" else [root]
    if words in {"ab record", "ab follow"}:
        store = ["127.0.0.1:1"]
    if words in {"ha check", "ha rejoin"}:
        store = [root, root]
    extra: dict[str, list[object]] = {
        "import": [root / "none.jsonl"], "ab report": [root / "result.json"],
        "migrate follow": ["127.0.0.1:1"],
    }  # fmt: skip
    if words == "ab follow" and name != "target":
        store = [*store, root.with_name("work")]
    path = [output] if name == "target" else [name, output]
    return [*words.split(), *store, *extra.get(words, []), *path]


@pytest.mark.parametrize(("words", "name"), outputs())
@pytest.mark.parametrize("inside", ["x", "commitlog/x", "commitlog", "cqstore/x", "link"])
def test_an_output_inside_a_store_is_refused(
    words: str, name: str, inside: str, root: Path, tmp_path: Path
) -> None:
    output = root / inside
    if inside == "link":
        output = tmp_path / "link"
        output.symlink_to(root / "commitlog" / "x")
    with unchanged(root):
        found = failure(*given(words, name, root, output))
        assert isinstance(found, RefusedStoreError), found
        assert "would be inside the store" in str(found)


def test_an_output_in_another_store_is_refused(root: Path, tmp_path: Path) -> None:
    other = tmp_path / "other"
    with MessageStore.open(other, StoreConfig(mapped_file_size_commit_log=1 << 16)):
        pass
    found = failure("export", root, "--to", other / "x.csv")
    assert str(found) == f"the output would be inside the store {other} ({other}/x.csv)"
    log = tmp_path / "log"  # of a store whose commit log is elsewhere
    log.mkdir()
    (log / f"{0:020d}").touch()
    found = failure("export", root, "--to", log / "x.csv")
    assert "among the files of a commit log" in str(found)
    assert sorted(log.iterdir()) == [log / f"{0:020d}"]


def test_a_workspace_may_be_below_the_folder_of_migrations(root: Path) -> None:
    def function(root: Path, workspace: Path) -> None: ...

    marks = {"workspace": OutputPath(locked=False, in_own_folder=True)}
    with guarded(marks, {"root": root, "workspace": root / "cqstore" / "migration-2"}):
        pass
    with pytest.raises(RefusedStoreError), guarded(marks, {"workspace": root / "cqstore" / "cut"}):
        pass
    assert path_marks(function) == {}


LOCKED = {"--to", "--position", "--html", "--result"}


@pytest.mark.parametrize(
    ("words", "name"),
    [each for each in outputs() if each.values[1] in LOCKED and each.values[0] != "archive"],
)
def test_an_output_that_another_process_writes_is_refused(
    words: str, name: str, root: Path, tmp_path: Path
) -> None:
    output = tmp_path / "out.csv"
    with output_lock(output):
        found = failure(*given(words, name, root, output))
        assert isinstance(found, StoreLockedError), found
        assert str(found) == f"another process is writing to this path ({output})"
        resumed = failure("export", root, "--to", output, "--resume")
        assert isinstance(resumed, StoreLockedError)
    assert not [*tmp_path.iterdir()]
    assert failure("export", root, "--to", output) is None
    assert [*tmp_path.iterdir()] == [output]


def test_a_file_of_the_name_of_the_lock_is_not_removed(tmp_path: Path) -> None:
    theirs = tmp_path / ".x.cqstore-lock"
    theirs.write_text("theirs")
    with output_lock(tmp_path / "x"), pytest.raises(StoreLockedError), output_lock(tmp_path / "x"):
        pass
    assert theirs.read_text() == "theirs"

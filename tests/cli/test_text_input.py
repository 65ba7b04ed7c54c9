"""Text of other programs: marks, line ends, compression, pipes; and CSV that any reader reads."""

import codecs
import csv
import gzip
import io
import json
import os
import subprocess
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import zstandard

from cqstore.ab.trace.operations import read_trace
from cqstore.cli.csv_line import csv_line
from cqstore.cli.message_files.text_input import text_input
from cqstore.store.errors import CorruptionError, UnsupportedFormatError
from cqstore.store.record.message import Message
from cqstore.store.service.message_store import MessageStore
from cqstore.store.settings.config import StoreConfig
from tests.kit.commands import COMMAND, cqstore, run

SMALL = StoreConfig(mapped_file_size_commit_log=1 << 16, mapped_file_size_consume_queue=2000)
CONF = "mappedFileSizeCommitLog=65536\nmappedFileSizeConsumeQueue=2000\n"
BODIES = [
    b"plain", b"one\rtwo", b"end\r", b"\r", b"\n", b"\r\n", b"a\n\rb", b'"', b'""', b"\0", b" x ",
    b"", b",", b"\xff\r", "\u2028\x85\x0b\x1c".encode(), "gr\u00f6\u00dfer\ufeff".encode(), b"=1+1",
    b"'", b"\\", b'\r"\r',
]  # fmt: skip
LINES = b'{"topic":"t","body":"one"}\n{"topic":"t","body":"gr\xc3\xb6\xc3\x9fer"}\n'


@pytest.fixture
def root(tmp_path: Path) -> Path:
    with MessageStore.open(tmp_path / "s", SMALL, backend="file") as store:
        assert all(each.ok for each in store.put_messages([Message("t", b) for b in BODIES]))
    (tmp_path / "conf").write_text(CONF)
    return tmp_path / "s"


def bodies(root: Path) -> list[bytes]:
    with MessageStore.open(root, read_only=True) as store:
        return [bytes(each.body) for each in store.get_message("t", 0, 0, 1000).messages()]


def fed(data: bytes, *words: Any) -> "subprocess.CompletedProcess[bytes]":
    """Run a command with ``data`` in a pipe on its standard input."""
    return subprocess.run([*COMMAND, *words], check=False, input=data, capture_output=True)


def put_in(source: Path | str, *words: object, code: int = 0, folder: Path) -> Any:
    new = folder / "new"
    config = ["--config", folder / "conf"]
    return cqstore("import", new, source, "--new", *config, *words, code=code)


def of_rfc_4180(text: str) -> list[list[str]]:
    """Return the rows of a text by the grammar of RFC 4180, where LF ends a row too."""
    rows, row = list[list[str]](), list[str]()
    value, quoted, at = "", False, 0
    while at < len(text):
        char = text[at]
        if quoted:
            if char == '"' and text[at + 1 : at + 2] == '"':
                value, at = value + '"', at + 1
            elif char == '"':
                quoted = False
            else:
                value += char
        elif char == '"':
            assert not value
            quoted = True
        elif char == ",":
            row, value = [*row, value], ""
        elif char == "\n":
            rows, row, value = [*rows, [*row, value]], [], ""
        else:
            assert char != "\r", "a bare CR, which readers take for the end of a row"
            value += char
        at += 1
    return rows


@pytest.mark.parametrize("value", [body.decode("latin-1") for body in BODIES])
def test_a_row_is_read_back_by_the_grammar_and_by_python(value: str) -> None:
    line = csv_line(["a", value, 1])
    assert of_rfc_4180(line) == [["a", value, "1"]]
    assert [*csv.reader(io.StringIO(line, newline=""), strict=True)] == [["a", value, "1"]]


@pytest.mark.parametrize("words", [["get", "--topic", "t"], ["export"], ["tail", "t", "-n", "99"]])
def test_what_is_printed_as_csv_is_read_back(words: list[str], root: Path) -> None:
    verb, *rest = words
    form = ["--format" if verb == "export" else "--output", "csv"]
    text = subprocess.run(
        [*COMMAND, verb, root, *rest, *form], check=True, capture_output=True
    ).stdout.decode()
    head, *found = of_rfc_4180(text)
    assert found == [*csv.reader(io.StringIO(text, newline=""), strict=True)][1:]
    column = head.index("body")
    texts = [row[column].encode() for row in found if not row[head.index("bodyBase64")]]
    assert texts == [body for body in BODIES if b"\xff" not in body]


@pytest.mark.parametrize("form", ["csv", "jsonl"])
@pytest.mark.parametrize("change", ["none", "mark", "crlf", "gz", "zst", "mark-gz", "frames"])
def test_an_export_is_imported_as_other_programs_save_it(
    form: str, change: str, root: Path, tmp_path: Path
) -> None:
    path = tmp_path / f"x.{form}"
    assert run(["export", root, "--to", path]).returncode == 0
    data = path.read_bytes()
    if "mark" in change:
        data = codecs.BOM_UTF8 + data
    if change == "crlf" and form == "jsonl":
        data = data.replace(b"\n", b"\r\n")
    if change.endswith("gz"):
        path, data = (
            path.with_name(f"y.{form}.gz"),
            gzip.compress(data[:99]) + gzip.compress(data[99:]),
        )
    if change in {"zst", "frames"}:
        pieces = [data] if change == "zst" else [data[:99], data[99:]]
        path, data = path.with_name(f"y.{form}.zst"), b"".join(map(zstandard.compress, pieces))
    path.write_bytes(data)
    put_in(path, folder=tmp_path)
    assert bodies(tmp_path / "new") == BODIES


def test_rows_of_a_spreadsheet_of_windows_are_read(tmp_path: Path) -> None:
    (tmp_path / "conf").write_text(CONF)
    path = tmp_path / "x.csv"
    path.write_bytes(codecs.BOM_UTF8 + b'topic,body\r\nt,one\r\nt,"two\r\nlines"\r\n')
    put_in(path, folder=tmp_path)
    assert bodies(tmp_path / "new") == [b"one", b"two\r\nlines"]


@pytest.mark.parametrize("encoding", ["utf-16", "utf-16-le", "utf-16-be", "utf-32"])
@pytest.mark.parametrize("suffix", ["csv", "jsonl"])
def test_wide_text_is_refused_with_the_way_to_convert_it(
    encoding: str, suffix: str, tmp_path: Path
) -> None:
    (tmp_path / "conf").write_text(CONF)
    path = tmp_path / f"x.{suffix}"
    path.write_bytes(
        (LINES.decode() if suffix == "jsonl" else "topic,body\nt,b\n").encode(encoding)
    )
    done = put_in(path, code=2, folder=tmp_path)
    assert f"iconv -f UTF-16 -t UTF-8 {path} > NEW" in done.stderr
    assert not (tmp_path / "new").exists()


@pytest.mark.parametrize("packed", [gzip.compress(LINES * 99), zstandard.compress(LINES * 99)])
def test_a_compressed_file_that_is_cut_short_is_damage_at_each_length(
    packed: bytes, tmp_path: Path
) -> None:
    path = tmp_path / "x"
    path.write_bytes(packed)
    with text_input(path) as file:
        assert file.read() == LINES * 99
    for length in range(4, len(packed)):
        path.write_bytes(packed[:length])
        with pytest.raises(CorruptionError, match="damaged or truncated"), text_input(path) as file:
            file.read()


@pytest.mark.parametrize(
    "packed",
    [LINES, gzip.compress(LINES), zstandard.compress(LINES)],
    ids=["plain", "gzip", "zstd"],
)
def test_a_pipe_is_read_as_a_file_is(packed: bytes, tmp_path: Path) -> None:
    (tmp_path / "conf").write_text(CONF)
    words = ["import", tmp_path / "new", "--new", "--config", tmp_path / "conf"]
    for source in ("-", "/dev/stdin"):
        done = fed(packed, *words, source, "--format", "jsonl")
        assert done.returncode == 0, done.stderr
    done = fed(packed, "put", tmp_path / "new")
    assert done.returncode == 0, done.stderr
    assert bodies(tmp_path / "new") == [b"one", "gr\u00f6\u00dfer".encode()] * 3


def test_a_fifo_is_read_and_what_cannot_be_read_from_one_is_refused(tmp_path: Path) -> None:
    (tmp_path / "conf").write_text(CONF)
    fifo = tmp_path / "fifo.jsonl"
    os.mkfifo(fifo)
    writer = threading.Thread(target=fifo.write_bytes, args=(LINES,))
    writer.start()
    put_in(fifo, folder=tmp_path)
    writer.join()
    assert len(bodies(tmp_path / "new")) == 2
    for words, why in {
        ("--format", "parquet"): "cannot read parquet from a pipe",
        ("--position", tmp_path / "p"): "--position requires an input file",
    }.items():
        assert why in put_in(fifo, *words, code=2, folder=tmp_path).stderr
    assert "give --format" in put_in("-", code=2, folder=tmp_path).stderr


def test_a_line_of_a_pipe_is_read_before_the_next_one_comes() -> None:
    reading, writing = os.pipe()
    path = Path(f"/dev/fd/{reading}")
    os.write(writing, LINES[:27])
    with text_input(path) as file:
        assert file.readline() == LINES[:27]
        os.close(writing)
        assert file.readline() == b""
    os.close(reading)


def test_names_and_traces_with_a_mark_are_read(root: Path, tmp_path: Path) -> None:
    names = tmp_path / "names"
    names.write_bytes(codecs.BOM_UTF8 + b"t\r\n")
    done = run(["topics", root, "--delete-from", names])
    assert "1 topics with 1 queues" in done.stderr
    names.write_bytes("t\n".encode("utf-16"))
    assert run(["topics", root, "--delete-from", names]).returncode == 2
    trace = tmp_path / "trace"
    trace.write_bytes(codecs.BOM_UTF8 + b'{"op":"minOffset","topic":"t","queueId":0}\r\n')
    assert len(read_trace(trace).operations) == 1
    trace.write_bytes("{}".encode("utf-16"))
    with pytest.raises(UnsupportedFormatError, match="iconv"):
        read_trace(trace)


@pytest.mark.parametrize(
    "line",
    [
        '{"topic":"t","queueId":%s}', '{"topic":"t","body":%s}', "%s",
    ],
)  # fmt: skip
def test_numbers_of_thousands_of_digits_are_refused(line: str, tmp_path: Path) -> None:
    (tmp_path / "conf").write_text(CONF)
    path = tmp_path / "x.jsonl"
    path.write_text(line % ("1" * 5000))
    assert "line 1: invalid JSON: Exceeds the limit" in put_in(path, code=2, folder=tmp_path).stderr
    path = tmp_path / "x.csv"
    path.write_text('topic,properties\nt,"%s"\n' % ("1" * 5000))
    assert "row 1" in put_in(path, code=2, folder=tmp_path).stderr


def test_times_of_thousands_of_digits_are_refused(root: Path) -> None:
    for words in (["get", "--topic", "t", "--begin"], ["export", "--end"]):
        done = run([words[0], root, *words[1:], "1" * 5000])
        assert (done.returncode, "Traceback" in done.stderr) == (2, False)


def test_a_begin_beyond_the_end_is_refused(root: Path, tmp_path: Path) -> None:
    put_in(root, folder=tmp_path)
    end = len(BODIES) + 1
    for form in ("jsonl", "csv", "arrow", "parquet"):
        path = tmp_path / f"x.{form}"
        assert run(["export", root, "--to", path]).returncode == 0
        done = put_in(path, "--continue-from", end, "--output", "json", folder=tmp_path)
        assert json.loads(done.stdout)["put"] == 0
        done = put_in(path, "--continue-from", end + 1, code=2, folder=tmp_path)
        assert f"row {end + 1} does not exist: the input has {len(BODIES)}" in done.stderr
    assert put_in(root, "--continue-from", end, folder=tmp_path)
    assert "does not exist" in put_in(root, "--continue-from", 99, code=2, folder=tmp_path).stderr
    words = ["put", tmp_path / "new", "--continue-from"]
    done = fed(LINES, *words, "4")
    assert (done.returncode, b"line or row 4 does not exist" in done.stderr) == (2, True)
    assert fed(LINES, *words, "3").returncode == 0
    assert bodies(tmp_path / "new") == BODIES


EDITS: dict[str, Callable[[list[bytes]], list[bytes]]] = {
    "changed": lambda lines: [lines[0].replace(b"one", b"ONE"), *lines[1:]],
    "removed": lambda lines: lines[1:],
    "inserted": lambda lines: [lines[1], *lines],
    "blank": lambda lines: [b"\n", *lines],
    "shorter": lambda lines: lines[:1],
    "empty": lambda _: [],
}


@pytest.mark.parametrize("edit", EDITS)
def test_a_position_of_an_edited_file_is_refused(edit: str, tmp_path: Path) -> None:
    (tmp_path / "conf").write_text(CONF)
    path, words = tmp_path / "x.jsonl", ["--position", tmp_path / "p"]
    path.write_bytes(LINES)
    put_in(path, *words, folder=tmp_path)
    noted = (tmp_path / "p").read_bytes()
    path.write_bytes(b"".join(EDITS[edit](LINES.splitlines(keepends=True))))
    done = put_in(path, *words, code=2, folder=tmp_path)
    assert "have changed since they were imported" in done.stderr
    assert (tmp_path / "p").read_bytes() == noted
    path.write_bytes(LINES + LINES)  # what only grows goes on
    put_in(path, *words, folder=tmp_path)
    assert len(bodies(tmp_path / "new")) == 4


def test_a_topic_without_a_body_is_refused(root: Path) -> None:
    before = bodies(root)
    done = fed(b"hello\n", "put", root, "--topic", "t")
    assert (done.returncode, b"--body" in done.stderr) == (2, True)
    assert bodies(root) == before
    assert run(["put", root, "--topic", "t", "--body", ""]).returncode == 0
    assert bodies(root) == [*before, b""]


def test_wrong_inputs_are_no_damage(root: Path, tmp_path: Path) -> None:
    empty = tmp_path / "x.parquet"
    empty.touch()
    for words in (
        ["import", root, empty], ["import", root, "/dev/null", "--format", "parquet"],
        ["check", root, "--against", "/dev/null"], ["info", root, "--config", "/dev/null"],
        ["dump", "/dev/null"], ["ab", "report", "/dev/null"],
        ["import", root, empty, "--position", "/dev/null"],
    ):  # fmt: skip
        assert run(words).returncode == 2, words


def test_paths_that_are_no_utf_8_end_without_a_traceback(root: Path, tmp_path: Path) -> None:
    odd = Path(os.fsdecode(os.fsencode(tmp_path) + b"/s\xff"))
    root.rename(odd)
    out = Path(f"{odd}-out")
    for form in ("csv", "jsonl", "parquet", "arrow", "store"):
        path = Path(f"{out}.{form}")
        assert run(["export", odd, "--format", form, "--to", path]).returncode == 0
        words = ["--position", f"{out}.{form}.p"] if form != "store" else []
        done = run(["import", odd, path, *words])
        assert done.returncode == 0, done.stderr
        assert run(["import", odd, path, *words]).returncode == 0
    with MessageStore.open(odd, read_only=True) as store:
        assert store.max_offset("t", 0) == len(BODIES) * 2**4 * 3  # the store came twice
    backup = Path(f"{out}-backup")
    assert run(["backup", odd, backup]).returncode == 0
    assert "\\\\xff" in (backup / "cqstore" / "backup.json").read_text()
    assert run(["check", backup, "--against", "backup.json"]).returncode == 0
    done = run(["migrate", "plan", odd])
    assert (done.returncode, "is not UTF-8" in done.stderr) == (2, True)
    link = tmp_path / "link"
    link.symlink_to(odd)
    assert run(["migrate", "plan", link]).returncode == 0

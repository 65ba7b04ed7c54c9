"""How rows are printed, and what the words of a put mean."""

import io
import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from rich.console import Console

from cqstore.cli.message_files.dump_rows import host_text
from cqstore.cli.output import OutputFormat, RowFormat, output, to_json
from cqstore.cli.table import table
from cqstore.store.errors import IllegalMessageError
from cqstore.store.record.message import Host
from cqstore.store.sentences import some_of
from tests.kit.verbs import Rows, call, rows


def printed(kind: str, given: Rows, capsys: pytest.CaptureFixture[str]) -> str:
    assert output(RowFormat(kind)).rows(given) == len(given)
    return capsys.readouterr().out


def test_rows_are_one_document_or_one_a_line(capsys: pytest.CaptureFixture[str]) -> None:
    rows: Rows = [{"a": 1, "path": Path("p")}, {"a": None, "path": "[x]"}]
    shown = [{"a": 1, "path": "p"}, {"a": None, "path": "[x]"}]
    assert json.loads(printed("json", [], capsys)) == []
    assert json.loads(printed("json", rows[:1], capsys)) == shown[:1]
    assert json.loads(printed("json", rows, capsys)) == shown
    assert printed("jsonl", [], capsys) == ""
    assert [json.loads(line) for line in printed("jsonl", rows, capsys).splitlines()] == shown
    for kind in ("json", "jsonl"):
        output(RowFormat(kind)).record(rows[0])
        assert json.loads(capsys.readouterr().out) == shown[0]
    assert to_json({"a": "é", "b": [1, 2]}) == '{"a":"é","b":[1,2]}'


def test_a_sentence_names_some_and_how_many_more() -> None:
    assert some_of(["a", "b"], 2) == "a, b"
    assert some_of(["a", "b"], 3) == "a, b and 1 more"
    assert some_of(["a", "b"], 9, "; ") == "a; b; and 7 more"


def test_a_table_has_a_head_a_page_and_keeps_brackets(capsys: pytest.CaptureFixture[str]) -> None:
    rows: Rows = [{"number": number, "text": "[bold]"} for number in range(1001)]
    text = printed("table", rows, capsys).splitlines()
    assert text[0].split() == ["number", "text"]
    assert [line.split() for line in text[1:1001]] == [[str(n), "[bold]"] for n in range(1000)]
    assert [line.split() for line in text[1001:]] == [["number", "text"], ["1000", "[bold]"]]
    assert printed("table", rows[:1000], capsys).count("number") == 1
    assert printed("table", [], capsys) == ""
    output(RowFormat.TABLE).record({"a": {"b": 1}, "none": None})
    assert [line.split() for line in capsys.readouterr().out.splitlines()] == [
        ["a", '{"b":', "1}"], ["none"],
    ]  # fmt: skip
    wide = "x" * 500  # longer than a terminal's line, and still a line
    assert printed("table", [{"a": wide}], capsys).splitlines()[1] == wide


def test_csv_has_one_head_line(capsys: pytest.CaptureFixture[str]) -> None:
    rows: Rows = [
        {"a": 'x,"y', "b": {"k": "é"}}, {"a": None, "b": [1, 2]}, {"a": "two\nlines", "b": 3},
    ]  # fmt: skip
    assert printed("csv", rows, capsys) == (
        'a,b\n"x,""y","{""k"": ""é""}"\n,"[1, 2]"\n"two\nlines",3\n'
    )
    assert printed("csv", [], capsys) == ""
    output(RowFormat.CSV).record({"one": 1})
    assert capsys.readouterr().out == "one\n1\n"


@pytest.mark.parametrize("kind", list(RowFormat))
def test_what_came_before_an_error_is_printed(
    capsys: pytest.CaptureFixture[str], kind: RowFormat
) -> None:
    def failing(count: int) -> Iterator[dict[str, int]]:
        for number in range(count):
            yield {"number": number}
        raise IllegalMessageError("enough")

    for count in range(3):
        with pytest.raises(IllegalMessageError):
            output(kind).rows(failing(count))
        text = capsys.readouterr().out
        if kind is RowFormat.JSON:
            assert json.loads(text) == [{"number": number} for number in range(count)]
        elif kind is RowFormat.JSONL:
            assert len(text.splitlines()) == count
        else:
            assert [line.strip() for line in text.splitlines()[1:]] == [*map(str, range(count))]


@pytest.mark.disk
def test_a_put_tells_each_message_s_place_or_why_it_has_none(tmp_path: Path) -> None:
    root = tmp_path / "s"
    done = call(
        "put", root, "--new", feed='\n{"topic":"t","body":"\\u00e9","flag":7}\n \n{"topic":""}\n'
    )
    assert done.exit_code == 1
    stored, refused = (json.loads(line) for line in done.stdout.splitlines())
    first = {"phy": 0, "queueOffset": 0, "msgId": "7F000001" + "0" * 24}
    assert stored == {"status": "PUT_OK", **first, "reason": ""}
    assert "topic is empty" in refused.pop("reason")
    none = {"phy": -1, "queueOffset": -1, "msgId": ""}
    assert refused == {"status": "MESSAGE_ILLEGAL", **none}
    odd = call("put", root, feed='{"topic":"u","bodyBase64":"/*w=="}\n')
    assert "bodyBase64 is not Base64" in str(odd.exception)
    third = call("put", root, feed='\n\n{"topic":"t"}\n7')
    assert "line 4: 7 is not a JSON object" in str(third.exception)
    found, _ = rows("get", root, "--topic", "t")
    assert (found["flag"], found["body"]) == (7, "\u00e9")
    assert call("put", root, feed='{"topic":"plain"}').exit_code == 0
    (plain,) = rows("get", root, "--topic", "plain")
    assert (plain["queueId"], plain["flag"], plain["body"]) == (0, 0, "")


@pytest.mark.disk
def test_properties_are_given_one_by_one(tmp_path: Path) -> None:
    put = ["put", tmp_path / "s", "--new", "--topic", "t", "--body", "", "--queue-id", 2]
    for pair in ("=v", "nv"):
        done = call(*put, "--property", pair)
        assert (done.exit_code, "NAME=VALUE" in done.stderr) == (2, True)
    both = ["--tags", "A", "--keys", "k l", "--property", "n=a=b"]
    assert "given twice" in call(*put, *both, "--property", "TAGS=B").stderr
    assert call(*put, *both).exit_code == 0
    (found,) = rows("get", tmp_path / "s", "--topic", "t", "--queue-id", 2)
    assert found["properties"] == {"TAGS": "A", "KEYS": "k l", "n": "a=b"}
    assert found["body"] == ""


def test_hosts_are_written_as_java_writes_them() -> None:
    assert host_text(Host.of("2001:db8::a:0:1", 1)) == "2001:db8:0:0:0:a:0:1 1"
    assert host_text(Host.of("127.0.0.1", 65535)) == "127.0.0.1 65535"


ODD_ROWS: Rows = [
    {"topic": "orders", "n": 1, "x": None}, {"topic": "zahlungen-é", "n": 2_000, "x": {"a": [1]}},
    {"topic": "日本語", "n": 3, "x": "x" * 50}, {"topic": "[bold]a[b]", "n": 4, "x": ""},
]  # fmt: skip


def test_a_table_into_a_pipe_is_what_rich_makes_of_it(capsys: pytest.CaptureFixture[str]) -> None:
    wide = io.StringIO()
    Console(width=1_000, emoji=False, file=wide).print(table(ODD_ROWS))
    assert output(OutputFormat.TABLE).rows(ODD_ROWS) == len(ODD_ROWS)
    lines = [line.rstrip() for line in wide.getvalue().splitlines()]
    assert capsys.readouterr().out.splitlines() == lines


def test_a_long_cell_into_a_pipe_moves_its_own_row_alone(
    capsys: pytest.CaptureFixture[str],
) -> None:
    output(OutputFormat.TABLE).rows([{"a": "x" * 50, "b": 1}, {"a": "y", "b": 2}, {"a": "z"}])
    assert capsys.readouterr().out.splitlines() == [
        f"{'a':40}  b", f"{'x' * 50}  1", f"{'y':40}  2", "z"
    ]  # fmt: skip


def on_terminal(given: Rows, width: int) -> list[str]:
    shown = io.StringIO()
    Console(width=width, emoji=False, file=shown).print(table(given, width))
    return shown.getvalue().splitlines()


def test_on_a_terminal_nothing_is_cut_and_short_words_are_whole() -> None:
    """A code, sentences, figures and names, as ``migrate preflight`` prints them."""
    row = {
        "severity": "warn", "code": "topics-without-metadata",
        "finding": "Topics with queues are missing from the topic table: they go.",
        "figures": "listedTopics 1, unitsOfLargestQueue 2_000", "affected": f"zahlungen-{'é' * 70}",
    }  # fmt: skip
    lines = on_terminal([row, {"severity": "info", "code": "totals"}], 80)
    assert max(map(len, lines)) <= 80
    words = {word for line in lines for word in line.split()}
    for name in ("severity", "code", "finding", "figures"):
        assert {*row[name].split(), name} <= words
    assert "".join(lines).count("é") == 70
    natural = on_terminal([row], 300)
    assert len(natural) == 2
    assert max(len(line.rstrip()) for line in natural) < 280


@pytest.mark.parametrize("width", [1, 9, 20, 40])
def test_a_narrow_terminal_has_all_letters(width: int) -> None:
    row = {"a": "xyz" * 9, "b": "two words", "c": "日本語" * 5, "d": 1}
    shown = "".join(on_terminal([row], width))
    if width > 10:  # four columns, and two between each two
        for letter in "xyzwo日本語1":
            assert shown.count(letter) == sum(str(value).count(letter) for value in row.values())


def test_what_does_not_fit_a_terminal_is_divided_between_the_parts_of_a_name() -> None:
    """Heads at their capitals; a sign stays with its number, and an empty column goes."""
    row = {
        "group": "billing-service", "nextStoreTimestamp": 1, "empty": None, "file": "a/bcdef/ghi",
        "problem": "found -1 bytes",
    }  # fmt: skip
    assert [line.split() for line in on_terminal([row], 40)] == [
        ["nextStore"], ["group", "Timestamp", "file", "problem"],
        ["billing-", "1", "a/bcdef/", "found"], ["service", "ghi", "-1"], ["bytes"],
    ]  # fmt: skip
    wide = on_terminal([row], 90)
    assert wide[0].split() == [*row]
    assert len(wide) == 2


def test_a_record_on_a_terminal_is_not_cut(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("cqstore.cli.output._PIPE_WIDTH", 80)
    shown = io.StringIO()
    monkeypatch.setattr("sys.stdout", shown)
    output(OutputFormat.TABLE).record({"file": "/" + "x" * 200, "label of four words": 1})
    assert shown.getvalue().count("x") == 200
    assert "label of four words" in shown.getvalue()


def test_a_row_into_a_pipe_is_one_line_and_names_stay_as_they_are(
    capsys: pytest.CaptureFixture[str],
) -> None:
    output(OutputFormat.TABLE).rows([{"topic": ":x:", "body": "two\nlines" + "y" * 2_000}])
    head, row = capsys.readouterr().out.splitlines()
    assert head.split() == ["topic", "body"]
    assert row.split() == [":x:", "two", "lines" + "y" * 2_000]
    output(OutputFormat.TABLE).record({"topic": ":x:"})
    assert ":x:" in capsys.readouterr().out


def test_rows_that_lack_columns_keep_to_them(capsys: pytest.CaptureFixture[str]) -> None:
    """As those of a log file do: a blank has no topic."""
    unlike: list[dict[str, object]] = [{"at": 0, "topic": "t", "size": 90}, {"at": 90, "size": 8}]
    unlike.append({"size": 7, "problem": "cut"})
    output(OutputFormat.TABLE).rows(unlike)
    piped = [line.rstrip() for line in capsys.readouterr().out.splitlines()]
    assert piped == [
        "at  topic  size  problem",
        "0   t      90",
        "90         8",
        "           7     cut",
    ]
    seen = io.StringIO()
    Console(width=80, file=seen).print(table(unlike))
    assert [line.rstrip() for line in seen.getvalue().splitlines()] == piped

"""Conversion of texts as Java does it; ``tests/interop`` has RocketMQ itself convert thousands."""

import math

import pytest

from cqstore.store.settings.java_values import convert, java_trim


@pytest.mark.parametrize(("kind", "bits"), [("int", 31), ("long", 63)])
def test_whole_numbers_fit_their_type_to_the_last(kind: str, bits: int) -> None:
    most = (1 << bits) - 1
    good = ["0", "-0", "+7", "007", "0" * 40 + "9", str(most), f"+{most}", str(-most - 1)]
    large = [str(most + 1), str(-most - 2), "9" * 20, "1" + "0" * 19, "9" * 5000]
    for text in good:
        assert convert(text, kind) == (int(text), None), text
    for text in large:
        assert convert(text, kind) == (None, f"does not fit in a {bits + 1}-bit whole number")
    for text in ["", "-", "1.0", "0x1", "1e3", "--1", "1 2", "1_000", "\U0001d7d9", "75%", "1L"]:
        value, fault = convert(text, kind)
        assert value is None
        assert fault is not None
        assert fault.startswith("is not a valid whole number"), text
    assert convert("\u0661\uff12", kind).value == 12  # as Character.digit does


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("5 ", "(a space follows it)"), (" 5", "(spaces surround it)"), ("5x", "number"),
        ("10485760  # 10MB", "(a comment is part of the value)"),
        ("5 // five", "(a comment is part of the value)"),
        ("'5'", "(quotes are part of the value)"),
    ],
)  # fmt: skip
def test_a_fault_says_what_the_eye_does_not_see(text: str, words: str) -> None:
    fault = convert(text, "int").fault
    assert fault is not None
    assert fault.endswith(words)


def test_every_boolean_but_true_is_false() -> None:
    for text in ("true", "TRUE", "tRuE"):
        assert convert(text, "boolean") == (True, None)
    assert convert("False", "boolean") == (False, None)
    for text in ("true ", " true", "yes", "on", "1", "t", "", "${VAR}"):
        value, fault = convert(text, "boolean")
        assert value is False
        assert fault is not None


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("0.5", 0.5), (" .5 ", 0.5), ("5.", 5.0), ("1e3", 1000.0), ("1d", 1.0), ("-1.5F", -1.5),
        ("0x1p3", 8.0), ("0x.8P1d", 1.0), ("Infinity", math.inf), ("-Infinity", -math.inf),
        ("1e400", math.inf), ("0x1", None), ("inf", None), ("1_0", None), ("", None), ("1dd", None),
        ("much", None), ("e5", None), (".", None),
    ],
)  # fmt: skip
def test_numbers_with_a_point_are_javas(text: str, value: float | None) -> None:
    assert convert(text, "double").value == value
    assert convert("NaN", "double").value != convert("NaN", "double").value


def test_a_text_is_trimmed_as_java_trims_it() -> None:
    assert java_trim("\x00\x1f a\u00a0\t ") == "a\u00a0"
    assert convert(" a ", "text").value == "a"
    assert convert(" a ", "text", trims=False).value == " a "


def test_an_enum_is_set_by_text_and_by_number() -> None:
    names = ("DISABLE", "PROM")
    assert convert("PROM ", "int|text", names).value == "PROM"
    assert convert("2", "int|text", names).value == 2
    for text in ("prom", "2 ", "", '"PROM"'):
        assert convert(text, "int|text", names).value is None
    assert convert("prom", "int|text", names).fault == "is not one of DISABLE, PROM"
    assert convert("PROM ", "text", names, trims=False).value is None

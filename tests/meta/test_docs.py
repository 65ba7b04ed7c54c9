"""The pages and the code say the same."""

import re

import pytest

from tests.kit import command_page, message_page
from tests.kit.command_tree import every_command, verbs
from tests.kit.format_page import LAYOUTS, PAGE, named, rendered

pytestmark = pytest.mark.xdist_group("trees")


def test_every_layout_is_on_the_format_page_as_it_is_declared() -> None:
    text = PAGE.read_text(encoding="utf-8")
    assert sorted(named(text)) == sorted(LAYOUTS)
    assert rendered(text) == text


def test_the_page_of_the_command_line_is_made_from_the_commands() -> None:
    text = command_page.PAGE.read_text(encoding="utf-8")
    assert command_page.rendered(text) == text
    assert text.count("\n## cqstore ") == len(verbs())


def test_the_page_of_error_messages_is_made_from_the_sources() -> None:
    text = message_page.PAGE.read_text(encoding="utf-8")
    assert message_page.rendered(text) == text
    head = text.partition(message_page.MARK)[0]
    assert {name for name in message_page.error_names() if f"`{name}`" not in head} == set()


def test_the_page_of_repair_quotes_messages_that_exist() -> None:
    page = (message_page.ROOT / "docs" / "repair.md").read_text(encoding="utf-8")
    quotes = re.findall(r'(?:\*\*|\| |, )"([^"]+)"', " ".join(page.split()))
    assert len(quotes) > 20
    texts = "\n".join(message_page.literals())
    parts = [part.strip() for quote in quotes for part in quote.split("…") if part.strip()]
    assert [part for part in parts if part not in texts] == []


def test_help_is_plain_text_as_a_terminal_shows_it() -> None:
    """A command in a sentence is written without marks: those of Markdown would be shown too."""
    found = [*every_command()]
    assert len(found) > len(verbs())
    texts = [
        (name, [it.help, *(getattr(one, "help", "") for one in it.params)]) for name, it in found
    ]
    assert [name for name, each in texts if any("`" in (text or "") for text in each)] == []

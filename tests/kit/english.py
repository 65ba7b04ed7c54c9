"""Rules for English that a tool can see: ``python -m tests.kit.english``, part of ``make check``.

Each rule is here and nowhere else. ``docs/decisions/0093-rules-for-english.md`` says why they are
our own. ``tests/meta/test_english.py`` plants faults.
"""

import re
import subprocess
import sys
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import NamedTuple

from tests.kit import command_page, message_page
from tests.kit.command_tree import Command, every_command
from tests.kit.pages import PAGES, ROOT, prose
from tests.kit.product_tree import BESIDE, PRODUCT

MAX_WORDS = 30
"""In a sentence of a document."""
PHRASES = {
    r"(is|are|was|were) none": "name what is missing",
    r"(?<!there )(is|are|was|were) no (?!(?:longer|more|less)\b)[a-z]\w*": "is not a (valid) …",
    r"go(es)? on|went on|going on": "continue",
    r"behind (it|the end|(its|their) end)": "after",
    r"there can ?not be": "cannot, with a subject",
    r"pass(es|ed|ing) over|(?<!\ba )(?<!\bone )pass over": "skip, give up",
    r"likewise|so does": "repeat the noun",
    r"put(s|ting)? under": "store in, store by",
    r"at hand": "available",
    r"as far as (it|they)": "state the condition",
    r"tells|told|hears?|heard": "report, receive",
    r"knows": "has, supports, can",
    r"lies|lay": "is, is stored",
    r"stands?(?! for\b)|stood": "is",
    r"comes?(?! (?:from|after|before|with)\b)": "arrives, is",
}
"""Literal translations: not in documents, help and messages. Each with what to write instead."""
NAMELESS = (
    r"whoever|nobody|somebody|at\s+hand|long\s+way|of\s+late|goes\s+by|for\s+good|twins?"
    r"|hand(s|ed|ing)?\s+on|built\s+anew|sets?\s+aside"
    r"|(new|next|last|former|older|earlier|deleted)\s+life"
    r"|standing|surroundings|(note|was)_behind|(is|are|was|were)\s+far\s+behind"
)
"""Words that lack the thread, caller or path which they are about: not in sources and documents."""
TWIN_OF_A_SIDE = "ab"
"""Where a twin is a thing: the reference of a comparison, once more."""
NOT_ALONE = {"Of", "About", "Before", "Behind", "Those", "As", "Where", "By", "Which", "What"}
"""Words that begin a fragment: such a help cannot be understood alone."""
FIRST_COMMIT = "7bd32e9c12a78111f141b2d38b04a1f38a28b69f"
"""Subjects of later commits are checked."""
MAX_SUBJECT = 72
IMPERATIVES = {"bring", "ping", "embed", "focus"}
"""Verbs that end like another form; those in -ss and -eed are found by their ends."""
NO_VERBS = {"a", "an", "the", "each", "every", "all", "no", "what", "where", "which", "who", "its"}
_SOURCES = (*PRODUCT, *BESIDE, "tools/bench", "tools/mutants", "docs")
_SUFFIXES = {".py", ".pyx", ".pxd", ".pyi", ".h", ".md"}
_SENTENCE_END = re.compile(
    r"""(?<=[.!?])[*")\]]* +(?=[A-Z0-9`*"(\[])|(?<=:)[*")\]]* +(?=[A-Z`*"(\[])"""
)


class Paragraph(NamedTuple):
    """A paragraph, list item, heading or table row of a document."""

    place: str
    text: str
    is_row: bool


def paragraphs(name: str, text: str) -> Iterator[Paragraph]:
    """Yield the paragraphs of Markdown without code blocks, above what is generated."""
    for mark in (command_page.MARK, message_page.MARK):
        text = text.partition(mark)[0]
    text = re.sub(r"<!--.*?-->", lambda found: "\n" * found[0].count("\n"), text, flags=re.DOTALL)
    text = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", text)
    at, lines = 0, list[str]()
    for number, line in enumerate([*text.splitlines(), ""], 1):
        begins = re.match(r" *([-*]|\d+\.) |#+ |:::|\||\s*$", line)
        if lines and (begins or lines[0].startswith("#")):
            yield Paragraph(f"{name}:{at}", " ".join(lines), lines[0].startswith("|"))
            lines = []
        if line.strip() and not line.startswith(":::"):
            at, lines = (at, [*lines, line.strip()]) if lines else (number, [line.strip()])


def long_sentences(text: str) -> Iterator[str]:
    """Yield the sentences of a paragraph that are too long. A piece of code counts as one word."""
    whole = re.sub(r"`[^`]*`", lambda code: code[0].replace(" ", "\N{NO-BREAK SPACE}"), text)
    plain = re.sub(r"^([-*]|\d+\.) ", "", whole)
    for sentence in _SENTENCE_END.split(plain):
        if (words := len(sentence.split(" "))) > MAX_WORDS:
            yield f"{words} words, at most {MAX_WORDS}: {sentence}"


def phrases(text: str) -> Iterator[str]:
    """Yield the phrases of ``text`` that are not plain English."""
    plain = re.sub(r"`[^`]*`", "…", text)
    for pattern, instead in PHRASES.items():
        for found in re.finditer(rf"\b(?:{pattern})\b", plain, re.IGNORECASE):
            context = plain[max(0, found.start() - 40) : found.end() + 40]
            yield f"{found[0]!r} (better: {instead}): {context}"


def fragment(text: str) -> Iterator[str]:
    """Yield what is wrong with the help of an option that is not a sentence of its own."""
    stands_alone = text[:1].isupper() and text.endswith(".")
    if not stands_alone or text.split(maxsplit=1)[0] in NOT_ALONE:
        yield f"not a sentence of its own: {text!r}"


def nameless(name: str, text: str) -> Iterator[str]:
    """Yield the words of a source or document that do not name what they are about."""
    in_ab = name.startswith(f"cqstore/{TWIN_OF_A_SIDE}/") or name == f"docs/{TWIN_OF_A_SIDE}.md"
    for found in re.finditer(rf"\b(?:{NAMELESS})\b", text.lower()):
        if not (in_ab and found[0].startswith("twin")):
            line = text.count("\n", 0, found.start()) + 1
            yield f"{name}:{line}: {found[0]!r}: name the thing"


def subject(text: str) -> Iterator[str]:
    """Yield what is wrong with the subject of a commit."""
    if len(text) > MAX_SUBJECT:
        yield f"{len(text)} characters, at most {MAX_SUBJECT}: {text}"
    found = re.fullmatch(r"[\w./-]+(?:, [\w./-]+)*: ([\w-]+)(?: .*[^.])?", text)
    if found is None:
        yield f"not of the form 'area: imperative', without a full stop: {text}"
    elif (word := found[1].lower()) in NO_VERBS or (
        word not in IMPERATIVES and re.search(r"([^s]s|[^e]ed|ing)$", word)
    ):
        yield f"{found[1]!r} is not an imperative: {text}"


def documents(pages: Iterable[Path] = PAGES, root: Path = ROOT) -> Iterator[str]:
    """Yield the findings in the documents, those of tests aside."""
    for page in pages:
        name = str(page.relative_to(root))
        if name.startswith("tests/"):
            continue
        for place, text, is_row in paragraphs(name, prose(page)):
            found = [*phrases(text), *([] if is_row else long_sentences(text))]
            yield from (f"{place}: {each}" for each in found)


def helps(commands: Iterable[tuple[str, Command]]) -> Iterator[str]:
    """Yield the findings in the help of commands, each given with its name."""
    for name, command in commands:
        yield from (f"{name} --help: {each}" for each in phrases(command.help or ""))
        for one in command.params:
            text = getattr(one, "help", None) or ""
            found = [*phrases(text), *fragment(text)]
            yield from (f"{name} {one.opts[0]}: {each}" for each in found)


def messages(texts_by_kind: Mapping[str, Iterable[str]]) -> Iterator[str]:
    """Yield the findings in errors, findings, notes and log lines."""
    for kind, texts in sorted(texts_by_kind.items()):
        yield from (f"{kind}: {each}" for text in sorted(texts) for each in phrases(text))


def sources(root: Path = ROOT) -> Iterator[str]:
    """Yield the findings in code, comments and docstrings of the packages, and in ``docs``."""
    for folder in _SOURCES:
        for path in sorted((root / folder).rglob("*")):
            if path.suffix in _SUFFIXES:
                yield from nameless(str(path.relative_to(root)), path.read_text(encoding="utf-8"))


def commits(root: Path = ROOT, first: str = FIRST_COMMIT) -> Iterator[str]:
    """Yield the findings in the subjects after the commit ``first``, without merges.

    A source archive and a shallow clone lack the history: a note on standard error says so.
    """
    asked = ["git", "log", "--no-merges", "--format=%h %s", f"{first}..HEAD"]
    try:
        done = subprocess.run(asked, cwd=root, capture_output=True, text=True, check=True)
    except (FileNotFoundError, subprocess.CalledProcessError) as exc:
        why = getattr(exc, "stderr", None) or str(exc)
        sys.stderr.write(f"commit subjects are not checked: {why.strip()}\n")
        return
    for line in done.stdout.splitlines():
        commit, _, text = line.partition(" ")
        yield from (f"{commit}: {each}" for each in subject(text))


def findings() -> Iterator[str]:
    """Yield all findings."""
    yield from documents()
    yield from helps(every_command())
    yield from messages(message_page.messages())
    yield from sources()
    yield from commits()


if __name__ == "__main__":
    found_here = list(findings())
    sys.stdout.writelines(f"{each}\n" for each in found_here)
    sys.exit(1 if found_here else 0)

"""Layout of ``--help``: headings of the verb list, examples, names of arguments."""

import inspect
import re
from typing import Any

VERBS_BY_HEADING = {
    "Inspect": ("info", "check", "topics", "groups", "pending", "meta", "dump", "rocksdb", "top"),
    "Read and search": ("get", "tail", "query", "offset", "dlq", "export"),
    "Write": ("put", "import"),
    "Maintain": ("backup", "clean", "recover", "rebuild", "mode"),
    "Move": ("migrate",),
    "Replicate": ("follow", "feed", "ha"),
    "Serve": ("serve",),
    "Compare": ("ab",),
    "Analyse": ("usage", "sql", "archive"),
    "Shell": ("completion",),
}
"""All verbs of the project, in the order of ``cqstore --help``."""
OTHER_HEADING = "Other"
"""Heading of the verbs of other packages, listed last."""
_HEADINGS = {verb: heading for heading, verbs in VERBS_BY_HEADING.items() for verb in verbs}
_POSITIONS = {verb: position for position, verb in enumerate(_HEADINGS)}
_EXAMPLES = "\nExamples:\n"


def heading_of(verb: str) -> str:
    """Return the heading of a verb in the list of verbs."""
    return _HEADINGS.get(verb, OTHER_HEADING)


def in_order(verbs: list[str]) -> list[str]:
    """Return verbs in the order of the headings."""
    return sorted(verbs, key=lambda verb: _POSITIONS.get(verb, len(_POSITIONS)))


def paragraphs(text: str) -> str:
    """Return the text of a docstring with one line per paragraph, for a terminal of any width."""
    found = _parts(text)[0].split("\n\n")
    return "\n\n".join(" ".join(each.split()) for each in found)


def examples(text: str) -> list[str]:
    """Return the command lines of a docstring's section ``Examples:``, one per line."""
    return [line.strip() for line in _parts(text)[1].splitlines() if line.strip()]


def epilog(text: str) -> str | None:
    """Return the examples at the end of a verb's help, one per paragraph; ``None`` if none."""
    found = examples(text)
    return "\n\n".join(["Examples:", *found]) if found else None


def _parts(docstring: str) -> tuple[str, str]:
    text, _, listed = inspect.cleandoc(docstring).partition(_EXAMPLES)
    return text.rstrip(), listed


class PlainHelp:
    """Base of commands and groups: a flag shows no type, and an argument is written ``DIR``."""

    def get_params(self, ctx: Any) -> list[Any]:
        """Return the parameters; a flag takes no value, so its help shows none."""
        params: list[Any] = super().get_params(ctx)  # type: ignore[misc]
        for one in params:
            if getattr(one, "is_flag", False):
                one.metavar = ""
        return params

    def collect_usage_pieces(self, ctx: Any) -> list[str]:
        """Return the words of the usage line: ``DIR`` is required, ``[DIR]`` is not."""
        pieces: list[str] = super().collect_usage_pieces(ctx)  # type: ignore[misc]
        return [re.sub(r"^\{(.*)\}", r"\1", piece) for piece in pieces]

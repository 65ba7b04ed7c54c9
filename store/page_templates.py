"""Templates of HTML pages, see jinja2."""

from pathlib import Path
from typing import TYPE_CHECKING

from cqstore.store.errors import StoreConfigError

if TYPE_CHECKING:
    from jinja2 import Environment


def page_templates(folder: Path) -> "Environment":
    """Return the templates in ``folder``; inserted values are escaped.

    Raises:
        StoreConfigError: jinja2 is not installed.
    """
    try:
        from jinja2 import Environment, FileSystemLoader, StrictUndefined  # noqa: PLC0415 - an extra
    except ImportError as exc:
        raise StoreConfigError("this needs jinja2: pip install 'cqstore[report]'") from exc
    found = Environment(
        loader=FileSystemLoader(folder), autoescape=True, undefined=StrictUndefined,
        trim_blocks=True, lstrip_blocks=True,
    )  # fmt: skip
    found.filters["number"] = lambda value: f"{value:,}"
    return found

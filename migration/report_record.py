"""The result of a step of a migration, as commands print it."""

from dataclasses import asdict
from typing import TYPE_CHECKING

from pydantic.alias_generators import to_camel

if TYPE_CHECKING:
    from _typeshed import DataclassInstance


def report_record(report: "DataclassInstance") -> dict[str, object]:
    """Return the fields of a report under the names that verbs print: ``camelCase``."""
    return {to_camel(name): value for name, value in asdict(report).items()}

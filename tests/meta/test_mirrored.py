"""Tests lie where their subject lies: a folder of tests is a package of the product, or a kind."""

from tests.kit.product_tree import BESIDE, LINKED, ROOT

ACROSS = {
    "crash", "faults", "fuzz", "golden", "golden_stores", "interop", "interrupts", "kit", "meta",
    "packaging", "property", "tools",
}  # fmt: skip
"""Tests of more than one package, by what they do, and what all tests use."""
SUITES = {"store/queue/double_write", "migration/preflight", "ab/mirror"}
"""Subjects that have no folder of one name."""


def test_a_folder_of_tests_has_the_name_of_what_it_tests() -> None:
    folders = {
        path.parent.relative_to(ROOT / "tests").as_posix()
        for path in (ROOT / "tests").rglob("__init__.py")
    } - {"."}
    of_packages = {each for each in folders if each.split("/")[0] not in ACROSS}
    assert len(of_packages) > 35
    top = {*LINKED, *BESIDE}
    strange = {
        each
        for each in of_packages - SUITES
        if not (ROOT / (each if each.split("/")[0] in top else f"cqstore/{each}")).is_dir()
    }
    assert strange == set()

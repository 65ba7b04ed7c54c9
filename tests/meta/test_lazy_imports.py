"""Imports inside of functions: each is listed here with what runs it, and none is a read or a put.

An interrupted import may break a module for the rest of a process, and takes time in a call that
has none. ``tests/store/service/test_imports.py`` looks at what open stores import.
"""

import ast
from collections.abc import Iterator

from tests.kit.product_tree import ROOT, product_files

OPENING = "opens a store, a log or a scan"
LONG = "compares or checks whole stores; Python of our own, which can be imported again"
VERB = "belongs to a verb or a job, whose process ends with it"
PAGE = "makes a page or a result of a comparison"
NAMES = "imports public names, in the statement of the program that asks for them"
ALLOWED = {
    "cqstore/__init__.py": NAMES,
    "store/lazy_names.py": NAMES,
    "store/whole_import.py": OPENING,
    "store/concurrency/task_worker.py": VERB,
    "store/page_templates.py": PAGE,
    "store/service/maintenance/check.py": LONG,
    "store/service/message_store.py": LONG,
    "store/service/opening/components.py": OPENING,
    "store/service/opening/open_store.py": OPENING,
    "store/settings/java_values.py": OPENING,
    "store/settings/properties_file.py": OPENING,
    "cq_rocksdb/library/native_library.py": OPENING,
    "cqstore/analysis/scan.py": OPENING,
    "cqstore/analysis/archive/iceberg_archive.py": VERB,
    "cqstore/ab/extras.py": PAGE,
    "cqstore/ab/judging/intervals.py": PAGE,
    "cqstore/ab/judging/latencies.py": PAGE,
    "cqstore/ab/measuring/histograms.py": PAGE,
    "cqstore/ab/report/report_page.py": PAGE,
    "migration/tasks.py": VERB,
}
"""What a file's functions import. Files of verbs (``commands``, ``cli``, ``spark``) are VERB."""
FUNCTIONS = {
    "store/service/maintenance/check.py": {"_compare_backends"},
    "store/service/message_store.py": {"verify"},
    "store/service/opening/open_store.py": {"_schedule"},
    "cqstore/analysis/scan.py": {"__init__", "_messages", "_units"},
}
"""Where a file has reads or puts too: the functions that may."""


def lazy_imports(tree: ast.AST, within: str = "") -> Iterator[str]:
    """Yield the name of the innermost function of each import that is in one."""
    for node in ast.iter_child_nodes(tree):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            yield from lazy_imports(node, node.name)
        elif within and isinstance(node, ast.Import | ast.ImportFrom):
            yield within
        else:
            if within and isinstance(node, ast.Call):
                name = getattr(node.func, "id", getattr(node.func, "attr", ""))
                if name in {"import_module", "__import__", "import_whole"}:
                    yield within
            yield from lazy_imports(node, within)


def importing() -> dict[str, set[str]]:
    """Return file → functions that import, of the product."""
    found: dict[str, set[str]] = {}
    for path in product_files(".py"):
        tree = ast.parse((ROOT / path).read_text(encoding="utf-8"))
        if functions := {*lazy_imports(tree)}:
            found[str(path)] = functions
    return found


def is_verb(path: str) -> bool:
    return "/commands/" in path or path.startswith(("cqstore/cli/", "cqstore/spark/"))


def test_each_file_that_imports_inside_of_a_function_is_listed() -> None:
    found = {path: names for path, names in importing().items() if not is_verb(path)}
    opening = {"cq_rocksdb/engine/choice.py", "cq_rocksdb/folders.py"}  # by ``import_whole``
    assert {*found} - opening == {*ALLOWED}
    for path, names in FUNCTIONS.items():
        assert found[path] == names, path


def test_compiled_code_imports_inside_of_no_function() -> None:
    for path in product_files(".pyx"):
        lines = (ROOT / path).read_text(encoding="utf-8").splitlines()
        found = [line for line in lines if line.startswith(" ") and " import " in line]
        assert found == [], path


def test_an_import_is_found_wherever_it_is() -> None:
    text = "import a\ndef f():\n    if x:\n        import b\n    class C:\n        def g(self):\n"
    text += "            from c import d\n    return [import_module('e')]\n"
    assert [*lazy_imports(ast.parse(text))] == ["f", "g", "f"]

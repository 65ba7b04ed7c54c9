"""The index of the helpers names each of them."""

import re

from tests.kit.product_tree import ROOT

KIT = ROOT / "tests" / "kit"


def test_the_index_names_each_helper_and_no_other() -> None:
    text = (KIT / "README.md").read_text(encoding="utf-8")
    rows = [line.split("|")[1] for line in text.splitlines() if line.startswith("| `")]
    plugins = text.split("## Plugins of pytest")[1]
    named = {name for part in (*rows, plugins) for name in re.findall(r"`(\w+)(?:\.\w+)?`", part)}
    there = {
        path.stem
        for path in KIT.iterdir()
        if path.suffix == ".py" or (path / "__init__.py").exists()
    }
    assert named == there - {"__init__"}

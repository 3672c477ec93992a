"""SECURITY.md names only tests that exist, one for each promise."""

from __future__ import annotations

import ast
import re

from tests.docs.blocks import ROOT

TEXT = (ROOT / "SECURITY.md").read_text(encoding="utf-8")


def test_every_promise_has_a_test_that_exists() -> None:
    rows = [line for line in TEXT.splitlines() if re.match(r"\| (?!-|promise|level|`)", line)]
    named = [re.fullmatch(r"\| .+ \| `(tests/\S+\.py)::(test_\w+)` \|", row) for row in rows]
    assert len(rows) > 40
    assert [row for row, found in zip(rows, named, strict=True) if found is None] == []
    missing = []
    for found in filter(None, named):
        tree = ast.parse((ROOT / found[1]).read_text(encoding="utf-8"))
        if found[2] not in {node.name for node in ast.walk(tree) if isinstance(node, ast.FunctionDef)}:
            missing.append(found[0])
    assert missing == []


def test_its_pages_exist() -> None:
    links = re.findall(r"\]\((docs/[^)#]+)", TEXT)
    assert links
    assert [link for link in links if not (ROOT / link).is_file()] == []

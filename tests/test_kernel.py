"""The kernel stays small enough to read in a day."""

from __future__ import annotations

import ast
import io
import tokenize
from pathlib import Path

MOST = 9000
KERNEL = Path(__file__).resolve().parents[1] / "gem_core"
CODE = {tokenize.NAME, tokenize.NUMBER, tokenize.STRING, tokenize.OP, getattr(tokenize, "FSTRING_START", -1)}


def code_lines(source: str) -> int:
    """Return the number of lines with code, without blank lines, comments, and docstrings."""
    lines: set[int] = set()
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        if token.type in CODE:
            lines.update(range(token.start[0], token.end[0] + 1))
    for node in ast.walk(ast.parse(source)):
        match node:
            case ast.Expr(value=ast.Constant(value=str()), lineno=first, end_lineno=last):
                lines.difference_update(range(first, (last or first) + 1))
    return len(lines)


def test_docstrings_comments_and_blank_lines_are_no_code() -> None:
    assert (
        code_lines(
            '"""A."""\n\nx = 1  # one\n\n\ndef f():\n    """A\n    b."""\n    return (\n        x\n    )'
        )
        == 5
    )


def test_the_kernel_is_small() -> None:
    sizes = {path: code_lines(path.read_text("utf-8")) for path in KERNEL.rglob("*.py")}
    assert len(sizes) > 50
    total = sum(sizes.values())
    assert total <= MOST, (
        f"gem_core has {total:,} lines of code, not {MOST:,}: move what no other module of it needs to the "
        "package that uses it (gem_chat, gem_envs, gem_bridges, gem_agents, gem_lab, or a plugin), and "
        "delete what nothing calls"
    )

"""Markdown and LaTeX as trees, and hostile texts in them."""

from __future__ import annotations

import json
import time

import pytest

from gem_lab.eval import _markup
from gem_lab.eval._markup import parse
from gem_lab.eval._viewer import write_page
from tests.eval.traces import EVIL, episode, turn


@pytest.fixture(autouse=True)
def _packages():
    pytest.importorskip("markdown_it", reason="needs the extra 'view'")
    pytest.importorskip("latex2mathml", reason="needs the extra 'view'")


def names(trees) -> set[str]:
    """Return the names of all elements."""
    found = set()
    for tree in trees or ():
        if isinstance(tree, (list, tuple)):
            found |= {tree[0]} | names(tree[2:])
    return found


def attributes(trees) -> set[tuple[str, str]]:
    found = set()
    for tree in trees or ():
        if isinstance(tree, (list, tuple)):
            found |= {(key, str(value)) for key, value in (tree[1] or {}).items()} | attributes(tree[2:])
    return found


def test_the_elements_of_markdown():
    assert parse("So **x** is `y`.\nNext") == (
        ["p", None, "So ", ["strong", None, "x"], " is ", ["code", None, "y"], ".", "\n", "Next"],
    )
    assert parse("3. one\n4. two") == (["ol", {"start": 3}, ["li", None, "one"], ["li", None, "two"]],)
    assert parse("```py\nx  = 1\n```") == (["pre", None, "x  = 1"],)
    assert {"table", "th", "td"} <= names(parse("| a | b |\n|---|---|\n| 1 | 2 |"))
    assert parse("[a](https://x.org/b)") == (["p", None, ["a", {"href": "https://x.org/b"}, "a"]],)


@pytest.mark.parametrize("text", ["Guess a number.", "\\boxed{7}", "1 2 3\n4 5 6", "a_b and c_d", ""])
def test_text_without_markup_has_no_tree(text):
    assert parse(text) is None


@pytest.mark.parametrize(
    ("text", "display"),
    [
        ("is $x^2$.", "inline"),
        (r"is \(x^2\).", "inline"),
        ("is $$x^2$$.", "block"),
        ("so\n\\[\nx^2\n+ 1\n\\]\nand", "block"),
    ],
)
def test_formulas_become_mathml(text, display):
    trees = parse(text)
    assert {"math", "msup"} <= names(trees)
    assert "li" not in names(trees)  # the line that begins with "+"
    assert ("display", display) in attributes(trees)


def test_text_that_is_not_a_formula_stays_text():
    assert "math" not in names(parse("It costs $5 and $6, **really**."))
    assert parse(r"$\frac{$") == (["p", None, ["code", None, r"$\frac{$"]],)


@pytest.mark.parametrize(
    "text",
    [
        f"**b** {EVIL}",
        "**b** <script>alert(1)</script> <img src=x onerror=alert(1)> <a href='javascript:alert(1)'>x</a>",
        "[x](javascript:alert(1)) [x](JaVaScRiPt:alert(1)) [x](&#106;avascript:alert(1)) [x](vbscript:a)",
        "[x](data:text/html,<script>alert(1)</script>) <javascript:alert(1)> [x](file:///etc/passwd)",
        "![x](https://x.org/pixel.png) ![x](javascript:alert(1))",
        "[x]: javascript:alert(1)\n\n**b** [x] [a]\n\n[a]: mailto:a@b.c 'onclick=alert(1)'",
        r"$\href{javascript:alert(1)}{x}$ $\text{<img src=x onerror=alert(1)>}$ $\style{color:red}{x}$",
        r"$\class{a}{x} <script>alert(1)</script>$ \(</math><script>alert(1)</script>\)",
        "```<script>\n</script><script>alert(1)</script>\n```",
    ],
)
def test_hostile_texts_stay_text(text):
    trees = parse(text)
    assert trees is not None
    allowed = _markup._TAGS | _markup._MATH_TAGS | {"a", "span"}
    assert names(trees) <= allowed - {"img", "script"}
    for key, value in attributes(trees):
        assert key in _markup._MATH_ATTRIBUTES | {"href", "start"}
        assert key != "href" or value.lower().startswith(("http://", "https://"))


@pytest.mark.parametrize("piece", ["[", "\\[", "\\[\n", "> ", "`a", "$", "$a $a ", "**a ", "<a ", "- "])
def test_no_text_takes_long_or_nests_too_deep(piece, tmp_path):
    text = "*x* " + piece * (_markup.LONGEST // len(piece) - 4)
    begun = time.process_time()
    json.dumps(parse(text))
    assert time.process_time() - begun < 60  # at most 1 s on one core; a backtracking parser takes hours


def test_deep_formulas_and_long_texts(tmp_path):
    deep = "$" + "x^{" * 400 + "x" + "}" * 400 + "$"
    write_page([episode(turn(action=deep), turn(action="**a** " * 10_000))], tmp_path / "page.html")
    assert parse("**a** " * 10_000) is None


def test_without_the_packages_there_are_no_trees(monkeypatch):
    monkeypatch.setattr(_markup, "_parser", lambda: None)
    assert parse("**without packages**") is None


def _filled(piece: str) -> str:
    return (piece * 20_000)[: _markup.LONGEST]


DEEP = {
    "braces": "$$" + "{" * 700 + "x" + "}" * 700 + "$$",
    "braces in line": "$" + "{" * 900 + "x" + "}" * 900 + "$",
    "roots": "$$" + r"\sqrt{" * 280 + "x" + "}" * 280 + "$$",
    "fractions": "$$" + r"\frac{a}{" * 200 + "x" + "}" * 200 + "$$",
    "powers": "$$" + "x^{" * 450 + "1" + "}" * 450 + "$$",
    "boxes": r"\[" + r"\boxed{" * 240 + "a" + "}" * 240 + r"\]",
    "hats": "$$" + r"\hat{" * 330 + "x" + "}" * 330 + "$$",
    "unclosed": "$$" + r"\left(" * 300 + "$$",
    "emphasis": "*a **b " * 1200 + "c** d*" * 1200,
    "underscores": "*a _b " * 1200 + "c_ d* " * 1200,
    "stars": "*" * 5000 + "a" + "*" * 5000,
    "strike": "~~a *b " * 1200 + "c* d~~" * 1200,
    "quotes": "> " * 9000 + "**x**",
    "lists": "- " * 9000 + "**a**",
    "numbers": "1. " * 6000 + "*a*",
    "stairs": "\n".join(" " * (2 * depth) + "- **a**" for depth in range(130)),
}
PIECES = {
    "newlines": "\n", "blank lines": "  \n", "tabs": "\t\n", "blanks": " ", "dollars": "$",
    "formulas": "$x$ ",
    "unclosed formulas": "\\[", "parentheses": "\\( ", "stars": "*a ", "links": "[a](", "brackets": "[",
    "quotes": "> ", "ticks": "`", "escapes": "\\*", "addresses": "http://a ", "displays": "\\[\na\n",
    "dollar lines": "$$\n", "headings": "# a\n", "bars": "| ", "dashes": "-", "images": "![", "tags": "<a ",
}  # fmt: skip
FLOODS = {
    **{name: _filled(piece) for name, piece in PIECES.items()},
    "table": "|a|b|\n|---|---|\n" + "a\n" * 9000,
    "wide table": "|a" * 2000 + "\n" + "|---" * 2000 + "\n" + "|\n" * 3000,
}


@pytest.mark.parametrize("name", DEEP)
def test_a_deep_answer_is_shown_as_its_source(name, tmp_path):
    text = DEEP[name]
    trees = parse(text)
    assert trees is None or _depth(trees) < 3 * _markup._DEEPEST
    write_page([episode(turn(action=text))], tmp_path / "page.html")
    assert json.dumps(text[:300])[1:-1].replace(">", "\\u003e") in (tmp_path / "page.html").read_text()


def test_a_formula_that_is_too_deep_is_code():
    assert parse(DEEP["braces"]) == (["p", None, ["code", None, DEEP["braces"]]],)
    assert "math" in names(parse("$$" + "{" * 50 + "x" + "}" * 50 + "$$"))


@pytest.mark.parametrize("name", FLOODS)
def test_a_flood_takes_time_in_proportion_to_its_length(name):
    def seconds(text: str) -> float:
        _markup.parse.cache_clear()
        _markup._math.cache_clear()
        start = time.process_time()
        parse(text)
        return time.process_time() - start

    assert seconds(FLOODS[name]) < 10
    assert seconds(FLOODS[name] * 10) < 0.5, "a longer text is not parsed"


def _depth(tree) -> int:
    inner = [_depth(child) for child in tree if isinstance(child, (list, tuple))]
    return 1 + max(inner, default=0)

r"""Answers in the styles of models, labeled by construction: more than 4,000 pairs to compare graders.

A line of ``answers.txt`` is ``reference ~ right answers ~ wrong answers``, with `` || `` between answers.
Each answer is written in every style that suits it. A style changes the layout and never the meaning, so
the pair keeps its label.
"""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

_PROBLEMS = Path(__file__).with_name("answers.txt").read_text(encoding="utf-8")

_EVERY_KIND = {
    "plain": "{}",
    "dollars": "${}$",
    "double dollars": "$${}$$",
    "parentheses": r"\({}\)",
    "brackets": r"\[{}\]",
    "spaces": "  {} ",
    "period": "{}.",
    "comma": "{},",
    "box": r"\boxed{{{}}}",
    "bold Markdown": "**{}**",
    "code": "`{}`",
    "quotation marks": '"{}"',
    "answer": "Answer: {}",
    "the answer is": "The answer is {}",
    "color": r"\textcolor{{red}}{{{}}}",
    "size": r"\Large{{{}}}",
    "underline": r"\underline{{{}}}",
    "thin space": r"\,{}\,",
    "display style": r"\displaystyle {}",
}
_OF_MATHEMATICS = {
    "bold symbol": r"\boldsymbol{{{}}}",
    "bm": r"\bm{{{}}}",
    "equals": "= {}",
    "quad": r"\quad {}",
    "braces": "{{{}}}",
}
_OF_VALUES = {
    "name": "x = {}",
    "chain": "x = {0} = {0}",
    "round brackets": r"\left({}\right)",
    "f(2)": "f(2) = {}",
    "therefore": r"\therefore x = {}",
}
_OF_NUMBERS = {"bold": r"\mathbf{{{}}}", "roman": r"\mathrm{{{}}}", "text": r"\text{{{}}}"}
_STYLES: dict[str, dict[str, str]] = {
    "number": {**_EVERY_KIND, **_OF_MATHEMATICS, **_OF_VALUES},
    "value": {**_EVERY_KIND, **_OF_MATHEMATICS, **_OF_VALUES},
    "expression": {**_EVERY_KIND, **_OF_MATHEMATICS},
    "tuple": {**_EVERY_KIND, **_OF_MATHEMATICS},
    "interval": {**_EVERY_KIND, **_OF_MATHEMATICS},
    "set": {**_EVERY_KIND, **_OF_MATHEMATICS},
    "quantity": {**_EVERY_KIND, **_OF_MATHEMATICS},
    "matrix": {**_EVERY_KIND, **_OF_MATHEMATICS},
    "equation": {**_EVERY_KIND},
    "word": {**_EVERY_KIND},
    "choice": {**_EVERY_KIND},
    "identifier": {**_EVERY_KIND},
}


class Pair(NamedTuple):
    """An answer and a reference."""

    kind: str
    style: str
    answer: str
    reference: str
    right: bool


def _pairs() -> list[Pair]:
    pairs, kind = {}, ""
    for line in _PROBLEMS.strip().splitlines():
        if line.startswith("# "):
            kind = line[2:]
            continue
        reference, *answers = (part.split(" || ") for part in line.split(" ~ "))
        for right, forms in zip((True, False), answers, strict=True):
            for index, (style, layout) in enumerate(_STYLES[kind].items()):
                chosen = forms if style == "plain" else [forms[index % len(forms)]]
                for form in chosen:
                    pair = Pair(kind, style, _laid_out(layout, form), reference[0], right)
                    pairs[pair.answer, pair.reference] = pair
            if kind == "number" and forms[0].lstrip("-").isdigit():
                for style, layout in _OF_NUMBERS.items():
                    pair = Pair(kind, style, layout.format(forms[0]), reference[0], right)
                    pairs[pair.answer, pair.reference] = pair
    return list(pairs.values())


def _laid_out(layout: str, form: str) -> str:
    """Return the form in a layout; a name or an inequality of its own needs no second one."""
    if "=" in layout and any(sign in form for sign in ("=", "<", ">", r"\le", r"\ge", r"\pm", "±", r"\in ")):
        return form
    if "(" in layout and "," in form:  # (1,234,567) is a point
        return form
    return layout.format(form)


STYLED: list[Pair] = _pairs()

r"""Structured answers and single-place changes of them: pairs that measure whether a grader reads everything.

A line of ``structures.txt`` is ``template ~ equal form || equal form``. A template has places
``⟨a|b|c⟩``: the reference takes the first choice everywhere, and a wrong answer takes another one at one
place. A right answer is the reference or an equal form in another spelling: synonyms of LaTeX commands,
optional braces, commas, and spaces, Markdown, and layout.
"""

from __future__ import annotations

import re
from pathlib import Path

from tests.graders.styles import Pair

_LINES = Path(__file__).with_name("structures.txt").read_text(encoding="utf-8").splitlines()
_PLACE = re.compile("⟨([^⟨⟩]*)⟩")
_RESPELLINGS: tuple[tuple[str, str], ...] = (
    (r"\\le(?![a-z])", r"\\leq"),
    (r"\\le(?![a-z])", r"\\leqslant"),
    (r"\\ge(?![a-z])", r"\\geq "),
    (r"\\ge(?![a-z])", r"\\geqslant"),
    (r"\\ne(?![a-z])", r"\\neq"),
    (r"\\mid", "|"),
    (r"\\mid", r"\\vert"),
    (r"\\mid", ":"),
    (r"\\[lc]dots", r"\\dots"),
    (r"\\[lc]?dots", "..."),
    (r"\\frac", r"\\dfrac"),
    (r"\\mathbb\{([A-Z])\}", r"\\mathbb \1"),
    (r"\\text\{ (or|and) \}", r" \1 "),
    (r"\\text\{ (or|and) \}", r"\\text{ \1 }\\, "),
    (r", ", ","),
    (r", ", r",\\ "),
    (r"(?<=[\^_])\{([a-z0-9])\}", r"\1"),
    (r"(?<=[\^_])([a-z0-9])(?![a-z0-9])", r"{\1}"),
    (r" *([=<>+]) *", r"\1"),
    (r" *([=<>]) *", r" \1 "),
    (r"\((?![^()]*\\pmod)", r"\\left("),
    (r"(?<!,) & ", ", & "),
    (r" & ", "&"),
    (r"(?<!,) \\\\ ", r",\\\\"),
    (r"(?<![. ])\\end\{cases\}", r".\\end{cases}"),
    (r"pmatrix", "bmatrix"),
    (r"\\in ", r"\\in\\, "),
)
_LAYOUTS = ("${}$", r"\[{}\]", "**{}**", "*{}*", r"\boxed{{{}}}", "{}.", r"\displaystyle {}")


def _pairs() -> list[Pair]:
    kind, pairs = "", {}
    for line in _LINES:
        if line.startswith("# "):
            kind = line[2:]
            continue
        template, _, forms = line.partition(" ~ ")
        reference = chosen(template)
        for answer in wrong_answers(template):
            pairs[answer, reference] = Pair(kind, "changed", answer, reference, False)
        for form in (reference, *(forms.split(" || ") if forms else ())):
            for answer in spellings(form):
                if answer != reference:
                    pairs[answer, reference] = Pair(kind, "respelled", answer, reference, True)
    return list(pairs.values())


def chosen(template: str, place: int = -1, choice: int = 0) -> str:
    """Return the template with the first choice at each place, except for one place."""
    places = iter(range(template.count("⟨")))
    return _PLACE.sub(lambda match: match[1].split("|")[choice if next(places) == place else 0], template)


def wrong_answers(template: str) -> list[str]:
    """Return the template with each other choice at each place."""
    places = _PLACE.findall(template)
    return [
        chosen(template, place, choice)
        for place, choices in enumerate(places)
        for choice in range(1, len(choices.split("|")))
    ]


def spellings(form: str) -> list[str]:
    """Return a text in other spellings with the same meaning."""
    found = [form]
    for pattern, replacement in _RESPELLINGS:
        if ":" in (replacement,) and r"\{" not in form:
            continue
        if replacement == r"\\left(":
            if form.count("(") != form.count(")") or "(" not in form:
                continue
            found.append(form.replace("(", r"\left(").replace(")", r"\right)"))
            continue
        other = re.sub(pattern, replacement, form)
        if other != form:
            found.append(other)
    layouts = [layout for layout in _LAYOUTS if "*" not in layout or "*" not in form]
    return [*found, *(layout.format(form) for layout in layouts)]


TEMPLATES = [line.partition(" ~ ")[0] for line in _LINES if not line.startswith("# ")]
STRUCTURED: list[Pair] = _pairs()

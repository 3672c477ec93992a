"""Writes some notations in one way: cases, residues, domains, conditions in brackets, and primes."""

from __future__ import annotations

import re

_ARRAYS = r"\{(?:array|aligned|matrix|gathered|split)\}"
_BRACE_OF_CASES = re.compile(
    rf"\\left\s*\\(?:\{{|lbrace)\s*\\begin\s*{_ARRAYS}(?:\s*\{{[lcr|@{{}}\s]*?\}})?"
    rf"((?:(?!\\begin|\\end).)*)\\end\s*{_ARRAYS}\s*\\right\s*\.",
    re.DOTALL,
)
_LINE_START = re.compile(r"(\A|\\\\)\s*&")
_END_OF_LINE = re.compile(r"\s*[.,;]\s*(?=\\\\(?!\\)|\\end\b)")
_DOMAIN = re.compile(
    r"\\mathbf\s*\{([RZNQC])\}(?=\s*\\(?:setminus|backslash))|(?<=\\in)\s*\\mathbf\s*\{([RZNQC])\}"
    r"|\\([RZNQC])(?![A-Za-z])"
)
_WITHOUT = re.compile(r"(\\mathbb\s*(?:[A-Z]|\{[A-Z]\}))\s*-\s*\\\{")
_RESTRICTION = r"[^()]*(?:[<>]|\\(?:[lg]e(?:q|qslant)?|neq?|in)(?![A-Za-z]))[^()]*?"
_PARAMETER_SET = r"\s*[a-z]\s*\\in\s*\\mathbb\s*\{?[ZN]\}?\s*"
_BRACKETED_CONDITION = re.compile(
    rf"(?:\\q?quad\s*(?:\\left)?\(({_RESTRICTION})"
    rf"|(?<![A-Z\s])\s*(?:\\[ ,;])?\s*(?:\\left)?\(({_PARAMETER_SET}))"
    r"(?:\\right)?\)\Z"
)
_BOLD = re.compile(r"\\(?:mathbf|boldsymbol|bm|vec|hat|overrightarrow)\s*(?:\{\s*[A-Za-z]\s*\}|[A-Za-z])")
_PRODUCT_OF_SETS = re.compile(r"(?<=[A-Z])\s*\\times\s*(?=[A-Z](?![A-Za-z]))")
_CHOOSE = re.compile(r"\{([^{}]*)\\choose(?![A-Za-z])([^{}]*)\}")
_PRIME = re.compile(r"\^\s*(?:\{\s*(?:(?:\\prime|')\s*)+\}|\\prime(?![A-Za-z]))")
_MODULUS = re.compile(
    r"\(\s*(?:\\(?:text|mathrm|operatorname\*?|rm)\s*\{\s*mod\s*\}|\\?b?mod(?![A-Za-z]))\s*([^()]+)\)"
)
_BETWEEN = r"(?:\\text\s*\{|\}|\s){0,8}"
_PARAMETER = re.compile(
    rf",?\s{{0,4}}(?:\\text\s{{0,4}}\{{)?\s{{0,4}}(?:(?:where|with|for|and){_BETWEEN})?(?:"
    rf"(?P<first>[a-z]){_BETWEEN}(?:is{_BETWEEN})?(?:(?:an|any){_BETWEEN})?integers?"
    rf"|(?:(?:any|all|every|some|an){_BETWEEN})?integers?{_BETWEEN}(?P<last>[a-z])){_BETWEEN}[.]?\Z"
)
"""The words ``where k is an integer``, or ``for any integer k``, at the end of a text."""

_WRITTEN_E = (
    r"\\(?:mathbb|operatorname\*?)\s*(?:\{\s*E\s*\}|E(?![A-Za-z]))(?=%s[\[(])"
    r"|\\(?:mathrm|mathbf|mathsf|text)\s*\{\s*E\s*\}(?=%s\[)|(?<![A-Za-z\\])E(?=%s\[)"
)
_SUBSCRIPT = r"\s*(?:_\s*(?:\w|\\[A-Za-z]+|\{[^{}]*\})\s*)?(?:\\(?:left|[bB]igg?l?)\s*)?"
_EXPECTATION = re.compile(_WRITTEN_E.replace("%s", _SUBSCRIPT))
_REAL = r"real(?:s| numbers?)?"
_ALL_REALS_BUT = re.compile(
    r"(?:(?P<name>[A-Za-z]) (?:is|can be|may be) )?(?:the set of )?(?:all|any|every)"
    rf"(?: (?:(?P<nonzero>non-?zero) )?{_REAL}(?: (?:values of )?(?P<after>[A-Za-z]))?)"
    r"(?:,? (?:except(?: for)?|other than|apart from|but|excluding|without|not equal to|different from) "
    r"(?P<points>[^<>]+))?",
    re.IGNORECASE,
)
_EITHER_SIGN = re.compile(r"\\pm ?(.+)")
_MARKS = re.compile(r"\\text\s*\{([^{}]*)\}|\$|\\[()]")
_POINT = re.compile(r"(?:[A-Za-z] ?= ?)?(.+)")


def without_points(text: str) -> str:
    r"""Return ``all real numbers except 0 and 1`` as a difference of sets, and any other text as it is."""
    plain = " ".join(_MARKS.sub(r"\1", text).split()).rstrip(". ")
    found = _ALL_REALS_BUT.fullmatch(plain)
    if found is None or bool(found["points"]) == bool(found["nonzero"]):
        return text
    points = re.split(r",? (?:and|or|nor) |, ?", found["points"] or "0")
    values = [_POINT.sub(r"\1", point, count=1) for point in points]
    listed = ", ".join(_EITHER_SIGN.sub(r"\1, -\1", value) for value in values)
    name = found["name"] or found["after"]
    return rf"{name} \in " * bool(name) + rf"\mathbb{{R}} \setminus \{{{listed}\}}"


def uniform(text: str) -> str:
    """Return a text with commands in one notation, before layout commands are removed."""
    if "\\begin" in text:
        text = _BRACE_OF_CASES.sub(_cases, _END_OF_LINE.sub("", text))
    if "\\math" in text or "\\R" in text or "\\Z" in text or "\\N" in text or "\\Q" in text or "\\C" in text:
        text = _DOMAIN.sub(lambda m: rf" \mathbb{{{m[1] or m[2] or m[3]}}}", text)
        text = _WITHOUT.sub(r"\1\\setminus\\{", text).replace(r"\mathrel{|}", r"\mid ")
    if text.endswith(")") and ("quad" in text or "\\in" in text):
        text = _BRACKETED_CONDITION.sub(lambda m: f", {m[1] or m[2]}", text)
    if "\\times" in text:  # a cross product, unlike a dot product, is no product of numbers
        other = "\\crossproduct "
        text = (
            text.replace("\\times", other) if _BOLD.search(text) else _PRODUCT_OF_SETS.sub("\\" + other, text)
        )
    if "E" in text and ("[" in text or "\\" in text):
        text = _EXPECTATION.sub(r"\\operatorname{expectation}", text)
    if "\\choose" in text:
        text = _CHOOSE.sub(r"\\binom{\1}{\2}", text)
    if "^" in text and ("\\prime" in text or "'" in text):
        text = _PRIME.sub(lambda m: "'" * (m[0].count("prime") + m[0].count("'")), text)
    if "mod" in text:
        text = _MODULUS.sub(r"\\pmod{\1}", text)
    if "integer" in text and (found := _PARAMETER.search(text)) and found.start():
        text = f"{text[: found.start()]}, {found['first'] or found['last']} \\in \\mathbb{{Z}}"
    return text


def _cases(match: re.Match[str]) -> str:
    """Return the lines of an array after a brace as ``cases``, without marks of the alignment."""
    lines = _LINE_START.sub(r"\1", match[1]).replace("&&", "&")
    return rf"\begin{{cases}}{lines}\end{{cases}}"

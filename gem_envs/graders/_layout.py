"""Removes layout from mathematical answers: fonts, colors, thousands separators, and Unicode signs."""

from __future__ import annotations

import re
import unicodedata
from fractions import Fraction

from gem_envs._text import FONT
from gem_envs.graders._notation import uniform, without_points
from gem_envs.graders._units import UNITS

_SUPERSCRIPTS = dict(zip("⁰¹²³⁴⁵⁶⁷⁸⁹⁻⁺ⁿ", "0123456789-+n", strict=True))
_SUPER = re.compile(f"[{''.join(_SUPERSCRIPTS)}]+")
_VULGAR = re.compile(r"(\d*)\s*([¼-¾⅐-⅞])")
_UNICODE = {
    "−": "-", "–": "-", "—": "-", "×": "*", "·": "*", "⋅": "*", "∙": "*", "÷": "/", "⁄": "/", "∕": "/",
    "π": r"\pi ", "∞": r"\infty ", "√": r"\sqrt ", "≤": r"\le ", "≥": r"\ge ", "⩽": r"\le ", "⩾": r"\ge ",
    "≠": r"\ne ", "∪": r"\cup ", "∅": r"\emptyset ", "∈": r"\in ", "°": r"^\circ ", "±": r"\pm ",
    "ℝ": r"\mathbb{R}", "θ": r"\theta ", "α": r"\alpha ", "β": r"\beta ", "λ": r"\lambda ", "′": "'",
    "∨": r"\lor ", "≈": r"\approx ", "∧": r"\land ", "¬": r"\lnot ", "⇒": r"\implies ", "⇔": r"\iff ",
    "→": r"\to ", "≡": r"\equiv ", "∀": r"\forall ", "∃": r"\exists ", "∉": r"\notin ", "⊂": r"\subset ",
    "⊆": r"\subseteq ",
    "⊃": r"\supset ", "∩": r"\cap ", "∖": r"\setminus ", "∣": r"\mid ", "∥": r"\parallel ",
    "⊥": r"\perp ", "∠": r"\angle ", "∑": r"\sum ", "∏": r"\prod ", "∫": r"\int ", "⌊": r"\lfloor ",
    "⌋": r"\rfloor ", "⌈": r"\lceil ", "⌉": r"\rceil ", "ℤ": r"\mathbb{Z}", "ℕ": r"\mathbb{N}",
    "ℚ": r"\mathbb{Q}", "ℂ": r"\mathbb{C}", "γ": r"\gamma ", "δ": r"\delta ", "ε": r"\epsilon ", "μ": r"\mu ",
    "σ": r"\sigma ", "φ": r"\phi ", "ω": r"\omega ", "τ": r"\tau ",
    "ρ": r"\rho ", "ψ": r"\psi ", "Δ": r"\Delta ",
    "Σ": r"\Sigma ", "Ω": r"\Omega ", "⋯": r"\cdots ",
}  # fmt: skip
_UNICODE_ANY = re.compile("|".join(map(re.escape, _UNICODE)))
_QUOTES = (
    (r"\[", r"\]"), ("***", "***"), ("**", "**"), ("*", "*"), ("___", "___"), ("__", "__"), ("_", "_"),
    ("`", "`"), ('"', '"'), ("“", "”"), ("'", "'"), ("‘", "’"),
)  # fmt: skip
_FIRST_QUOTES = frozenset(start[0] for start, _ in _QUOTES)
_EMPHASIS = re.compile(r"(?<![^\s=:,;(])(\*{1,3})(?=[^\s*])([^*]*[^\s*])\1(?![^\s.,;:)])")
_CURRENCIES = {
    "€": "euro", "£": "pound", "¥": "yen", "₹": "rupee", r"\$": "dollar",
    "EUR": "euro", "GBP": "pound", "USD": "dollar",
}  # fmt: skip
_CURRENCY = r"(€|£|¥|₹|\\\$|(?<![A-Za-z])(?:EUR|GBP|USD)(?![A-Za-z]))"
_CURRENCY_BEFORE = re.compile(rf"([+-]?)\s*{_CURRENCY}\s*([+-]?[\d.](?:[\d.,]|\\!|\{{,\}}|\s(?=\d))*)")
_CURRENCY_AFTER = re.compile(rf"(?<=\d)\s*{_CURRENCY}")
_TIME = re.compile(r"(?<=:\d\d)[\s~]*(?:\\text\s*\{\s*)?([ap])\.?\s*m\b\.?\s*\}?", re.IGNORECASE)
_RATIO = re.compile(r"(\d+)\s*(?:to|\\text\s*\{\s*to\s*\})\s*(\d+)")
_TIMES_TEN = re.compile(r"(?<=\d)\s*x\s*(?=10\s*\^)")
_LABEL = re.compile(
    r"(?:(?:so|thus|therefore|hence),?\s+)?(?:the\s+)?(?:(?:final|correct)\s+)?answer(?:\s+is\b|\s*[:=])"
    r"\s*[:=]?(?!\s*not\b)\s*|\\?(?:approx|therefore|implies|Rightarrow)(?![A-Za-z])\s*|=(?!=)\s*",
    re.IGNORECASE,
)
_SEPARATOR = re.compile(r"(?<=\d)(?:\{,\}\s*|,\s*\\!\s*)(?=\d{3})")
_BRACE = re.compile(r"\\.|[{}]")
_ROMAN = re.compile(r"\{\s*\\rm\s+([^{}]*)\}|\\(?:hbox|textnormal|textup|textsf|texttt|textsc)\s*(?=\{)")
_OVER = re.compile(r"\{([^{}]*)\\over(?![A-Za-z])([^{}]*)\}")
_DEGREE = re.compile(
    r"\^\s*\{?\s*\\degree\s*\}?|\\degree(?![A-Za-z])"
    r"|(?<=\d)\s*\^\s*(?:o(?![A-Za-z])|\{\s*(?:o|\\(?:text|mathrm)\s*\{o\})\s*\}|\\(?:text|mathrm)\s*\{o\})"
)
_DROPPED = re.compile(
    r"\\(?:left|right|[bB]igg?[lrm]?)(?![A-Za-z])\.?"
    r"|\\(?:displaystyle|textstyle|(?:no)?limits|q?quad|hfill)(?![A-Za-z])"
    r"|(?<!\\)(?:\\[!,;: ()]|\\[\[\]](?!\d))|\\?\$|~|\u200b|\ufeff"
)
_THOUSANDS = re.compile(r"(?<![\d.,])\d{1,3}(?:,\d{3})+(?![\d,])")
_REPEATING = re.compile(r"(\d*)\.(\d*)\\(?:overline|bar|dot)\s*\{?\s*(\d+)\s*\}?")
_ENDLESS = re.compile(r"(?<![\d.,])(\d*)\.(\d{3,40})\s*(?:\.{3}|…|\\[lc]?dots(?![A-Za-z]))(?!\s*\d)")
_MATH_MODE = re.compile(r"(?<!\\)(?:\$|\\[()]|\\\[(?!\d)|\\\](?!\d))")
_SPACED = re.compile(r"(?<![\w.,^/])(\d{1,3}(?: \d{3})+)(?= *(?:[A-Za-z\\%^=)}]|\Z))")
_MIXED = re.compile(r"(\d+) +(\d+ */ *\d+)")
_GROUP = re.compile(
    r"\\(?:text(?:bf|it|rm)?|mbox|(?P<math>math(?:rm|bf|it|sf|tt)))\s*\{(?P<content>[^{}]*)\}"
)
_QUANTITY = re.compile(r"[-+]?\.?\d[\d.,/ ]*%?(?P<unit>[A-Za-z][A-Za-z/ ]*)?")
_FORMULA = re.compile(r"(?=.*[(\[=])(?=.*\d)(?!.*[A-Za-z]{2}).*")
_LETTERS = re.compile(r"[A-Za-z](?:(?:\s*,\s*(?:and\s+)?|\s+and\s+)[A-Za-z])+")
_AFTER_NUMBER = re.compile(r"(?:[\d)}%]|\\circ)\s*\Z")


def tidy(text: str) -> str:
    """Return the text without layout commands, dollar signs, thousands separators, and Unicode signs."""
    text = text.strip()
    for _ in range(3):
        if text[:1] in _FIRST_QUOTES:
            text = _unquoted(text)
    if "*" in text:
        text = _EMPHASIS.sub(r"\2", text)
    if "." in text and ("..." in text or "dots" in text or "…" in text):
        text = _ENDLESS.sub(_endless, text)
    if not text.isascii():
        text = _VULGAR.sub(_vulgar, text)
        text = _SUPER.sub(lambda m: "^{" + "".join(_SUPERSCRIPTS[c] for c in m[0]) + "}", text)
        text = _currency(_UNICODE_ANY.sub(lambda m: _UNICODE[m[0]], text))
        text = unicodedata.normalize("NFKC", text)
    elif "EUR" in text or "GBP" in text or "USD" in text:
        text = _currency(text)
    if "eal" in text:
        text = without_points(text)
    if ":" in text:
        text = _TIME.sub(lambda m: f" {m[1].lower()}m", text)
    if "\\" in text or "$" in text or "~" in text:
        text = _without_commands(text)
    elif "(" in text or "^" in text or "[" in text or "integer" in text:
        text = uniform(text)
    if "to" in text and (ratio := _RATIO.fullmatch(text.rstrip(". "))):
        text = f"{ratio[1]}:{ratio[2]}"
    if "=" in text or "nswer" in text or "NSWER" in text or "\\a" in text:
        text = _unlabeled(text)
    if "^" in text or "\\degree" in text:
        text = _TIMES_TEN.sub("*", _DEGREE.sub(r"^\\circ ", text))
    text = text.strip()
    if not text.endswith(".."):  # 1, 2, 3, ...
        text = text.rstrip(".,; ")
    if text[:1] == "{" and "," not in text:  # {1,2} is a set
        while _is_group(text):
            text = text[1:-1].strip(" .;")
    if "," in text:
        text = _SEPARATOR.sub("", text)
        if not any(mark in text for mark in "([") and "\\{" not in text:
            text = _THOUSANDS.sub(lambda m: m[0].replace(",", ""), text)
    if " " in text:
        text = _SPACED.sub(lambda m: m[1].replace(" ", ""), text)
        text = _MIXED.sub(r"(\1+\2)", text)
    return text


def _without_commands(text: str) -> str:
    if "\\$" in text:
        text = _currency(text)
    text = uniform(_SEPARATOR.sub("", _MATH_MODE.sub("", text).strip()))
    if "\\" in text:
        text = _OVER.sub(r"\\frac{\1}{\2}", FONT.sub("", text))
        text = _ROMAN.sub(lambda m: r"\text{" + m[1] + "}" if m[1] else r"\text", text)
    text = _DROPPED.sub(" ", text).strip()
    text = _REPEATING.sub(_repeating, text)
    text = text.replace("\\%", "%").replace("dfrac", "frac").replace("tfrac", "frac").replace("cfrac", "frac")
    text = text.replace("dbinom", "binom").replace("tbinom", "binom")
    if "\\text" in text or "\\m" in text:
        text = _GROUP.sub(_content, text)
    return text.strip()


def _unquoted(text: str) -> str:
    """Return the text without quotation marks or Markdown around all of it."""
    for start, end in _QUOTES:
        if text.startswith(start) and text.endswith(end) and len(text) > len(start) + len(end):
            inside = text[len(start) : -len(end)]
            if start not in inside and end not in inside:
                return inside.strip()
    return text


def _is_group(text: str) -> bool:
    """Return whether one pair of braces is around the whole text."""
    if not text.startswith("{") or not text.endswith("}") or text.endswith("\\}"):
        return False
    depth = 0
    for brace in _BRACE.finditer(text):
        depth += {"{": 1, "}": -1}.get(brace[0], 0)
        if not depth:
            return brace.end() == len(text)
    return False


def _unlabeled(text: str) -> str:
    """Return the text without ``the answer is`` and without a leading equals or approximately sign."""
    label = _LABEL.match(text)
    return text[label.end() :] if label else text


def _currency(text: str) -> str:
    """Return the text with a currency sign as a unit after the number."""
    text = _CURRENCY_BEFORE.sub(lambda m: rf"{m[1]}{m[3].rstrip('., ')}\text{{ {_CURRENCIES[m[2]]}}}", text)
    return _CURRENCY_AFTER.sub(lambda m: rf"\text{{ {_CURRENCIES[m[1]]}}}", text)


def _content(match: re.Match[str]) -> str:
    r"""Return the content of a text group that is math: ``\text{5 cm}``, ``\mathbf{42}``, ``\mathrm{i}``.

    A letter after a number is a unit, except for i.
    """
    content = match["content"].strip()
    if not content:
        return " "
    after_number = _AFTER_NUMBER.search(match.string, max(0, match.start() - 9), match.start())
    if len(content) == 1 and content.isalpha():
        opened = content == "i" or not after_number
    elif after_number:
        opened = False
    elif match["math"]:
        opened = any(map(str.isdigit, content))
    elif quantity := _QUANTITY.fullmatch(content):
        units = (quantity["unit"] or "").replace("/", " ").split()
        opened = all(len(unit) > 2 or unit in UNITS for unit in units)
    else:
        opened = (_FORMULA.fullmatch(content) or _LETTERS.fullmatch(content)) is not None
    return f" {content} " if opened else match[0]


def _vulgar(match: re.Match[str]) -> str:
    top, bottom = unicodedata.normalize("NFKC", match[2]).split("\u2044")
    return f"({match[1] or 0}+{top}/{bottom})"


def _repeating(match: re.Match[str]) -> str:
    whole, fixed, again = match.groups()
    scale = 10 ** len(fixed)
    value = Fraction(int(whole + fixed or "0"), scale) + Fraction(int(again), scale * (10 ** len(again) - 1))
    return f"({value})" if len(again) < 20 else match[0]


def _endless(match: re.Match[str]) -> str:
    """Return the fraction of 0.333... if the decimals repeat three times, else the text with dots."""
    whole, decimals = match.groups()
    for length in range(1, len(decimals) // 2 + 1):
        for start in range(len(decimals) - (3 if length == 1 else 2) * length + 1):
            period = decimals[start : start + length]
            rest = decimals[start:]
            if (period * len(rest))[: len(rest)] == rest and start <= 4:
                scale = 10**start
                value = Fraction(int(whole + decimals[:start] or "0"), scale)
                return f"({value + Fraction(int(period), scale * (10**length - 1))})"
    return match[0]

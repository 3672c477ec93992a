"""Markdown and LaTeX of observations and responses, as trees that the viewer turns into elements: `parse`.

A tree contains no markup. It names elements of a fixed set, and all text in it is plain, so text of a model
never becomes active HTML. The packages of the extra ``view`` parse the text; without them there are no trees.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, TypeAlias
from xml.etree import ElementTree

if TYPE_CHECKING:
    from markdown_it import MarkdownIt
    from markdown_it.rules_inline import StateInline
    from markdown_it.token import Token

Node: TypeAlias = Any
"""Text, or a list: name of the element, its attributes or None, and its children."""

LONGEST = 20_000
"""Characters of the longest text that is parsed; longer texts are shown as plain text."""
LONGEST_FORMULA = 2_000
_MOST_BRACKETS = 1_000
"""Maximum number of opening brackets; the time for those that begin no link grows with the square."""
_DEEPEST = 150
"""Maximum number of elements within each other; JSON with many more cannot be written."""

_TAGS = frozenset(re.findall(r"\w+", """
    p h1 h2 h3 h4 h5 h6 ul ol li blockquote pre code em strong s hr br table thead tbody tr th td
"""))  # fmt: skip
_MATH_TAGS = frozenset(re.findall(r"\w+", """
    math mrow mi mn mo mtext mspace ms mfrac msqrt mroot msub msup msubsup munder mover munderover mtable mtr
    mtd mstyle mpadded mphantom menclose mfenced merror
"""))  # fmt: skip
_MATH_ATTRIBUTES = frozenset(re.findall(r"\w+", """
    display mathvariant stretchy fence form separator largeop movablelimits linethickness accent notation
    columnalign columnspacing rowspacing columnlines rowlines minsize maxsize width lspace rspace
    displaystyle scriptlevel
"""))  # fmt: skip
_MARKUP = re.compile(
    r"\*\S|__\S|`|\$|\\[(\[]|^[ \t]{0,3}(#{1,6}\s|>|[-*+]\s|\d+[.)]\s)|^[ \t]{0,99}\|?[ \t]{0,99}:?-{3,}|https?://|\]\(|~~",
    re.MULTILINE,
)
"""Characters that Markdown and LaTeX require, to skip the many texts that contain neither."""
_FORMULA = re.compile(
    rf"\$\$(?P<dollars>[^$]+?)\$\$|\\\[(?P<brackets>.{{1,{LONGEST_FORMULA}}}?)\\\]"
    rf"|\\\((?P<inline>.{{1,{LONGEST_FORMULA}}}?)\\\)|\$(?P<dollar>[^\s$](?:[^$\n]*[^\s$\\])?)\$(?!\d)",
    re.DOTALL,
)
"""A formula. The limits keep the time for many unclosed formulas from growing with the square of the text."""
_DISPLAY = re.compile(
    rf"^[ \t]*(?:\\\[(?:(?!\n[ \t]*\n|\\\]).){{0,{LONGEST_FORMULA}}}\\\]"
    rf"|\$\$(?:(?!\n[ \t]*\n|\$\$).){{0,{LONGEST_FORMULA}}}\$\$)[ \t]*$",
    re.DOTALL | re.MULTILINE,
)


@functools.lru_cache(maxsize=4096)
def parse(text: str) -> tuple[Node, ...] | None:
    """Return a text as trees of elements.

    Raw HTML stays text, images become their alternative text, and only links to ``http`` and ``https``
    become links.

    Returns:
        The trees; None if the text contains no markup, is too long or deep, or markdown-it-py is missing.
    """
    if len(text) > LONGEST or text.count("[") > _MOST_BRACKETS or not _MARKUP.search(text):
        return None
    parser = _parser()
    if parser is None:
        return None
    # A line of a formula that begins with "+" or "-" would begin a list.
    source = _DISPLAY.sub(lambda match: match[0].replace("\n", " "), text)
    try:
        nodes = _nodes(parser.parse(source))
    except RecursionError:
        return None
    return tuple(nodes) if _is_shallow(nodes) else None


@functools.cache
def _parser() -> MarkdownIt | None:
    try:
        from markdown_it import MarkdownIt
    except ImportError:
        return None
    parser = MarkdownIt("js-default", {"html": False, "linkify": False, "typographer": False})
    parser.inline.ruler.before("escape", "formula", _formula)
    return parser


def _formula(state: StateInline, silent: bool) -> bool:
    """Recognize a formula between dollar signs, brackets, or parentheses; a rule of markdown-it."""
    if state.src[state.pos] not in "$\\":
        return False
    match = _FORMULA.match(state.src, state.pos, state.posMax)
    if match is None:
        return False
    if not silent:
        token = state.push("formula", "math", 0)
        token.content = match[0]
        token.meta = {
            "latex": match[match.lastgroup or 0].strip(),
            "display": match.lastgroup in ("dollars", "brackets"),
        }
    state.pos = match.end()
    return True


def _nodes(tokens: Sequence[Token]) -> list[Node]:
    """Return the trees of a flat list of tokens, in which elements are opened and closed."""
    root: list[Node] = []
    stack = [root]
    for token in tokens:
        if token.nesting == 1:
            node = _element(token)
            if not token.hidden:  # the paragraphs of a tight list are
                stack[-1].append(node)
            stack.append(stack[-1] if token.hidden else node)
        elif token.nesting == -1:
            stack.pop()
        elif token.type == "inline":
            stack[-1] += _nodes(token.children or [])
        else:
            stack[-1].append(_leaf(token))
    return root


def _element(token: Token) -> list[Node]:
    if token.type == "link_open":
        address = str(token.attrs.get("href", ""))
        web = re.match(r"https?://", address, re.IGNORECASE)
        return ["a", {"href": address}] if web else ["code", None]
    start = {"start": token.attrs["start"]} if "start" in token.attrs else None
    return [token.tag if token.tag in _TAGS else "span", start]


def _leaf(token: Token) -> Node:
    if token.type in ("fence", "code_block"):
        return ["pre", None, token.content.removesuffix("\n")]
    if token.type == "code_inline":
        return ["code", None, token.content]
    if token.type == "formula":
        return _math(token.content, token.meta["latex"], token.meta["display"])
    if token.type in ("hardbreak", "softbreak"):
        return "\n"
    if token.type == "hr":
        return ["hr", None]
    return token.content


@functools.lru_cache(maxsize=4096)
def _math(source: str, latex: str, display: bool) -> Node:
    """Return the MathML of a formula, or its source if it cannot be converted."""
    plain = ["code", None, source]
    if len(latex) > LONGEST_FORMULA:
        return plain
    try:
        from latex2mathml.converter import convert
    except ImportError:
        return plain
    try:
        node = _mathml(ElementTree.fromstring(convert(latex, display="block" if display else "inline")))
    except Exception:  # the converter fails in many ways on text that is not LaTeX
        return plain
    return node if _is_shallow(node) else plain


def _is_shallow(nodes: Sequence[Node]) -> bool:
    """Return whether at most `_DEEPEST` elements are within each other, so that a page can hold them."""
    level: list[Node] = list(nodes)
    for _ in range(_DEEPEST):
        level = [child for node in level if isinstance(node, list) for child in node[2:]]
        if not level:
            return True
    return False


def _mathml(element: ElementTree.Element) -> Node:
    tag = element.tag.rpartition("}")[2]
    attributes = {key: value for key, value in element.attrib.items() if key in _MATH_ATTRIBUTES}
    text = [element.text] if element.text else []
    children = [_mathml(child) for child in element]
    return [tag if tag in _MATH_TAGS else "mrow", attributes or None, *text, *children]

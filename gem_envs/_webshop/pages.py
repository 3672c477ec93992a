"""The pages of the shop, and the three formats that show them.

A page is a list of parts. The formats are WebShop's: ``html``; ``text``, the parts joined by ``[SEP]``;
``text_rich``, one part per line with marks around clickable parts.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from html import escape
from typing import Literal, NamedTuple, TypeAlias

from gem_envs._webshop.catalog import Product

Mode: TypeAlias = Literal["html", "text", "text_rich"]
Sort: TypeAlias = Literal["text", "search", "button", "product", "option"]

BACK, NEXT, PREVIOUS, BUY = "Back to Search", "Next >", "< Prev", "Buy Now"
TABS = ("Description", "Features", "Reviews")
PAGE_SIZE = 10


class Part(NamedTuple):
    """A part of a page: text, or something to click."""

    sort: Sort
    text: str
    name: str = ""
    """Name of an option, or role of a text."""
    done: bool = False
    """Whether it has been clicked: a chosen value, a visited product."""


def head(instruction: str, *buttons: str) -> list[Part]:
    """Return the parts at the top of every page."""
    top = [Part("text", "Instruction:"), Part("text", instruction, "instruction")]
    return top + [Part("button", button) for button in buttons]


def start_page(instruction: str) -> list[Part]:
    """Return the page with the search box."""
    return [Part("text", "WebShop"), *head(instruction), Part("search", "Search")]


def results_page(
    instruction: str, products: Sequence[Product], page: int, total: int, seen: Collection[str]
) -> list[Part]:
    """Return page `page`, counted from 1, of the results of a search."""
    buttons = [BACK]
    if page > 1:
        buttons.append(PREVIOUS)
    if page * PAGE_SIZE < total:
        buttons.append(NEXT)
    parts = head(instruction, *buttons)
    parts.append(Part("text", f"Page {page} (Total results: {total})"))
    for product in products:
        parts.append(Part("product", product.asin, done=product.asin in seen))
        parts += [Part("text", product.name, "name"), Part("text", product.price_tag, "price")]
    return parts


def item_page(instruction: str, product: Product, chosen: Mapping[str, str]) -> list[Part]:
    """Return the page of a product with its options."""
    parts = head(instruction, BACK, PREVIOUS)
    for name, values in product.options.items():
        parts.append(Part("text", name))
        parts += [Part("option", value, name, chosen.get(name) == value) for value in values]
    parts += [Part("text", product.name, "name"), Part("text", f"Price: {product.price_tag}", "price")]
    parts.append(Part("text", f"Rating: {product.rating}"))
    return [*parts, *(Part("button", tab) for tab in TABS), Part("button", BUY)]


def tab_page(instruction: str, product: Product, tab: str) -> list[Part]:
    """Return the description, the features, or the reviews of a product."""
    paragraphs = {
        "Description": (product.description,),
        "Features": product.features,
        "Reviews": product.reviews,
    }[tab]
    texts = [text for text in paragraphs if text.strip()] or [f"There are no {tab.lower()}."]
    return [*head(instruction, BACK, PREVIOUS), *(Part("text", text) for text in texts)]


def clickable(parts: Sequence[Part]) -> dict[str, Part]:
    """Return the clickable parts of a page, by their text in lower case."""
    return {part.text.lower(): part for part in parts if part.sort in ("button", "product", "option")}


# -- forms ------------------------------------------------------------------------------------


def show(parts: Sequence[Part], mode: Mode) -> str:
    """Render the page in one of the three formats."""
    return _FORMS[mode](parts)


def _as_html(parts: Sequence[Part]) -> str:
    body = "\n".join(_TAGS[part.sort](part) for part in parts)
    return f"<!DOCTYPE html>\n<html>\n<body>\n{body}\n</body>\n</html>"


def _as_text(parts: Sequence[Part]) -> str:
    return " [SEP] ".join(part.text for part in parts)


def _as_rich_text(parts: Sequence[Part]) -> str:
    clicked = [f"You have clicked {part.text}." for part in parts if part.done and part.sort == "option"]
    return "\n".join(clicked + [_marked(part) for part in parts])


def _marked(part: Part) -> str:
    if part.sort == "text":
        return part.text
    mark = "clicked button" if part.done else "button"
    return f"[{mark}] {part.text} [{mark}_]"


def _text_tag(part: Part) -> str:
    if part.name == "instruction":
        return f'<h4 id="instruction-text">{escape(part.text)}</h4>'
    kind = f' class="product-{part.name}"' if part.name else ""
    return f"<p{kind}>{escape(part.text)}</p>"


def _option_tag(part: Part) -> str:
    name, value = escape(part.name), escape(part.text)
    checked = " checked" if part.done else ""
    return f'<label><input type="radio" name="{name}" value="{value}"{checked}>{value}</label>'


_TAGS: dict[Sort, Callable[[Part], str]] = {
    "text": _text_tag,
    "search": lambda part: (
        f'<input id="search_input" type="text"><button class="btn" type="submit">{part.text}</button>'
    ),
    "button": lambda part: f'<button class="btn" type="button">{escape(part.text)}</button>',
    "product": lambda part: f'<a class="product-link" href="#">{escape(part.text)}</a>',
    "option": _option_tag,
}
_FORMS: dict[Mode, Callable[[Sequence[Part]], str]] = {
    "html": _as_html,
    "text": _as_text,
    "text_rich": _as_rich_text,
}

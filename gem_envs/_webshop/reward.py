"""The reward of WebShop: how well a purchase matches a goal.

    total = type * (attributes + options + price) / (wanted attributes + wanted options + 1)

`type` measures whether the purchase is the right kind of product, `attributes` and `options` count those of
the wanted ones that it has, and `price` is 1 within the limit. Source: Yao et al., "WebShop: Towards Scalable
Real-World Web Interaction with Grounded Language Agents" (2022), section 4.1 and its appendix. As in the
paper, an option counts once, and only if the goal names it. Unlike in the paper, kind and attributes are
compared exactly in the generated catalog, whose products name them.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from gem_envs._webshop.catalog import Goal, Product
from gem_envs._webshop.search import words
from gem_envs._webshop.similarity import token_set_ratio

_ALIKE = 85
"""Two phrases with a higher ratio count as equal."""
_EXACT = ("size",)
"""Options that must match exactly."""


class Score(NamedTuple):
    """How well a purchase matches a goal."""

    total: float
    type: float
    attributes: int
    options: int
    price: bool


def score(purchase: Product, chosen: Mapping[str, str], goal: Goal, target: Product) -> Score:
    """Compare a purchase with a goal.

    Args:
        purchase: The purchased product.
        chosen: The chosen value of each option.
        goal: The goal.
        target: The product of the goal.
    """
    attributes = sum(has_attribute(purchase, attribute) for attribute in goal.attributes)
    options = sum(
        any(same_option(name, value, option) for name, value in chosen.items()) for option in goal.options
    )
    price = goal.price_limit is None or purchase.price <= goal.price_limit
    kind = type_score(purchase, target)
    parts = len(goal.attributes) + len(goal.options) + 1
    return Score(kind * (attributes + options + price) / parts, kind, attributes, options, price)


def has_attribute(product: Product, attribute: str) -> bool:
    """Return whether a product has an attribute.

    The list of a product of known kind is complete. Otherwise, a similar attribute counts, and so does the
    text of the pages.
    """
    if product.kind is not None:
        return attribute in product.attributes
    if any(token_set_ratio(own, attribute) > _ALIKE for own in product.attributes):
        return True
    return attribute.lower() in product.text


def same_option(name: str, value: str, target: str) -> bool:
    """Return whether an option has the desired value: exactly for sizes, approximately for others."""
    if name.lower() in _EXACT:
        return value.lower().split() == target.lower().split()
    return token_set_ratio(value, target) > _ALIKE


def type_score(purchase: Product, target: Product) -> float:
    """Return 1 for the right kind of product, and less for another one.

    Another kind scores 0.5 if it is on the same shelf or shares a word of its name, such as a desk chair for
    a desk lamp, and 0 otherwise. If the kinds are unknown, the words of the titles decide as in the paper: 1
    if they share more than a fifth, less if they share few, 0 if they share none. The paper compares the
    nouns of the titles; here all words count except numbers and stop words, which needs no language model.
    """
    same_shelf = len(set(purchase.path) & set(target.path)) >= 2
    if purchase.kind is not None and target.kind is not None:
        if purchase.kind == target.kind:
            return 1.0
        related = same_shelf or not set(words(purchase.kind)).isdisjoint(words(target.kind))
        return 0.5 if related else 0.0
    names = _naming_words(target.name)
    shared = len(names & _naming_words(purchase.name)) / len(names) if names else 0.2
    if shared == 0:
        return 0.0
    if shared < 0.1:
        return 0.1
    return 1.0 if shared > 0.2 or same_shelf or purchase.query == target.query else 0.5


def _naming_words(title: str) -> set[str]:
    return {word for word in words(title) if not any(letter.isdigit() or letter == "_" for letter in word)}

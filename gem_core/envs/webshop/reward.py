"""The reward of WebShop: how well a purchase matches a goal.

    total = type * (attributes + options + price) / (wanted attributes + wanted options + 1)

`type` measures whether the purchase is the right kind of product, `attributes` and `options` count those of
the wanted ones that it has, and `price` is 1 within the limit. Source: Yao et al., "WebShop: Towards Scalable
Real-World Web Interaction with Grounded Language Agents" (2022), section 4.1 and its appendix. As in the
paper, an option counts once, and only if the goal names it.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from gem_core.envs.webshop.catalog import Goal, Product
from gem_core.envs.webshop.search import words
from gem_core.envs.webshop.similarity import token_set_ratio

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
    """Return whether a product has an attribute, in its list or in the text of its pages."""
    if any(token_set_ratio(own, attribute) > _ALIKE for own in product.attributes):
        return True
    return attribute.lower() in product.text


def same_option(name: str, value: str, target: str) -> bool:
    """Return whether an option has the desired value: exactly for sizes, approximately for others."""
    if name.lower() in _EXACT:
        return value.lower().split() == target.lower().split()
    return token_set_ratio(value, target) > _ALIKE


def type_score(purchase: Product, target: Product) -> float:
    """Return 1 for the right kind of product, less if the titles share few words, 0 if they share none.

    The paper compares the nouns of the titles; here all words count except numbers and stop words, which
    needs no language model.
    """
    names = _naming_words(target.name)
    shared = len(names & _naming_words(purchase.name)) / len(names) if names else 0.2
    if shared == 0:
        return 0.0
    if shared < 0.1:
        return 0.1
    same_shelf = len(set(purchase.path) & set(target.path)) >= 2
    return 1.0 if shared > 0.2 or same_shelf or purchase.query == target.query else 0.5


def _naming_words(title: str) -> set[str]:
    return {word for word in words(title) if word.isalpha()}

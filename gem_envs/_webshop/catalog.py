"""The products of a shop and the goals of its customers."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from random import Random
from typing import Literal, TypeAlias

from gem_core._util.seeds import derive_rng
from gem_core.errors import DataError
from gem_envs._webshop.search import Search

ShopSplit: TypeAlias = Literal["train", "test"]

_TEST_GOALS = 500
_ORDER_SEED = 233  # WebShop's own, so that goal indices agree with published splits


@dataclass(frozen=True)
class Product:
    """A product.

    Attributes:
        asin: Product code, in capitals.
        name: Title.
        query: Search phrase with which it was collected.
        path: Departments, from general to specific.
        price: Price in dollars.
        price_tag: The price as shown.
        options: Values to choose from, by name of the option, in lower case.
        attributes: Properties, two or three words each.
        description: Description text.
        features: Short texts about features.
        rating: Mean number of stars, or a word if there are none.
        reviews: Customer reviews.
        kind: What the product is, such as "green tea"; None if unknown.
    """

    asin: str
    name: str
    query: str
    path: tuple[str, ...]
    price: float
    price_tag: str
    options: dict[str, list[str]]
    attributes: tuple[str, ...]
    description: str
    features: tuple[str, ...]
    rating: str = "N.A."
    reviews: tuple[str, ...] = ()
    kind: str | None = None

    @cached_property
    def text(self) -> str:
        """Text of all pages of the product, in lower case."""
        return " ".join((self.name, *self.features, self.description)).lower()

    def searched_text(self) -> str:
        """Return the text that a search covers."""
        values = (f"{name}: {', '.join(values)}" for name, values in self.options.items())
        return " ".join((self.name, self.description, *self.features, *values))


@dataclass(frozen=True)
class Goal:
    """The goal of a customer.

    Attributes:
        asin: Code of a matching product.
        instruction: The goal in words.
        attributes: Required properties.
        options: Required values of options.
        price_limit: Maximum price; None means any price.
    """

    asin: str
    instruction: str
    attributes: tuple[str, ...]
    options: tuple[str, ...]
    price_limit: float | None


class Catalog:
    """Products with a search over them, and goals in two splits.

    The goals have a fixed random order. The first 500 (a tenth if there are fewer than 5,000) are the test
    goals; the next 1,000 (or two tenths) are omitted because WebShop uses them for development; the rest are
    for training.

    Args:
        name: Name of the catalog, for messages.
        products: All products, with distinct codes.
        goals: Goals, each for one of the products.

    Raises:
        DataError: There are fewer than 10 goals.
    """

    def __init__(self, name: str, products: list[Product], goals: list[Goal]) -> None:
        if len(goals) < 10:
            raise DataError(f"{name} has {len(goals)} goals; two splits need at least 10")
        self.products = products
        self.indices = {product.asin: index for index, product in enumerate(products)}
        order = list(goals)
        Random(_ORDER_SEED).shuffle(order)
        tests = min(_TEST_GOALS, len(order) // 10)
        self.goals: dict[ShopSplit, list[Goal]] = {"test": order[:tests], "train": order[3 * tests :]}
        self.search = Search(product.searched_text() for product in products)

    def product(self, asin: str) -> Product:
        """Return the product with a given code."""
        return self.products[self.indices[asin]]


def price_limit(asin: str, index: int, price: float) -> float | None:
    """Return a round price above `price` as a limit, drawn as in WebShop; None above 980 dollars.

    The same product and index have the same limit.
    """
    above = [10.0 * step for step in range(1, 100) if 10.0 * step > price][:4]
    return max(derive_rng(asin, index).sample(above, 2)) if len(above) >= 2 else None


def price_words(limit: float | None) -> str:
    """Return the text of the limit at the end of an instruction."""
    return "" if limit is None else f", for less than {limit:.2f} dollars"

"""What a shop sells and what its customers want."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from random import Random
from typing import Literal, TypeAlias

from gem_core._util.seeds import derive_rng
from gem_core.envs.webshop.search import Search
from gem_core.errors import DataError

Split: TypeAlias = Literal["train", "test"]

_TEST_GOALS = 500
_ORDER_SEED = 233  # WebShop's own, so that goal numbers agree with published splits


@dataclass(frozen=True)
class Product:
    """One product.

    Attributes:
        asin: Its code, in capitals.
        name: The title.
        query: The search phrase under which it was collected.
        path: Its place among the departments, from wide to narrow.
        price: What it costs, in dollars.
        price_tag: The price as it is shown.
        options: Values to choose from, by the name of the option; all in lower case.
        attributes: What the product is like, in two or three words each.
        description: A text.
        features: Short texts.
        rating: Mean of the stars, or a word where there are none.
        reviews: What customers wrote.
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

    @cached_property
    def text(self) -> str:
        """Everything that the product's pages say, in lower case."""
        return " ".join((self.name, *self.features, self.description)).lower()

    def searched_text(self) -> str:
        """What a search looks through."""
        values = (f"{name}: {', '.join(values)}" for name, values in self.options.items())
        return " ".join((self.name, self.description, *self.features, *values))


@dataclass(frozen=True)
class Goal:
    """What a customer wants.

    Attributes:
        asin: A product that fits.
        instruction: The wish in words.
        attributes: What the product must be like.
        options: Values to be chosen.
        price_limit: The most it may cost; None: any price.
    """

    asin: str
    instruction: str
    attributes: tuple[str, ...]
    options: tuple[str, ...]
    price_limit: float | None


class Catalogue:
    """Products with a search over them, and goals in two splits.

    The goals are put into a fixed random order. The first 500 of them (a tenth, where there are fewer than
    5,000) are the test goals, and twice as many after them are left out, as WebShop keeps them for
    development; the rest is for training.

    Args:
        name: For messages.
        products: All of them, without two of the same code.
        goals: Each for one of the products.

    Raises:
        DataError: There are fewer than 10 goals.
    """

    def __init__(self, name: str, products: list[Product], goals: list[Goal]) -> None:
        if len(goals) < 10:
            raise DataError(f"{name} holds {len(goals)} goals: at least 10 are needed for two splits")
        self.products = products
        self.numbers = {product.asin: number for number, product in enumerate(products)}
        order = list(goals)
        Random(_ORDER_SEED).shuffle(order)
        tests = min(_TEST_GOALS, len(order) // 10)
        self.goals: dict[Split, list[Goal]] = {"test": order[:tests], "train": order[3 * tests :]}
        self.search = Search(product.searched_text() for product in products)

    def product(self, asin: str) -> Product:
        """Return the product with a code."""
        return self.products[self.numbers[asin]]


def price_limit(asin: str, number: int, price: float) -> float | None:
    """Return a round price above `price` as a limit, as WebShop draws it; None above 980 dollars.

    The same product and number give the same limit.
    """
    above = [10.0 * step for step in range(1, 100) if 10.0 * step > price][:4]
    return max(derive_rng(asin, number).sample(above, 2)) if len(above) >= 2 else None


def price_words(limit: float | None) -> str:
    """Return the limit as the end of an instruction."""
    return "" if limit is None else f", for less than {limit:.2f} dollars"

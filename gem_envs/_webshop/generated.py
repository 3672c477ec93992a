"""A catalog generated from a seed, without files or network."""

from __future__ import annotations

from functools import lru_cache
from itertools import product as combinations
from random import Random

from gem_core._util.seeds import derive_rng
from gem_envs._webshop.catalog import Catalog, Goal, Product, price_limit, price_words
from gem_envs._webshop.kinds import KINDS, VALUES, ProductKind

_GOALS = 3
"""Maximum number of goals per product."""
_SYLLABLES = (  # noqa: SIM905
    "al bo cor da el fen gar hol is jun ka lum mor nel or pim qui ros sol tal um ver wil yar zo"
).split()
_CODE = "ABCDEFGHJKLMNPQRSTUVWXYZ23456789"
_FEATURES = (
    "{A}: made for use every day.", "You asked for {a}, and here it is.", "{A}, tested in our own house.",
    "Unlike others of its kind, it is {a}.", "{A} from the first day on.",
)  # fmt: skip
_DESCRIPTIONS = (
    "The {name} stands on our shelf {shelf}. {brand} has made such things for {years} years.",
    "A {query} by {brand}, a small house that knows its trade. It took {years} months to design.",
    "{brand} sends this {query} in plain paper. It comes with a warranty of {years} months.",
)
_REVIEWS = (
    "Does what it says.", "I bought a second one for my sister.", "A little smaller than I thought.",
    "Came late, but came well packed.", "I use it every day.", "The color is nicer than in the picture.",
    "Good for the price.", "It broke after a month, and they sent a new one.",
)  # fmt: skip
_WISHES = ("Find", "I need", "I would like to buy", "Please get me", "I am looking for")


@lru_cache(maxsize=4)
def generated_catalog(num_products: int, seed: int) -> Catalog:
    """Return the catalog of a seed, built once per process."""
    random = derive_rng("webshop", seed)
    brands = [_brand(random) for _ in range(60)]
    products, goals = [], []
    for index in range(num_products):
        kind = KINDS[index % len(KINDS)]
        product = _product(random, kind, random.choice(brands), index)
        products.append(product)
        goals += _goals(random, product)
    return Catalog(f"the generated catalog {seed}", products, goals)


def _product(random: Random, kind: ProductKind, brand: str, index: int) -> Product:
    attributes = random.sample(kind.attributes, random.randint(3, min(5, len(kind.attributes))))
    # Only some of them are in the title, so that the pages of the product matter after a search.
    named = [attribute.title() for attribute in attributes[: random.randint(1, 2)]]
    name = f"{brand} {index + 101} {' '.join(named)} {kind.query.title()}"
    price = random.randint(*kind.price) - random.choice((0.01, 0.05, 0.5, 1.0))
    if price % 10 == 0:  # limits are multiples of 10, and "less than" excludes them
        price -= 0.01
    features = [
        random.choice(_FEATURES).format(a=attribute, A=attribute.capitalize()) for attribute in attributes
    ]
    random.shuffle(features)
    about = random.choice(_DESCRIPTIONS)
    return Product(
        asin=f"G{''.join(random.choices(_CODE, k=5))}{_digits(index)}",
        name=name,
        query=kind.query,
        path=kind.path,
        price=price,
        price_tag=f"${price:.2f}",
        options=dict(_option(random, word) for word in kind.options),
        attributes=tuple(attributes),
        description=about.format(
            name=name, shelf=kind.path[1], query=kind.query, brand=brand, years=random.randint(3, 40)
        ),
        features=tuple(features),
        rating=f"{random.uniform(2.5, 5):.1f}",
        reviews=tuple(random.sample(_REVIEWS, random.randint(0, 3))),
        kind=kind.query,
    )


def _option(random: Random, word: str) -> tuple[str, list[str]]:
    """Return the name and the values of an option, in their original order."""
    name, values = VALUES[word]
    chosen = set(random.sample(values, random.randint(2, min(6, len(values)))))
    return name, [value for value in values if value in chosen]


def _goals(random: Random, product: Product) -> list[Goal]:
    choices = list(combinations(*product.options.values()))
    goals = []
    for index, values in enumerate(random.sample(choices, min(_GOALS, len(choices)))):
        attributes = random.sample(product.attributes, random.randint(1, 3))
        limit = price_limit(product.asin, index, product.price)
        wish = f"{random.choice(_WISHES)} {', '.join(attributes)} {product.query}"
        options = ", and ".join(
            f"{name}: {value}" for name, value in zip(product.options, values, strict=True)
        )
        instruction = f"{wish}, with {options}{price_words(limit)}."
        goals.append(Goal(product.asin, instruction, tuple(attributes), values, limit))
    return goals


def _brand(random: Random) -> str:
    return "".join(random.choices(_SYLLABLES, k=random.randint(2, 3))).capitalize()


def _digits(number: int) -> str:
    """Return four letters and digits, distinct for every number below a million."""
    text = ""
    for _ in range(4):
        number, place = divmod(number, len(_CODE))
        text = _CODE[place] + text
    return text

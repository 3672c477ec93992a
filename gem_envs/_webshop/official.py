"""The catalog of WebShop's own data files.

| file | content | required |
|---|---|---|
| ``items_shuffle.json`` | a list of products | always |
| ``items_ins_v2.json`` | by product: attributes, and an instruction made from a template | always |
| ``items_human_ins.json`` | by product: instructions that people wrote | for human goals |
| ``reviews.json`` | a list of reviews by product | no |

The first two may have the names of the small version, which end in ``_1000``.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from functools import lru_cache
from itertools import islice
from itertools import product as combinations
from pathlib import Path
from random import Random
from typing import Any

from gem_core._util.foreign_json import read_json_file
from gem_core._util.messages import error_line
from gem_core.errors import DataError
from gem_envs._webshop.catalog import Catalog, Goal, Product, price_limit, price_words

_PRODUCTS = ("items_shuffle.json", "items_shuffle_1000.json")
_INSTRUCTIONS = ("items_ins_v2.json", "items_ins_v2_1000.json")
_HUMAN = ("items_human_ins.json",)
_REVIEWS = ("reviews.json",)
_CHUNK = 1 << 20
_LARGEST = 1 << 25
"""Maximum number of characters of a product; more means a broken file."""
_ARROW = "\N{SINGLE RIGHT-POINTING ANGLE QUOTATION MARK}"
"""Separates the departments of a product."""
_BETWEEN = frozenset(" \t\r\n,")
_CODE_LENGTH = 10
_ROUND = str.maketrans("{}", "()")
"""Braces, which a value must not have because it is clicked inside a box."""
_MONEY = re.compile(r"[0-9][0-9,]*(?:\.[0-9]+)?")


@lru_cache(maxsize=4)
def official_catalog(folder: str, num_products: int | None, human_goals: bool) -> Catalog:
    """Return the catalog in a folder, read once per process.

    Args:
        folder: Folder that contains the files.
        num_products: Number of products to read; None means all.
        human_goals: Whether to use the goals that people wrote, or one template goal per choice of options.

    Raises:
        DataError: A file is missing, unreadable, or malformed.
    """
    path = _file(folder, _PRODUCTS)
    facts = _by_product(_file(folder, _INSTRUCTIONS))
    human = _by_product(_file(folder, _HUMAN)) if human_goals else {}
    reviews = _reviews(Path(folder, _REVIEWS[0]))
    products: list[Product] = []
    goals: list[Goal] = []
    known: set[str] = set()
    for row in islice(_rows(path), num_products):
        try:
            asin = str(row["asin"])
            if asin in known or asin == "nan" or len(asin) > _CODE_LENGTH:
                continue
            known.add(asin)
            about = facts.get(asin, {})
            product = _product(asin, row, about, reviews.get(asin, {}))
            goals += (
                _human_goals(product, human.get(asin, ())) if human_goals else _template_goals(product, about)
            )
            products.append(product)
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            raise DataError(
                f"{path}: product {len(known)} is not in the format of WebShop ({error_line(error)})"
            ) from error
    return Catalog(folder, products, goals)


def _product(asin: str, row: dict[str, Any], about: dict[str, Any], reviewed: dict[str, Any]) -> Product:
    price, tag = _price(asin, row.get("pricing"))
    small = row.get("small_description") or []
    return Product(
        asin=asin.upper(),
        name=str(row["name"]),
        query=str(row["query"]).lower().strip(),
        path=tuple(part.strip() for part in str(row["product_category"]).split(_ARROW)),
        price=price,
        price_tag=tag,
        options=_options(row.get("customization_options")),
        attributes=tuple(map(str, about.get("attributes") or ())),
        description=str(row.get("full_description") or ""),
        features=tuple(map(str, small if isinstance(small, list) else [small])),
        rating=str(reviewed.get("average_rating", "N.A.")),
        reviews=tuple(str(one.get("review") or "") for one in reviewed.get("reviews") or ()),
    )


def _price(asin: str, text: str | None) -> tuple[float, str]:
    """Return the price and its text; a price range becomes a price that depends only on the product."""
    numbers = [float(number.replace(",", "")) for number in _MONEY.findall(text or "")][:2]
    if not numbers:
        return 100.0, "$100.0"
    if len(numbers) == 1:
        return numbers[0], f"${numbers[0]}"
    return round(Random(asin).uniform(*numbers), 2), f"${numbers[0]} to ${numbers[1]}"


def _options(options_by_name: dict[str, Any] | None) -> dict[str, list[str]]:
    options = {}
    for name, choices in (options_by_name or {}).items():
        if choices is not None:
            values = (str(choice["value"]).replace("/", " | ").lower() for choice in choices)
            options[name.lower()] = list(dict.fromkeys(" ".join(v.translate(_ROUND).split()) for v in values))
    return options


def _human_goals(product: Product, written: Any) -> Iterator[Goal]:
    for index, one in enumerate(written):
        attributes = tuple(map(str, one["instruction_attributes"]))
        if attributes:
            values = one["instruction_options"]
            options = tuple(map(str, values.values() if isinstance(values, dict) else values))
            limit = price_limit(product.asin, index, product.price)
            text = f"{one['instruction'].strip('.')}{price_words(limit)}."
            yield Goal(product.asin, text, attributes, options, limit)


def _template_goals(product: Product, about: dict[str, Any]) -> Iterator[Goal]:
    instruction, attributes = about.get("instruction"), tuple(about.get("instruction_attributes") or ())
    if not instruction or not attributes:
        return
    names = sorted(product.options)
    for index, values in enumerate(combinations(*(product.options[name] for name in names))):
        demands = ", and ".join(f"{name}: {value}" for name, value in zip(names, values, strict=True))
        limit = price_limit(product.asin, index, product.price)
        text = f"{instruction.strip('.')}{' with ' + demands if demands else ''}{price_words(limit)}."
        yield Goal(product.asin, text, attributes, values, limit)


# -- files ------------------------------------------------------------------------------------


def _file(folder: str, names: tuple[str, ...]) -> Path:
    for name in names:
        if Path(folder, name).is_file():
            return Path(folder, name)
    raise DataError(
        f"{folder} lacks {' or '.join(names)}; the setup script of WebShop's repository downloads its data"
    )


def _by_product(path: Path) -> dict[str, Any]:
    """Read a file with one JSON object."""
    content = _json(path)
    if not isinstance(content, dict):
        raise DataError(f"{path}: expected one JSON object, by product")
    return content


def _reviews(path: Path) -> dict[str, dict[str, Any]]:
    if not path.is_file():
        return {}
    content = _json(path)
    if not isinstance(content, list) or not all(isinstance(one, dict) for one in content):
        raise DataError(f"{path}: expected a list of JSON objects")
    return {str(one.get("asin")): one for one in content}


def _json(path: Path) -> Any:
    try:
        return read_json_file(path)
    except (OSError, ValueError) as error:
        raise DataError(f"{path} cannot be read: {error}") from error


def _rows(path: Path) -> Iterator[dict[str, Any]]:
    """Yield the objects of a JSON list one by one, because the whole file may exceed the memory."""
    decoder = json.JSONDecoder()
    with open(path, encoding="utf-8") as file:
        text, place = _read(file, path).lstrip(), 1
        if text[:1] != "[":
            raise DataError(f"{path}: expected a JSON list of products")
        while True:
            while text[place : place + 1] in _BETWEEN:
                place += 1
            if text[place : place + 1] == "]":
                return
            try:
                row, place = decoder.raw_decode(text, place)
            except (ValueError, RecursionError) as error:
                more = _read(file, path)
                if not more or len(text) - place > _LARGEST:
                    raise DataError(f"{path} is cut short or broken: {error}") from error
                text, place = text[place:] + more, 0
                continue
            if not isinstance(row, dict):
                raise DataError(f"{path}: expected JSON objects in the list, not {type(row).__name__}")
            yield row


def _read(file: Any, path: Path) -> str:
    try:
        more: str = file.read(_CHUNK)
    except (OSError, UnicodeError) as error:
        raise DataError(f"{path} cannot be read: {error}") from error
    return more

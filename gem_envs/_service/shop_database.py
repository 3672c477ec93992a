"""The generated database of the shop.

Every customer has a pending order, one in transit, one delivered recently, and one delivered long ago.
"""

from __future__ import annotations

import json
from functools import lru_cache
from random import Random
from typing import Any

from gem_envs._service.domain import Database

_FIRST = (
    "Ada", "Bo", "Carla", "Dev", "Elif", "Femi", "Greta", "Hugo", "Ines", "Jonas", "Kaya", "Liam", "Mara",
    "Nils", "Olga", "Pavel", "Quinn", "Rosa", "Sami", "Tilda", "Uwe", "Vera", "Wim", "Yara",
)  # fmt: skip
_LAST = (
    "Abbot",
    "Bauer",
    "Costa",
    "Dahl",
    "Evans",
    "Frank",
    "Gomez",
    "Holm",
    "Ito",
    "Jansen",
    "Klein",
    "Lund",
)
_STREETS = ("Mill Lane", "Harbor Road", "Church Street", "Garden Way", "Station Road", "Hill View")
_CITIES = ("Aldham", "Birkby", "Corfield", "Denholm", "Elmstead", "Farnley")
_PRODUCTS = {
    "backpack": ("size", ("20 liters", "30 liters", "40 liters"), 70),
    "rain jacket": ("size", ("small", "medium", "large"), 90),
    "tent": ("size", ("two persons", "three persons", "four persons"), 180),
    "sleeping bag": ("filling", ("down", "wool", "synthetic"), 120),
    "camping stove": ("fuel", ("gas", "spirit", "wood"), 45),
    "head lamp": ("power", ("battery", "rechargeable", "crank"), 25),
    "water bottle": ("size", ("half a liter", "one liter", "two liters"), 15),
    "hiking boots": ("size", ("39", "41", "43"), 130),
    "trekking poles": ("material", ("aluminium", "carbon", "bamboo"), 60),
    "camp chair": ("material", ("steel", "beech", "plastic"), 40),
}
_COLORS = ("red", "blue", "green")


@lru_cache(maxsize=1)
def _master() -> str:
    """Return the database as JSON."""
    random = Random("an outdoor shop")
    products = {f"P{number:02}": _product(random, number, name) for number, name in enumerate(_PRODUCTS, 1)}
    customers: dict[str, Any] = {}
    orders: dict[str, Any] = {}
    names = [(first, last) for first in _FIRST for last in _LAST]
    for number, (first, last) in enumerate(random.sample(names, 40), 1):
        key = f"C{number:03}"
        payments = {
            f"card-{random.randint(1000, 9999)}": {"kind": "card"},
            f"gift-{random.randint(1000, 9999)}": {"kind": "gift card", "balance": random.randint(1, 9)},
            f"bank-{random.randint(1000, 9999)}": {"kind": "bank transfer"},
        }
        customers[key] = {
            "first_name": first, "last_name": last, "email": f"{first}.{last}{number}@post.example".lower(),
            "phone": f"555-{random.randint(1000, 9999)}", "newsletter": True, "address": _address(random),
            "payments": payments, "orders": [],
        }  # fmt: skip
        for status, days in (("waiting", None), ("sent", None), ("delivered", 9), ("delivered", 70)):
            order = f"W{10_000 + 10 * number + len(customers[key]['orders'])}"
            orders[order] = _order(random, key, customers[key], products, status, days)
            customers[key]["orders"].append(order)
    return json.dumps({"customers": customers, "orders": orders, "products": products})


def shop_database() -> Database:
    """Return a new copy of the database: customers, orders, and products by their numbers."""
    database: Database = json.loads(_master())
    return database


def _product(random: Random, number: int, name: str) -> dict[str, Any]:
    option, values, price = _PRODUCTS[name]
    variants = {}
    for row, value in enumerate(values):
        for column, color in enumerate(_COLORS):
            variants[f"{number:02}{row}{column}"] = {
                "color": color,
                option: value,
                "price": price + 7 * row + 2 * column + random.randint(0, 1),
                "in_stock": (row + column + number) % 4 != 0,  # some variants of each product, never all
            }
    return {"name": name, "variants": variants}


def _address(random: Random) -> dict[str, str]:
    return {
        "street": f"{random.randint(1, 99)} {random.choice(_STREETS)}",
        "city": random.choice(_CITIES),
        "postcode": f"{random.randint(10_000, 99_999)}",
    }


def _order(
    random: Random,
    key: str,
    customer: dict[str, Any],
    products: dict[str, Any],
    status: str,
    days: int | None,
) -> dict[str, Any]:
    items = []
    for product in random.sample(sorted(products), 3):
        variant = random.choice(
            [v for v, about in products[product]["variants"].items() if about["in_stock"]]
        )
        items.append({"product": product, "name": products[product]["name"], "variant": variant,
                      **products[product]["variants"][variant]})  # fmt: skip
        del items[-1]["in_stock"]
    card, _, bank = customer["payments"]
    return {
        "customer": key, "status": status, "delivered_days_ago": days, "address": dict(customer["address"]),
        "items": items, "payment": random.choice([card, bank]), "refunds": [],
        "tracking": None if status == "waiting" else f"TR{random.randint(100_000, 999_999)}",
    }  # fmt: skip


def total(order: dict[str, Any]) -> int:
    """Return the total price of the items of an order."""
    return sum(item["price"] for item in order["items"])

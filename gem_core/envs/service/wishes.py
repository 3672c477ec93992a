"""What customers of the shop can want: `Wish`, and the `Person` who wants it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from gem_core.envs.service.domain import Call, Database


@dataclass(frozen=True)
class Wish:
    """What a customer wants, in words and in calls.

    Attributes:
        text: For the instruction and the request, from the customer's mouth.
        facts: What the customer says when asked.
        actions: What is to be called.
        outputs: What has to be said.
    """

    text: str
    facts: Mapping[str, str] = field(default_factory=dict)
    actions: Sequence[Call] = ()
    outputs: Sequence[str] = ()


class Person:
    """A customer and what can be wished for.

    Args:
        database: Of the shop.
        key: The customer's number.
    """

    def __init__(self, database: Database, key: str) -> None:
        self.database, self.key = database, key
        self.about: dict[str, Any] = database["customers"][key]
        self.waiting, self.sent, self.delivered, self.old = self.about["orders"]
        self.card, self.gift, self.bank = self.about["payments"]

    def order(self, number: str) -> dict[str, Any]:
        """Return an order of the customer."""
        found: dict[str, Any] = self.database["orders"][number]
        return found

    def item(self, number: str, place: int = 0) -> dict[str, Any]:
        """Return an item of an order."""
        found: dict[str, Any] = self.order(number)["items"][place]
        return found

    def variants(self, item: Mapping[str, Any], in_stock: bool = True) -> dict[str, dict[str, Any]]:
        """Other variants of an item's product that are in stock, or that are not."""
        every = self.database["products"][item["product"]]["variants"]
        return {
            key: about
            for key, about in every.items()
            if about["in_stock"] is in_stock and key != item["variant"]
        }

    def other_payment(self, number: str) -> str:
        """Return the card or bank transfer that an order is not paid with."""
        return str(self.bank if self.order(number)["payment"] == self.card else self.card)


def described(variant: Mapping[str, Any]) -> str:
    """Return a variant in words: its colour and its other option."""
    return ", ".join(str(value) for key, value in variant.items() if key not in ("price", "in_stock"))


def order_fact(number: str) -> dict[str, str]:
    """What a customer says when asked for the order."""
    return {"order": f"The order is {number}."}


def wanted(variant: Mapping[str, Any]) -> dict[str, str]:
    """What a customer says when asked which variant."""
    return {"wish": f"I would like this one: {described(variant)}."}


def first(variants: Mapping[str, dict[str, Any]]) -> tuple[str, dict[str, Any]]:
    """Return the first of some variants, by number."""
    return next(iter(variants.items()))


def by_price(variants: Mapping[str, dict[str, Any]], *, dearest: bool = False) -> tuple[str, dict[str, Any]]:
    """Return the cheapest of some variants, or the dearest."""
    return (max if dearest else min)(variants.items(), key=lambda entry: (entry[1]["price"], entry[0]))


def swap(order: str, item: Mapping[str, Any], variant: str, how: str = "change_item") -> Call:
    """Return the call that puts another variant in the place of an item."""
    return how, {"order": order, "variant": item["variant"], "new_variant": variant}

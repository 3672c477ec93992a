"""Requests of customers of the shop: `Wish`, and the `Person` who has it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from gem_envs._service.domain import Call, Database


@dataclass(frozen=True)
class Wish:
    """A request of a customer, in words and in calls.

    Attributes:
        text: The request in the customer's words, for the instruction and the first message.
        facts: Answers of the customer, by topic.
        actions: Required calls.
        outputs: Texts that the assistant must say.
    """

    text: str
    facts: Mapping[str, str] = field(default_factory=dict)
    actions: Sequence[Call] = ()
    outputs: Sequence[str] = ()


class Person:
    """A customer and the possible requests.

    Args:
        database: Database of the shop.
        key: Key of the customer.
    """

    def __init__(self, database: Database, key: str) -> None:
        self.database, self.key = database, key
        self.about: dict[str, Any] = database["customers"][key]
        self.waiting, self.sent, self.delivered, self.old = self.about["orders"]
        self.card, self.gift, self.bank = self.about["payments"]

    def order(self, number: str) -> dict[str, Any]:
        """Return an order of the customer."""
        order: dict[str, Any] = self.database["orders"][number]
        return order

    def item(self, number: str, place: int = 0) -> dict[str, Any]:
        """Return an item of an order."""
        item: dict[str, Any] = self.order(number)["items"][place]
        return item

    def variants(self, item: Mapping[str, Any], in_stock: bool = True) -> dict[str, dict[str, Any]]:
        """Return the other variants of an item's product that are in stock, or that are not."""
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
    """Return a variant in words: its color and its other option."""
    return ", ".join(str(value) for key, value in variant.items() if key not in ("price", "in_stock"))


def order_fact(number: str) -> dict[str, str]:
    """Return the answer of a customer who is asked for the order."""
    return {"order": f"The order is {number}."}


def variant_facts(variant: Mapping[str, Any]) -> dict[str, str]:
    """Return the answer of a customer who is asked for the variant."""
    return {"wish": f"I would like this one: {described(variant)}."}


def first(variants: Mapping[str, dict[str, Any]]) -> tuple[str, dict[str, Any]]:
    """Return the first of some variants, by number."""
    return next(iter(variants.items()))


def by_price(variants: Mapping[str, dict[str, Any]], *, dearest: bool = False) -> tuple[str, dict[str, Any]]:
    """Return the cheapest or the most expensive of some variants."""
    return (max if dearest else min)(variants.items(), key=lambda entry: (entry[1]["price"], entry[0]))


def swap(order: str, item: Mapping[str, Any], variant: str, how: str = "change_item") -> Call:
    """Return the call that exchanges an item for another variant."""
    return how, {"order": order, "variant": item["variant"], "new_variant": variant}

"""Requests for information, about the account, and beyond the assistant's tools."""

from __future__ import annotations

from typing import Any

from gem_envs._service.domain import Call
from gem_envs._service.shop_database import total
from gem_envs._service.wishes import Person, Wish, order_fact


def know_total(p: Person) -> Wish:
    """Answer: the total of an order."""
    text = "What does all that I have on order and that has not been sent cost together?"
    return Wish(
        text, order_fact(p.waiting), [("get_order", {"order": p.waiting})], [str(total(p.order(p.waiting)))]
    )


def know_tracking(p: Person) -> Wish:
    """Answer: the tracking number, which only a shipped order has."""
    text = "I am waiting for a parcel of yours. What is its tracking number?"
    return Wish(text, order_fact(p.sent), [("get_order", {"order": p.sent})], [p.order(p.sent)["tracking"]])


def know_city(p: Person) -> Wish:
    """Answer: the destination of an order."""
    text = f"To which city did you send order {p.sent}? I have two flats and forgot."
    return Wish(text, {}, [("get_order", {"order": p.sent})], [p.order(p.sent)["address"]["city"]])


def know_stock(p: Person) -> Wish:
    """Answer: the number of variants in stock."""
    item = p.item(p.delivered)
    every = p.database["products"][item["product"]]["variants"].values()
    count = sum(about["in_stock"] for about in every)
    text = f"In how many variants could I buy a {item['name']} today? Count those in stock only."
    return Wish(text, {}, [("get_product", {"product": item["product"]})], [f"{count}"])


def know_range(p: Person) -> Wish:
    """Answer: the largest price minus the smallest."""
    item = p.item(p.waiting)
    prices = [about["price"] for about in p.database["products"][item["product"]]["variants"].values()]
    text = f"How far apart are your cheapest and your dearest {item['name']}, sold out or not?"
    return Wish(text, {}, [("get_product", {"product": item["product"]})], [str(max(prices) - min(prices))])


def know_balance(p: Person) -> Wish:
    """Answer: the balance of the gift card."""
    text = "How much is left on the gift card of my account?"
    return Wish(text, {"payment": f"{p.gift}."}, (), [str(p.about["payments"][p.gift]["balance"])])


def know_spent(p: Person) -> Wish:
    """Answer: the sum of the totals of all orders."""
    amount = sum(total(p.order(number)) for number in p.about["orders"])
    text = "For my taxes: the sum of all my orders with you, whatever has become of them."
    return Wish(text, {}, [("get_order", {"order": number}) for number in p.about["orders"]], [str(amount)])


def know_neighbor(p: Person) -> Wish:
    """Declined: the order belongs to another customer."""
    keys = list(p.database["customers"])
    other = p.database["customers"][keys[keys.index(p.key) - 1]]
    name = f"{other['first_name']} {other['last_name']}"
    text = f"What did my friend {name} order, {other['orders'][0]}? Cancel it."
    return Wish(text, {"reason": "My friend changed their mind."})


def _profile(p: Person, **changes: Any) -> list[Call]:
    return [("change_profile", {"customer": p.key, **changes})]


def new_email(p: Person) -> Wish:
    """Allowed: the email address of the account."""
    new = f"{p.about['first_name']}@letters.example".lower()
    return Wish(f"My mailbox has changed: write to {new} from now on.", {}, _profile(p, email=new))


def new_phone(p: Person) -> Wish:
    """Allowed: the telephone number of the account."""
    return Wish(
        "You have an old telephone number of mine. The right one is 555-0142.",
        {},
        _profile(p, phone="555-0142"),
    )


def no_newsletter(p: Person) -> Wish:
    """Allowed: the end of the newsletter."""
    return Wish("Stop sending me that newsletter.", {}, _profile(p, newsletter=False))


def new_street(p: Person) -> Wish:
    """Allowed: one line of the address."""
    text = "The council renamed our street: it is Liberty Street now, number 4. City and postcode stay."
    return Wish(text, {"address": "4 Liberty Street."}, _profile(p, street="4 Liberty Street"))


def complain(p: Person) -> Wish:
    """Beyond the tools: handed over."""
    text = "Your driver shouted at my mother. I want to complain about that person."
    return Wish(text, {}, [("hand_over", {"summary": "a complaint about a driver"})])


def damage(p: Person) -> Wish:
    """Beyond the tools: handed over."""
    text = f"The {p.item(p.delivered)['name']} leaked and ruined my carpet. Who pays for the carpet?"
    return Wish(text, order_fact(p.delivered), [("hand_over", {"summary": "a claim for damage"})])


WISHES = (
    know_total, know_tracking, know_city, know_stock, know_range, know_balance, know_spent,
    know_neighbor, new_email, new_phone, no_newsletter, new_street, complain, damage,
)  # fmt: skip

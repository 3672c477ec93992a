"""Requests about delivered items."""

from __future__ import annotations

from gem_envs._service.domain import Call
from gem_envs._service.wishes import Person, Wish, by_price, described, first, order_fact, swap, variant_facts


def _return(p: Person, variants: list[str], payment: str | None = None) -> Call:
    to = payment or p.order(p.delivered)["payment"]
    return "return_items", {"order": p.delivered, "variants": variants, "payment": to}


def return_one(p: Person) -> Wish:
    """Allowed: nine days."""
    item = p.item(p.delivered)
    text = f"The {item['name']} that came last week does not suit me. I want to send it back."
    return Wish(text, {**order_fact(p.delivered), "payment": "Refund it the way I paid."},
                [_return(p, [item["variant"]])])  # fmt: skip


def return_all(p: Person) -> Wish:
    """Allowed: three items at once."""
    variants = [item["variant"] for item in p.order(p.delivered)["items"]]
    text = f"Everything in order {p.delivered} goes back, please. The money may go where it came from."
    return Wish(text, {"payment": "Where it came from."}, [_return(p, variants)])


def return_to_gift(p: Person) -> Wish:
    """Allowed: a gift card of the account."""
    item = p.item(p.delivered, 1)
    text = f"I return the {item['name']} I just received and would like the amount on my gift card."
    return Wish(text, {**order_fact(p.delivered), "payment": f"On {p.gift}."},
                [_return(p, [item["variant"]], p.gift)])  # fmt: skip


def return_elsewhere(p: Person) -> Wish:
    """Declined: neither the original payment method nor a gift card."""
    text = (
        f"Refund the {p.item(p.delivered)['name']} from my last delivery to {p.other_payment(p.delivered)}, "
        "not to what I paid with. Otherwise I keep it."
    )
    return Wish(text, {**order_fact(p.delivered), "payment": f"Only to {p.other_payment(p.delivered)}."})


def return_dearest(p: Person) -> Wish:
    """Allowed; compare, and name the amount."""
    item = max(p.order(p.delivered)["items"], key=lambda item: (item["price"], item["variant"]))
    text = "Of the things that came recently I send the most expensive one back. How much is that?"
    return Wish(text, {**order_fact(p.delivered), "item": "The one that cost most."},
                [_return(p, [item["variant"]])], [str(item["price"])])  # fmt: skip


def return_all_but_one(p: Person) -> Wish:
    """Allowed: two of three."""
    kept, *others = p.order(p.delivered)["items"]
    text = f"From what you delivered this month I keep the {kept['name']} only. The rest comes back to you."
    return Wish(text, {**order_fact(p.delivered), "payment": "The way I paid."},
                [_return(p, [item["variant"] for item in others])])  # fmt: skip


def return_late(p: Person) -> Wish:
    """Declined: too long ago."""
    text = f"I never used the {p.item(p.old)['name']} from order {p.old}. Take it back, I kept the box."
    return Wish(text, {"payment": "The way I paid."})


def return_sent(p: Person) -> Wish:
    """Declined: the order has not arrived."""
    text = (
        "I can tell already that I will not like what is on its way. Register its return and refund me today."
    )
    return Wish(text, {**order_fact(p.sent), "payment": "The way I paid."})


def exchange(p: Person) -> Wish:
    """Allowed: in stock."""
    item = p.item(p.delivered, 2)
    key, about = first(p.variants(item))
    text = f"I have got a {item['name']} from you and should have taken {described(about)}. Can I swap it?"
    return Wish(text, {**order_fact(p.delivered), **variant_facts(about)},
                [swap(p.delivered, item, key, "exchange_item")])  # fmt: skip


def exchange_cheapest(p: Person) -> Wish:
    """Allowed; compare, and name the price."""
    item = p.item(p.delivered)
    key, about = by_price(p.variants(item))
    text = (
        f"Exchange my delivered {item['name']} for the least expensive other version. Tell me its price, too."
    )
    return Wish(text, {**order_fact(p.delivered), "wish": "The least expensive other version."},
                [swap(p.delivered, item, key, "exchange_item")],
                [str(about["price"])])  # fmt: skip


def exchange_two(p: Person) -> Wish:
    """Allowed: two items."""
    items = [p.item(p.delivered, 0), p.item(p.delivered, 1)]
    text = (
        f"Neither the {items[0]['name']} nor the {items[1]['name']} from order {p.delivered} pleases me; "
        "give me the dearest other one of each."
    )
    return Wish(text, {"wish": "The dearest other one of each."}, [
        swap(p.delivered, item, by_price(p.variants(item), dearest=True)[0], "exchange_item")
        for item in items
    ])  # fmt: skip


def exchange_late(p: Person) -> Wish:
    """Declined: too long ago."""
    text = f"Two months ago I bought a {p.item(p.old)['name']}. I want it in another color now, for nothing."
    return Wish(text, {**order_fact(p.old), "wish": "Any other color."})


def keep_and_exchange(p: Person) -> Wish:
    """Allowed: a return and an exchange of one order."""
    back, swapped = p.item(p.delivered, 0), p.item(p.delivered, 2)
    key, _ = by_price(p.variants(swapped))
    text = (
        f"Two things about my last delivery: the {back['name']} comes back to you, and the {swapped['name']} "
        "I swap for the cheapest other one."
    )
    return Wish(text, {**order_fact(p.delivered), "payment": "The way I paid."}, [
        _return(p, [back["variant"]]),
        swap(p.delivered, swapped, key, "exchange_item"),
    ])  # fmt: skip


WISHES = (
    return_one, return_all, return_to_gift, return_elsewhere, return_dearest, return_all_but_one,
    return_late, return_sent, exchange, exchange_cheapest, exchange_two, exchange_late,
    keep_and_exchange,
)  # fmt: skip

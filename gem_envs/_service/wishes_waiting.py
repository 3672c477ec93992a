"""Requests about pending orders, or orders past changing."""

from __future__ import annotations

from gem_envs._service.shop_database import total
from gem_envs._service.wishes import Person, Wish, by_price, described, first, order_fact, swap, variant_facts


def cancel(p: Person) -> Wish:
    """Allowed while the order is pending."""
    text = f"I have changed my mind about the order with the {p.item(p.waiting)['name']}; please cancel it."
    return Wish(text, {**order_fact(p.waiting), "reason": "I simply changed my mind."},
                [("cancel_order", {"order": p.waiting, "reason": "changed mind"})])  # fmt: skip


def cancel_mistake(p: Person) -> Wish:
    """Allowed; the other reason."""
    text = f"Order {p.waiting} was a slip of the finger, I never wanted it. Take it off my account."
    return Wish(text, {"reason": "It was ordered by mistake."},
                [("cancel_order", {"order": p.waiting, "reason": "ordered by mistake"})])  # fmt: skip


def cancel_and_know(p: Person) -> Wish:
    """Allowed; the assistant must name the refund."""
    text = "Cancel the order of mine that has not left yet, I found it cheaper. How much do I get back?"
    return Wish(text, {**order_fact(p.waiting), "reason": "I changed my mind."},
                [("cancel_order", {"order": p.waiting, "reason": "changed mind"})],
                [str(total(p.order(p.waiting)))])  # fmt: skip


def cancel_delivered(p: Person) -> Wish:
    """Declined: the order has arrived."""
    text = f"Cancel my order {p.delivered}, the one you brought the other day. I will keep the things anyway."
    return Wish(text, {"reason": "I changed my mind."})


def cancel_sent(p: Person) -> Wish:
    """Declined: the order is in transit."""
    text = "Stop the parcel that is on the road to me and cancel that order, I do not need it any more."
    return Wish(text, {**order_fact(p.sent), "reason": "I changed my mind."})


def send_elsewhere(p: Person) -> Wish:
    """Allowed: one order, not the account."""
    place = {"street": "8 Orchard Close", "city": "Birkby", "postcode": "30417"}
    text = "I am moving this week. Have the order that you still hold sent to 8 Orchard Close, Birkby, 30417."
    return Wish(text, {**order_fact(p.waiting), "address": "8 Orchard Close, Birkby, 30417."},
                [("change_order_address", {"order": p.waiting, **place})])  # fmt: skip


def send_home(p: Person) -> Wish:
    """Allowed: the account and the order."""
    place = {"street": "77 Quay Street", "city": "Farnley", "postcode": "51180"}
    text = (
        "My new home is 77 Quay Street, Farnley, 51180. Write that into my account, and let the waiting "
        "order go there as well."
    )
    return Wish(text, order_fact(p.waiting), [
        ("change_profile", {"customer": p.key, **place}),
        ("change_order_address", {"order": p.waiting, **place}),
    ])  # fmt: skip


def redirect_sent(p: Person) -> Wish:
    """Declined: the order is in transit."""
    text = f"Parcel {p.order(p.sent)['tracking']} should go to my neighbor at 3 Mill Lane, Aldham, 20202."
    return Wish(text, order_fact(p.sent))


def pay_otherwise(p: Person) -> Wish:
    """Allowed: a payment of the account."""
    new = p.other_payment(p.waiting)
    text = f"Please charge my waiting order to {new} and not to what I chose."
    return Wish(text, {**order_fact(p.waiting), "payment": f"With {new}."},
                [("change_order_payment", {"order": p.waiting, "payment": new})])  # fmt: skip


def pay_with_gift(p: Person) -> Wish:
    """Declined: the balance of the gift card is too low."""
    text = "I would like the order that is not yet on its way to be paid with my gift card, all of it."
    return Wish(text, {**order_fact(p.waiting), "payment": f"The gift card is {p.gift}."})


def another_variant(p: Person) -> Wish:
    """Allowed: in stock."""
    item = p.item(p.waiting)
    key, about = first(p.variants(item))
    text = f"The {item['name']} I ordered is wrong. I want {described(about)} instead; it is not sent yet."
    return Wish(text, {**order_fact(p.waiting), **variant_facts(about)},
                [swap(p.waiting, item, key)])  # fmt: skip


def cheapest_variant(p: Person) -> Wish:
    """Allowed; the assistant has to compare."""
    item = p.item(p.waiting, 1)
    key, _ = by_price(p.variants(item))
    text = f"Money is short: swap the {item['name']} in my waiting order for the cheapest other you have."
    return Wish(text, {**order_fact(p.waiting), "wish": "The cheapest other one."},
                [swap(p.waiting, item, key)])  # fmt: skip


def dearest_variant(p: Person) -> Wish:
    """Allowed; compare, and name the price."""
    item = p.item(p.waiting, 2)
    key, about = by_price(p.variants(item), dearest=True)
    text = (
        f"It is a present, so make the {item['name']} of the order you have not sent the most expensive "
        "other one that can be had. What does that one cost?"
    )
    return Wish(text, {**order_fact(p.waiting), "wish": "The most expensive other one."},
                [swap(p.waiting, item, key)],
                [str(about["price"])])  # fmt: skip


def another_product(p: Person) -> Wish:
    """Declined: another product."""
    text = (
        f"Take the {p.item(p.waiting)['name']} out of order {p.waiting} and put in a canoe of the same price."
    )
    return Wish(text, {"wish": "A canoe."})


def sold_out_variant(p: Person) -> Wish:
    """Declined: not in stock."""
    item = p.item(p.waiting)
    _, about = first(p.variants(item, in_stock=False))
    text = f"I want my {item['name']}, not sent so far, to be {described(about)}, or else as it is."
    return Wish(text, {**order_fact(p.waiting), **variant_facts(about)})


def second_choice(p: Person) -> Wish:
    """Allowed: the first choice is sold out, the second is in stock."""
    item = p.item(p.waiting, 1)
    _, sold_out = first(p.variants(item, in_stock=False))
    key, about = first(p.variants(item))
    text = (
        f"About the {item['name']} in the order that waits: best would be {described(sold_out)}; if that is "
        f"sold out, {described(about)} will do."
    )
    return Wish(text, {**order_fact(p.waiting), **variant_facts(about)},
                [swap(p.waiting, item, key)])  # fmt: skip


def two_variants(p: Person) -> Wish:
    """Allowed: two items, the third stays."""
    items = [p.item(p.waiting, 0), p.item(p.waiting, 2)]
    chosen = [by_price(p.variants(item)) for item in items]
    text = (
        f"Both the {items[0]['name']} and the {items[1]['name']} on order should be the cheapest others of "
        "their kind. Leave the third thing alone."
    )
    return Wish(text, order_fact(p.waiting), [
        swap(p.waiting, item, key)
        for item, (key, _) in zip(items, chosen, strict=True)
    ])  # fmt: skip


WISHES = (
    cancel, cancel_mistake, cancel_and_know, cancel_delivered, cancel_sent, send_elsewhere,
    send_home, redirect_sent, pay_otherwise, pay_with_gift, another_variant, cheapest_variant,
    dearest_variant, another_product, sold_out_variant, second_choice, two_variants,
)  # fmt: skip

"""The tasks of the shop: the wishes of 70 customers, one or two per customer.

A wish is a function of a customer. Each task combines one or two wishes and has its own customer. The
reference solution finds the customer, looks up the account or order, and makes the calls that the policy
allows; a forbidden wish needs no call.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import TypeAlias

from gem_envs._service import wishes_account as account
from gem_envs._service import wishes_delivered as delivered
from gem_envs._service import wishes_waiting as waiting
from gem_envs._service.domain import Call, Domain, ServiceTask
from gem_envs._service.sentences import agrees, declines
from gem_envs._service.shop import CHANGES, OPERATIONS, POLICY, looked_up, said_in_words
from gem_envs._service.shop_database import shop_database
from gem_envs._service.wishes import Person, Wish

Maker: TypeAlias = Callable[[Person], Wish]

SINGLE: tuple[Maker, ...] = (*waiting.WISHES, *delivered.WISHES, *account.WISHES)

PAIRS = (
    "know_tracking+return_one", "cancel+exchange", "another_variant+return_to_gift",
    "know_balance+return_to_gift", "pay_otherwise+send_elsewhere", "cancel_sent+cancel_mistake",
    "return_late+return_one", "new_email+cancel_and_know", "no_newsletter+know_spent",
    "pay_with_gift+pay_otherwise", "sold_out_variant+exchange_cheapest", "redirect_sent+send_elsewhere",
    "return_elsewhere+exchange", "know_stock+exchange_two", "second_choice+new_phone",
    "exchange_late+return_dearest", "send_home+no_newsletter", "know_range+cheapest_variant",
    "another_product+another_variant", "cancel_delivered+return_all", "know_city+new_street",
    "two_variants+return_all_but_one", "know_total+dearest_variant", "know_neighbor+cancel",
    "keep_and_exchange+pay_otherwise", "know_tracking+complain",
)  # fmt: skip
"""Pairs of wishes of one customer; some wishes are allowed and some are not."""


@lru_cache(maxsize=1)
def shop() -> Domain:
    """Return the shop with its tasks: one for each single wish and each pair."""
    database = shop_database()
    people = [Person(database, key) for key in database["customers"]]
    by_name = {wish.__name__: wish for wish in SINGLE}
    plans = [[wish] for wish in SINGLE] + [[by_name[name] for name in pair.split("+")] for pair in PAIRS]
    tasks = [_task(people[index % len(people)], index, plan) for index, plan in enumerate(plans)]
    return Domain(
        POLICY, OPERATIONS, tasks, shop_database, said_in_words, looked_up,
        changes=CHANGES, agreed=agrees, declined=declines,
    )  # fmt: skip


def _task(person: Person, index: int, plan: Sequence[Maker]) -> ServiceTask:
    wishes = [wish(person) for wish in plan]
    about = person.about
    name = f"{about['first_name']} {about['last_name']}"
    text = " Besides, ".join([wishes[0].text, *(wish.text for wish in wishes[1:])])
    facts = {
        "email": f"My email address is {about['email']}.",
        "name": f"My name is {name}.",
        "postcode": f"My postcode is {about['address']['postcode']}.",
    }
    if index % 3 == 2:  # every third customer does not recall the email address
        facts["email"] = (
            f"I do not recall the address. My name is {name}, postcode {about['address']['postcode']}."
        )
        first, last, postcode = about["first_name"], about["last_name"], about["address"]["postcode"]
        find: Call = ("find_customer_by_name", {"first_name": first, "last_name": last, "postcode": postcode})
    else:
        find = ("find_customer_by_email", {"email": about["email"]})
    for wish in wishes:
        for key, fact in wish.facts.items():
            facts[key] = f"{facts[key]} {fact}" if key in facts else fact
    known = " ".join(facts.values())
    return ServiceTask(
        name="+".join(wish.__name__ for wish in plan),
        instruction=f"You are {name}. What you want: {text}\nWhat you know: {known}",
        request=f"Hello. {text}",
        facts=facts,
        actions=[
            find,
            ("get_customer", {"customer": person.key}),
            *(a for wish in wishes for a in wish.actions),
        ],
        outputs=[output for wish in wishes for output in wish.outputs],
    )

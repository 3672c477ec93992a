"""The shop: its policy, and the operations with which the assistant looks up and changes data."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from typing import Any

from gem_envs._service.domain import Database, Operation, OperationRefused, ServiceTask
from gem_envs._service.shop_database import shop_database, total

RETURN_DAYS = 30
MOST_NUMBERS = 40
"""Maximum number of distinct numbers in the assistant's messages; above it, no number counts as an answer."""

CHANGES = frozenset(
    (
        "cancel_order", "change_order_address", "change_order_payment", "change_item", "return_items",
        "exchange_item", "change_profile",
    )
)  # fmt: skip
"""Operations that need the agreement of the customer."""

_THOUSANDS = re.compile(r"(?<=\d),(?=\d{3}(?!\d))")
_NOTHING_BEHIND = re.compile(r"(?<=\d)\.0+(?!\d)")

POLICY = f"""\
You work for the customer service of an outdoor shop.
- Find out who the customer is before anything else, by email, or by name and postcode. Help with that \
customer's own account and orders only; do not reveal anything about other customers.
- Before a call that changes something, say what you are going to do and get the customer's agreement in \
the next message. One agreement covers all changes that you make before you write again.
- An order can be changed or cancelled only while it is "waiting", never when it is "sent" or "delivered". \
The reason of a cancellation is "changed mind" or "ordered by mistake".
- An item of a waiting order can be changed to another variant of the same product that is in stock, not to \
another product. The difference in price goes to the payment of the order.
- A waiting order can be paid with another payment of the same account. A gift card must hold the whole \
amount.
- Delivered items can be returned within {RETURN_DAYS} days, to the payment of the order or to a gift card \
of the account, nowhere else. Within the same time they can be exchanged for another variant of the same \
product that is in stock.
- Decline a request that these rules forbid, once you have found the customer and looked at the account or \
the order: say so, and change nothing. Hand over to a person only a request that is \
allowed but beyond your tools (a complaint about a person, a claim for damage).
- Ask whether there is anything else once everything is settled. Do not make anything up."""


def _get(table: dict[str, Any], key: str, what: str) -> dict[str, Any]:
    if key not in table:
        raise OperationRefused(f"there is no {what} {key[:40]!r}")
    record: dict[str, Any] = table[key]
    return record


def _find_by_email(database: Database, email: str) -> str:
    for key, customer in database["customers"].items():
        if customer["email"] == email.strip().lower():
            return str(key)
    raise OperationRefused("no customer has this email address")


def _find_by_name(database: Database, first_name: str, last_name: str, postcode: str) -> str:
    identity = [first_name.lower(), last_name.lower(), postcode]
    for key, customer in database["customers"].items():
        names = [customer["first_name"].lower(), customer["last_name"].lower()]
        if [*names, customer["address"]["postcode"]] == identity:
            return str(key)
    raise OperationRefused("no customer has this name and postcode")


def _get_customer(database: Database, customer: str) -> str:
    return json.dumps(_get(database["customers"], customer, "customer"))


def _get_order(database: Database, order: str) -> str:
    record = _get(database["orders"], order, "order")
    return json.dumps({**record, "total": total(record)})


def _get_product(database: Database, product: str) -> str:
    return json.dumps(_get(database["products"], product, "product"))


def _list_products(database: Database) -> str:
    return json.dumps({key: product["name"] for key, product in database["products"].items()})


def _waiting(database: Database, order: str) -> dict[str, Any]:
    record = _get(database["orders"], order, "order")
    if record["status"] != "waiting":
        raise OperationRefused(f"the order is {record['status']}, not waiting")
    return record


def _cancel(database: Database, order: str, reason: str) -> str:
    record = _waiting(database, order)
    record["status"] = "cancelled"
    record["reason"] = reason
    record["refunds"].append({"payment": record["payment"], "amount": total(record)})
    return f"cancelled; {total(record)} go back to {record['payment']}"


def _change_order_address(database: Database, order: str, street: str, city: str, postcode: str) -> str:
    _waiting(database, order)["address"] = {"street": street, "city": city, "postcode": postcode}
    return "the order goes to the new address"


def _change_order_payment(database: Database, order: str, payment: str) -> str:
    record = _waiting(database, order)
    about = _get(database["customers"][record["customer"]]["payments"], payment, "payment of this account")
    if about.get("balance", total(record)) < total(record):
        raise OperationRefused("the gift card does not hold enough")
    record["payment"] = payment
    return f"the order is paid with {payment}"


def _replace(database: Database, order: dict[str, Any], variant: str, new_variant: str) -> int:
    """Put another variant of the same product into an order; return the difference in price."""
    item = next((item for item in order["items"] if item["variant"] == variant), None)
    if item is None:
        raise OperationRefused(f"the order holds no item {variant[:40]!r}")
    variants = database["products"][item["product"]]["variants"]
    about = _get(variants, new_variant, f"variant of the {item['name']}")
    if not about["in_stock"] or new_variant == variant:
        raise OperationRefused(
            "that variant is not in stock" if not about["in_stock"] else "that is the same variant"
        )
    before = int(item["price"])
    item.update({key: value for key, value in about.items() if key != "in_stock"}, variant=new_variant)
    return int(about["price"]) - before


def _change_item(database: Database, order: str, variant: str, new_variant: str) -> str:
    difference = _replace(database, _waiting(database, order), variant, new_variant)
    return f"changed; the difference in price is {difference:+}"


def _returnable(database: Database, order: str) -> dict[str, Any]:
    record = _get(database["orders"], order, "order")
    if record["status"] != "delivered":
        raise OperationRefused(f"the order is {record['status']}, not delivered")
    if record["delivered_days_ago"] > RETURN_DAYS:
        raise OperationRefused(
            f"the order came {record['delivered_days_ago']} days ago, more than {RETURN_DAYS}"
        )
    return record


def _return_items(database: Database, order: str, variants: list[str], payment: str) -> str:
    record = _returnable(database, order)
    payments = database["customers"][record["customer"]]["payments"]
    if payment != record["payment"] and payments.get(payment, {}).get("kind") != "gift card":
        raise OperationRefused("a refund goes to the payment of the order or to a gift card of the account")
    items = [item for item in record["items"] if item["variant"] in variants and not item.get("returned")]
    if not variants or len(items) != len(set(variants)):
        raise OperationRefused("the order holds no such items, or they are returned already")
    for item in items:
        item["returned"] = True
    amount = sum(item["price"] for item in items)
    record["refunds"].append({"payment": payment, "amount": amount})
    if payments[payment]["kind"] == "gift card":
        payments[payment]["balance"] += amount
    return f"returned; {amount} go to {payment}"


def _exchange_item(database: Database, order: str, variant: str, new_variant: str) -> str:
    difference = _replace(database, _returnable(database, order), variant, new_variant)
    return f"exchanged; the difference in price is {difference:+}"


def _change_profile(database: Database, customer: str, **changes: Any) -> str:
    record = _get(database["customers"], customer, "customer")
    if not changes:
        raise OperationRefused("nothing to change was given")
    place = {key: changes.pop(key) for key in ("street", "city", "postcode") if key in changes}
    record.update(changes)
    record["address"].update(place)
    return "changed"


def _hand_over(database: Database, summary: str) -> str:
    database["handed_over"] = True
    return "a person takes over from here"


_TEXT = {"type": "string"}
_TEXTS = {"type": "array", "items": _TEXT}
_EMAIL = {"type": "string", "examples": ["jane.doe@post.example"]}


def _operation(name: str, description: str, act: Any, optional: Any = None, **properties: Any) -> Operation:
    every = {**properties, **(optional or {})}
    parameters: dict[str, Any] = {"type": "object", "properties": every, "required": list(properties)}
    if not every:
        parameters["additionalProperties"] = False
    return Operation(name, description, parameters, act, ends=name == "hand_over")


_SUMMARY = {"type": "string", "examples": ["The customer has a question about a gift card."]}
_PLACE = {"street": _TEXT, "city": _TEXT, "postcode": _TEXT}
_SWAP = {"order": _TEXT, "variant": _TEXT, "new_variant": _TEXT}
_REASON = {"type": "string", "enum": ["changed mind", "ordered by mistake"]}

OPERATIONS = (
    _operation("find_customer_by_email", "Number of a customer.", _find_by_email, email=_EMAIL),
    _operation("find_customer_by_name", "Number of a customer.", _find_by_name,
               first_name=_TEXT, last_name=_TEXT, postcode=_TEXT),
    _operation("get_customer", "Account of a customer, with payments and orders.", _get_customer,
               customer=_TEXT),
    _operation("get_order", "An order with its items, status and total.", _get_order, order=_TEXT),
    _operation("get_product", "A product with its variants, prices and stock.", _get_product, product=_TEXT),
    _operation("list_products", "Numbers and names of all products.", _list_products),
    _operation("cancel_order", "Cancel a waiting order.", _cancel, order=_TEXT, reason=_REASON),
    _operation("change_order_address", "Send a waiting order elsewhere.", _change_order_address,
               order=_TEXT, **_PLACE),
    _operation("change_order_payment", "Change the payment of a waiting order.",
               _change_order_payment, order=_TEXT, payment=_TEXT),
    _operation("change_item", "Change an item of a waiting order to another variant.", _change_item, **_SWAP),
    _operation("return_items", "Take delivered items back.", _return_items,
               order=_TEXT, variants=_TEXTS, payment=_TEXT),
    _operation("exchange_item", "Exchange a delivered item for another variant.", _exchange_item, **_SWAP),
    _operation("change_profile", "Change the details of an account.", _change_profile,
               {"email": _TEXT, "phone": _TEXT, "newsletter": {"type": "boolean"}, **_PLACE}, customer=_TEXT),
    _operation("hand_over", "Hand the conversation over to a person.", _hand_over, summary=_SUMMARY),
)  # fmt: skip


def said_in_words(messages: str, outputs: Sequence[str]) -> bool:
    """Return whether each output occurs in the messages as a separate word or number.

    1,077 and 1077.00 are 1077; 17, 7.50, 7-day, and TR7 do not contain a 7. Numbers do not count if the
    messages contain more than `MOST_NUMBERS` different ones.
    """
    messages = _NOTHING_BEHIND.sub("", _THOUSANDS.sub("", messages.lower()))
    listed = len(set(re.findall(r"\d+(?:\.\d+)?", messages))) > MOST_NUMBERS
    return all(
        not (listed and output.isdecimal())
        and re.search(rf"(?<!\w)(?<!\d[.,])(?<!\w-){re.escape(output.lower())}(?!\w|-\w|[.,]\d)", messages)
        for output in outputs
    )


def looked_up(task: ServiceTask, calls: Sequence[Sequence[Any]]) -> bool:
    """Return whether a tool call identified the customer.

    If the task requires no output, the account or one of its orders must also have been looked up.
    """
    database = shop_database()
    customer = task.actions[1][1]["customer"]
    orders = database["customers"][customer]["orders"]
    finds = {operation.name: operation for operation in OPERATIONS[:2]}
    identified = any(
        name in finds and finds[name].apply(database, about).text == customer for name, about in calls
    )
    looked = any(
        (name == "get_customer" and about["customer"] == customer)
        or (name == "get_order" and about["order"] in orders)
        for name, about in calls
    )
    return identified and (looked or bool(task.outputs))

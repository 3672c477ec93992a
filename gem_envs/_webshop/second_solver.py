"""Second solver of purchases: reads the instruction and the pages of a product, as a customer does."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

_INSTRUCTION = re.compile(
    r"(?:Find|I need|I would like to buy|Please get me|I am looking for) (?P<wish>[^:]+?)"
    r", with (?P<options>.+?)(?:, for less than (?P<limit>[\d.]+) dollars)?\."
)
_FEATURES = (
    r"(.+): made for use every day\.", r"You asked for (.+), and here it is\.",
    r"(.+), tested in our own house\.", r"Unlike others of its kind, it is (.+)\.",
    r"(.+) from the first day on\.",
)  # fmt: skip


def fits(
    instruction: str, title: str, price: str, features: Sequence[str], chosen: Mapping[str, str]
) -> bool:
    """Return whether a product with some chosen options is what an instruction asks for.

    Args:
        instruction: The instruction, as shown on every page.
        title: Title of the product.
        price: Price as shown, such as "$12.50".
        features: Paragraphs of the page of features.
        chosen: The chosen value of each option.

    Raises:
        ValueError: The instruction or a feature has an unknown form.
    """
    asked = _INSTRUCTION.fullmatch(instruction)
    if asked is None:
        raise ValueError(f"not an instruction: {instruction!r}")
    *attributes, last = asked["wish"].split(", ")
    named = [last[: -len(kind) - 1] for kind in _endings(title.lower()) if last.endswith(f" {kind}")]
    own = {_attribute(feature) for feature in features}
    options = dict(option.split(": ", 1) for option in asked["options"].split(", and "))
    cheap = asked["limit"] is None or float(price.removeprefix("$")) < float(asked["limit"])
    right = own.issuperset(attributes) and not own.isdisjoint(named)
    return cheap and right and options.items() <= chosen.items()


def _endings(title: str) -> list[str]:
    """Return the last words of a title, which name what it is, in all lengths."""
    words = title.split(" ")
    return [" ".join(words[start:]) for start in range(len(words))]


def _attribute(feature: str) -> str:
    for form in _FEATURES:
        if found := re.fullmatch(form, feature):
            return found[1].lower()
    raise ValueError(f"not a feature: {feature!r}")

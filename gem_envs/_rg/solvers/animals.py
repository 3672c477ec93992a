"""A solver that counts the legs of animals."""

from __future__ import annotations

import re

from gem_envs._rg.solvers.reading import UnknownPrompt, find

_LEGS = {
    0: ("snake", "sea slug", "jellyfish", "flatworm", "leech"),
    2: ("chicken", "bird", "human", "duck"),
    4: ("dog", "cat", "cow", "horse", "lion", "elephant", "giraffe", "tiger", "deer", "sheep"),
    6: (
        *("insect", "ant", "butterfly", "beetle", "bee", "wasp", "grasshopper", "cricket", "cockroach"),
        *("praying mantis", "firefly"),
    ),
    8: ("spider", "scorpion"),
    10: ("crab", "lobster", "shrimp"),
    14: ("woodlouse",),
}


def solve_leg_counting(prompt: str) -> str | None:
    """Add the legs; None if there is a starfish, and the prompt does not say whether its arms are legs."""
    legs = {animal: number for number, animals in _LEGS.items() for animal in animals}
    if "arms of a starfish" in prompt:
        legs["starfish"] = 5
    total = 0
    for number, animal in re.findall(r"(\d+) ([a-z ]+)", find(r"if you have (.*?)\?", prompt)[1]):
        singular = animal if animal in legs or animal == "starfish" else _singular(animal, set(legs))
        if singular not in legs:
            return None
        total += int(number) * legs[singular]
    return str(total)


def _singular(plural: str, known: set[str]) -> str:
    """Return the animal whose plural this is; the prompts add an s to any name."""
    for ending, replaced in (("s", ""), ("ies", "y"), ("es", "")):
        if plural.endswith(ending) and plural.removesuffix(ending) + replaced in known | {"starfish"}:
            return plural.removesuffix(ending) + replaced
    raise UnknownPrompt(f"not a known animal: {plural!r}")

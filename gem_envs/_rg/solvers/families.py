"""A solver for questions about the members of a family."""

from __future__ import annotations

import re
from itertools import chain

from gem_envs._rg.solvers.reading import find

_WOMEN = frozenset(
    [
        "Mary",
        "Patricia",
        "Jennifer",
        "Linda",
        "Elizabeth",
        "Barbara",
        "Susan",
        "Jessica",
        "Sarah",
        "Karen",
        "Emma",
        "Lisa",
        "Anna",
        "Margaret",
        "Victoria",
        "Charlotte",
        "Sophia",
        "Isabella",
        "Olivia",
        "Ava",
        "Mia",
        "Emily",
        "Abigail",
        "Amelia",
        "Eleanor",
        "Grace",
        "Alice",
        "Lucy",
        "Chloe",
        "Sophie",
        "Lily",
        "Hannah",
        "Zoe",
        "Luna",
        "Nova",
        "Aria",
        "Willow",
        "Aurora",
    ]
)
_MEN = frozenset(
    [
        "James",
        "John",
        "Robert",
        "Michael",
        "William",
        "David",
        "Richard",
        "Joseph",
        "Thomas",
        "Charles",
        "Peter",
        "Daniel",
        "Matthew",
        "Christopher",
        "Andrew",
        "George",
        "Edward",
        "Benjamin",
        "Henry",
        "Samuel",
        "Alexander",
        "Oliver",
        "Jack",
        "Harry",
        "Jacob",
        "Noah",
        "Ethan",
        "Lucas",
        "Mason",
        "Logan",
        "Sebastian",
        "Theodore",
        "Owen",
        "Liam",
        "Aiden",
        "Jayden",
        "Zion",
        "Atlas",
        "Axel",
        "Ryder",
        "Finn",
    ]
)
"""Names of men; women and men bear the other names, such as River and Kai."""


def solve_family_relationships(prompt: str) -> str | None:
    """Return what the first person is to the second; None if the sex of the first person is not known.

    A spouse of somebody with a woman's name is a man, and the other way around.
    """
    story, _, question = prompt.partition("\n\n")
    spouse: dict[str, str] = {}
    parents: dict[str, set[str]] = {}
    couple: tuple[str, ...] = ()
    for sentence in re.findall(r"[^.]+\.", story):
        if married := re.match(r"\s*(\w+) is married to (\w+)\.", sentence):
            couple = married.groups()
            spouse |= {couple[0]: couple[1], couple[1]: couple[0]}
        else:
            names = find(r"They have (?:a child|children) called (.*)\.", sentence)[1]
            parents |= {name: set(couple) for name in re.findall(r"[A-Z]\w*", names)}
    one, other = find(r"(?:What is|How is|What relation is) (\w+) (?:related )?to (\w+)\?", question).groups()

    def above(name: str, generations: int) -> set[str]:
        people = {name}
        for _ in range(generations):
            people = set(chain.from_iterable(parents.get(person, ()) for person in people))
        return people

    def siblings(name: str) -> set[str]:
        return {other for other in parents if above(other, 1) == above(name, 1)} - {name}

    def with_spouses(people: set[str]) -> set[str]:
        return people | {spouse[person] for person in people if person in spouse}

    words = next(
        (
            pair
            for pair, holds in (
                (("wife", "husband"), spouse.get(one) == other),
                (("mother", "father"), one in above(other, 1)),
                (("daughter", "son"), other in above(one, 1)),
                (("sister", "brother"), one in siblings(other)),
                (("grandmother", "grandfather"), one in above(other, 2)),
                (("granddaughter", "grandson"), other in above(one, 2)),
                (
                    ("aunt", "uncle"),
                    any(one in with_spouses(siblings(parent)) for parent in above(other, 1)),
                ),
                (
                    ("niece", "nephew"),
                    any(other in with_spouses(siblings(parent)) for parent in above(one, 1)),
                ),
                (("mother-in-law", "father-in-law"), one in above(spouse.get(other, ""), 1)),
                (("daughter-in-law", "son-in-law"), other in above(spouse.get(one, ""), 1)),
            )
            if holds
        ),
        None,
    )
    if words is None:
        return None
    partner = spouse.get(one)
    female, male = one in _WOMEN or partner in _MEN, one in _MEN or partner in _WOMEN
    return None if female == male else words[0] if female else words[1]

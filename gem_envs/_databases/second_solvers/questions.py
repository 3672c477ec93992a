"""Answers to the questions about a database, which stays as it is."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable
from fractions import Fraction
from itertools import pairwise

from gem_envs._databases.second_solvers.tables import AmbiguousTask, Tables, by_id, only_one


def _bestseller(tables: Tables) -> str:
    products, earned = by_id(tables["products"]), Counter[int]()
    for item in tables["items"]:
        earned[item["product_id"]] += item["pieces"] * products[item["product_id"]]["price"]
    return str(products[only_one(earned, earned.__getitem__)]["name"])


def _eager_reader(tables: Tables) -> str:
    books = defaultdict(set)
    for loan in tables["loans"]:
        books[loan["member_id"]].add(loan["book_id"])
    return str(by_id(tables["members"])[only_one(books, lambda member: len(books[member]))]["name"])


def _clashes(tables: Tables) -> str:
    times = Counter((visit["doctor_id"], visit["day"], visit["hour"]) for visit in tables["visits"])
    return str(sum(count > 1 for count in times.values()))


def _secret_trips(tables: Tables) -> str:
    found = []
    for truck in tables["trucks"]:
        trips = sorted(
            (trip["start_km"], trip["end_km"]) for trip in tables["trips"] if trip["truck_id"] == truck["id"]
        )
        gaps = [start - end for (_, end), (start, _) in pairwise(trips) if start != end]
        found += [f"{truck['plate']} {gap}" for gap in gaps]
    if len(found) != 1 or "-" in found[0].rpartition(" ")[2]:
        raise AmbiguousTask(f"{len(found)} gaps")
    return found[0]


def _hardest_course(tables: Tables) -> str:
    best: dict[int, dict[int, int]] = defaultdict(dict)
    for grade in tables["grades"]:
        course = best[grade["course_id"]]
        course[grade["student_id"]] = max(grade["points"], course.get(grade["student_id"], grade["points"]))
    hardest = only_one(best, lambda one: -Fraction(sum(best[one].values()), len(best[one])))
    return str(by_id(tables["courses"])[hardest]["name"])


QUESTIONS: dict[str, Callable[..., str]] = {
    r"^Which product has brought in the most money, pieces times price over all orders in whatever state\?": (
        _bestseller
    ),
    r"^Which member has borrowed the greatest number of different books": _eager_reader,
    r"At how many times does this happen, a time being a doctor, a day and an hour\?": _clashes,
    r"One truck was driven without a trip being entered\. Which, and how far\?": _secret_trips,
    r"In which course is the mean of these the lowest\?": _hardest_course,
}
"""Solvers by an expression for the instruction."""

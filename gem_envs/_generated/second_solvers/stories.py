"""Second solver of word problems: plays the story of the text, step by step."""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import cache
from typing import TypeAlias

_Play: TypeAlias = Callable[..., int]
"""Takes the numbers of the text in their order, and returns the answer."""


class _Impossible(Exception):
    """The story cannot have happened."""


def _take(have: int, taken: int) -> int:
    if taken > have:
        raise _Impossible(f"{taken} of {have}")
    return have - taken


def _share(things: int, groups: int) -> int:
    each, rest = divmod(things, groups)
    if rest:
        raise _Impossible(f"{things} among {groups}")
    return each


def _groups(count: int, size: int) -> int:
    return sum(size for _ in range(count))


# P and Q stand for names, T for a kind of thing, and # for a number.
_STORIES: dict[str, _Play] = {
    "P has # T and finds # more. How many T does P have now?": lambda has, finds: has + finds,
    "P had # T and gave # of them to Q. How many T are left?": _take,
    "A box holds # T. How many T are in # boxes?": lambda each, boxes: _groups(boxes, each),
    "P collects # T every day. How many does P collect in # days?": lambda each, days: _groups(days, each),
    "P has # T, and Q has # fewer. How many do they have together?": lambda p, less: p + _take(p, less),
    "P has # T, and Q has # times as many. How many does Q have?": lambda p, times: _groups(times, p),
    "P has # T, and Q has # times as many. How many do they have in all?": lambda p, n: p + _groups(n, p),
    "There are # T on a table. P takes # of them and adds # new ones. How many are there now?": (
        lambda present, takes, adds: _take(present, takes) + adds
    ),
    "P buys # bags with # T in each and one more bag with #. How many T does P buy?": (
        lambda bags, each, last: sum([*[each] * bags, last])
    ),
    "# friends share # T equally. How many does each of them get?": lambda all, things: _share(things, all),
    "P is # years old. Q is # years older. How old is Q?": lambda p, older: p + older,
    "P was # years old. # years passed, and then another # years. How old is P now?": (
        lambda age, first, then: age + first + then
    ),
    "A train travels # km in one hour. How many km does it travel in # hours at this speed?": (
        lambda km, hours: _groups(hours, km)
    ),
    "P walks # steps straight ahead, rests, walks # more and then goes # steps back. How many steps is P "
    "away from the start?": lambda first, more, back: _take(first + more, back),
    "A ticket costs # coins. P pays for # tickets and still has # coins. How many coins did P have before?": (
        lambda price, tickets, left: left + _groups(tickets, price)
    ),
    "A shelf has # rows of # T. P adds # more T. How many T are on the shelf?": (
        lambda rows, each, more: _groups(rows, each) + more
    ),
    "In the morning P sells # T, in the afternoon #, and in the evening #. How many does P sell on that "
    "day?": lambda *parts: sum(parts),
    "P needs # T and has #. How many more does P need?": _take,
    "P reads # pages a day. How many days does a book of # pages last?": lambda day, all: _share(all, day),
    "A garden has # beds with # plants each. # plants are sold. How many plants are left?": (
        lambda beds, each, sold: _take(_groups(beds, each), sold)
    ),
    "P saves # coins a week for # weeks and then spends # of them. How many coins are left?": (
        lambda week, weeks, spent: _take(_groups(weeks, week), spent)
    ),
    "Q has # T. P has twice as many and gives # away. How many does P keep?": lambda q, n: _take(q + q, n),
    "A team scores # points, then # points in each of # rounds. What is the total?": (
        lambda first, each, rounds: first + _groups(rounds, each)
    ),
    "A rectangle is # cm long and # cm wide. What is its area in square cm?": (
        lambda long, wide: _groups(wide, long)
    ),
    "A rectangle is # cm long and # cm wide. What is its perimeter in cm?": (
        lambda long, wide: long + wide + long + wide
    ),
    "P packs # T into boxes of #. How many boxes are full?": lambda things, size: things // size,
    "A bus with # passengers stops. # get off and # get on. How many passengers are there now?": (
        lambda inside, off, on: _take(inside, off) + on
    ),
    "P and Q together have # T. Q has # of them. How many belong to P?": _take,
    "Each of # children brings # T; # T were there before. How many are there now?": (
        lambda children, each, before: before + _groups(children, each)
    ),
    "The sum of two numbers is #. One of them is #. What is the other?": _take,
    "P bakes # trays of # rolls. Q bakes # rolls. What is the difference between their numbers of rolls?": (
        lambda trays, each, other: max(_groups(trays, each), other) - min(_groups(trays, each), other)
    ),
    "A clock gains # minutes a day. How many minutes does it gain in # days?": (
        lambda minutes, days: _groups(days, minutes)
    ),
}


def story_answer(problem: str) -> int | None:
    """Return the answer of a word problem; None if its story is impossible or can be read in two ways.

    Raises:
        ValueError: The text is no known story.
    """
    forms = [(found, play) for text, play in _STORIES.items() if (found := _form(text).fullmatch(problem))]
    if not forms:
        raise ValueError(f"not a known story: {problem!r}")
    answers = set()
    for found, play in forms:
        if "q" in found.groupdict() and found["q"] == found["p"]:
            return None
        try:
            answers.add(play(*(int(text) for text in re.findall(r"\d+", found[0]))))
        except _Impossible:
            return None
    return answers.pop() if len(answers) == 1 else None


@cache
def _form(text: str) -> re.Pattern[str]:
    """Return the expression for a story: a name or a kind of thing is the same at each place."""
    seen: set[str] = set()

    def expression(place: re.Match[str]) -> str:
        name = place[0]
        if name in seen:
            return f"(?P={name.lower()})"
        seen.add(name)
        return f"(?P<{name.lower()}>{'[a-z]+' if name == 'T' else '[A-Z][a-z]+'})"

    return re.compile(re.sub(r"\b[PQT]\b", expression, re.escape(text)).replace(r"\#", r"\d+"))

"""A solver of word problems: a formula for each story, with the numbers of the text in their order."""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from fractions import Fraction
from typing import TypeAlias

from gem_envs._rg.solvers.reading import UnknownPrompt

Formula: TypeAlias = Callable[..., Fraction]

_NUMBER = re.compile(r"\d{1,3}(?:,\d{3})+|\d+(?:\.\d+)?(?:/\d+)?")
_AMOUNTS: dict[str, Formula] = {
    "How many hours does he spend writing": lambda a, b, n, pages, m: (a - b) * n * pages * m / 60,
    "waterslide": lambda a, speed, b, faster: a / speed - b / faster,
    "on athletic gear": lambda a, more, b, off, c: 2 * a + more + b / 2 + c - off,
    "daily calorie target": lambda c, size, n, most, eaten: (most - eaten) / c * size / n,
    "collects garbage": lambda _, n, each, p, _n, times, pay: n * each * (2 + p / 100) * times * pay,
    "normal brand": lambda price, p, per_day, extra: price * (100 + p) / 100 * 7 * per_day + extra,
    "all the puppies": lambda n, a, m, b: (a + b) / (n + m) * 100,
    "of her spools": lambda a, b, c, d: (a + b) / (a + b + c + d) * 100,
    "How much more is the total price": lambda most, price, p, q: price * (100 + p + q) / 100 - most,
    "herself or hire": lambda hours, rate, fee: hours * rate - fee,
    "has decided to cover": lambda part, own, total: total * (1 - part) - own,
    "net proceeds": lambda price, p, q, loan: price * (100 - p - q) / 100 - loan,
    "balls are sold": lambda a, b, c, p, q, r: a * p + b * q + c * r,
    "in the remaining": lambda n, p, m, q, spilled, _: (n - spilled) * p + m * q,
    "rim of bond paper": lambda n, p, m, q, r: n * p + m * q + r,
    "loaves": lambda p, q, n, m: n * p - m * q,
    "dozen, which cost|dozen .* which cost": lambda n, p, m, q, k, r: n * p + m * q + k * r,
    "for a fundraiser": lambda n, less, more, m, p, q: (2 * n + more) * p + (2 * m - less) * q,
    "average of their ages": lambda difference, age: age + difference / 2,
    "is left over for": lambda total, more: (total - more) / 2,
    "perimeter of the room in": lambda area, side: 2 * (side + area / side),
    "shares of a stock": lambda n, price, p, q: n * price * (100 + p) * (100 - q) / 10000,
    "from a bin at": lambda own, n, price: own - n * price,
    "every month and for": lambda weeks, days, pay: 12 * weeks * days * pay,
    "packs of": lambda n, bill, a, p, b, q: n * bill - a * p - b * q,
    "favorite walking trail": lambda _, a, b, time, _a: time + b * time / (2 * a),
    "fog bank": lambda time, miles, all_miles: all_miles / miles * time,
    "When the water is cold": lambda time, more, n, miles: (n * time + more - time) * miles,
    "his livestock": lambda a, less, n, m: n * a + m * (2 * a - less),
}
"""Formulas of answers that may be fractions, by a part of the text."""
_COUNTS: dict[str, Formula] = {
    "can peel": lambda per_minute, batch, m, n: n / per_minute + math.ceil(n / batch) * m,
    "tube of bouncy balls": lambda a, b, c, total: total - a - b - c,
    "These 3 groups": lambda n, p, q, _: n * p / 100 + n * (100 - p) / 100 * q / 100,
    "Each jar of": lambda jars, per_jar, holds: jars * per_jar / holds,
    "love collecting signatures": lambda _, a, b, _weeks, goal: goal - a - b,
    "times the number of boys": lambda girls, times: girls + times * girls,
    "avid gardener": lambda new, each, n, given: new + (each - given) * n,
    "in the ratio of": lambda a, b, n: n * a / (a + b),
    "times as old as": lambda age, years, times: times * age - years,
    "What is the combined total": lambda times, n, more, less, _: n + times * n + 2 * more - less,
    "playing these games": lambda a, b, n, m: a * n + b * m,
    "wants to exercise for": lambda times, a, b: times * (a + b),
    "times as many friends on": lambda times, other, n: n / times * other,
    "unoccupied": lambda n, part, daily, weeks: n * (1 - part) - daily * 7 * weeks,
    "points in one game": lambda n, more, p: n + n * p / 100 + more,
    "popping popcorn": lambda n, _, a, _a, b, *_b: n + a * n + b * n + b * n / 2 + b * n / 8,
    "be able to place": lambda holds, n, places: n - holds * places,
    "flower bed": lambda feet, each, own, price: (feet // each - own) * price,
    "orbits the sun": lambda period, age, times: times * age - period,
    "A juggler": lambda n, p, q: n * p * q / 10000,
    "various hobbies": lambda n, a, b: n - a - 3 * b,
    "did they all eat": lambda _, a, more, further: 3 * a + 2 * more + further,
    "operates the cash register": lambda times, n: 7 * (n + times * n),
    "twins each found": lambda n, each, lost: n - 2 * each - lost,
    "-item quiz": lambda n, p, q: n * p * q / 10000 + n * (100 - p) / 200,
    "winter wear": lambda n, *skeins: n * sum(skeins),
    "-graders at": lambda n, girls, _, absent: n - girls - absent,
    "cards of all mentioned colors": lambda n, p: 2 * (n + n * (100 + p) / 100),
    "do they have together": lambda n, fewer: 2 * n - fewer,
    "out of plastic": lambda given, used, left: left + used - given,
    "vending machines": lambda a, b, dollars, n, p: (dollars * (100 - p) - n * a) / b,
    "piece puzzle": lambda n, m: n / 2 + m,
    "budgeted for her": lambda n, tokens, rides, golf, ride: n // (tokens + rides * ride + golf) - 1,
    r"alphabet|abjad|hiragana": lambda *n: 2 * (n[0] if len(n) > 2 else 26) * (n[-2] + n[-1]),
    "without being late": lambda n, a, b: n - a - b,
    "total number of insects": lambda n: n + n / 2,
    "family is busy making": lambda n, a, b: n - a - b,
    "only participates in one group": lambda a, b, c: 3 * a + b + c,
    r"calories per \w+ how many": lambda size, n, each: size * n * each,
    "how many days will the": lambda n, a, times: n / (a + times * a),
    "how many dozens of eggs": lambda n, days, m, more, _: (n * days + m * more) / 12,
    "watches TV after": lambda a, m, b, k, c, n, _: (60 * (n - 2 * a - b - 2 * c) - k) / m,
    "picks .* the number of": lambda n, m, times: n + m + times * n,
    "each infected person": lambda n, others, days: n * (1 + others) ** int(days),
    "-page .* finished writing": lambda n, part: n * (1 - part),
    "has a bag of": lambda n, lost, found, false: n - lost + found - false,
    "unknown number of": lambda n, times, total: total - n - times * n,
    "half as many tubes": lambda n, m: n / 2 + 3 * m,
    "don't require any response": lambda n, p, days: n * (100 - p) / 100 * days,
    "holding graduation": lambda n, own, faculty: (n - own - faculty) / own,
    "Easter egg hunt": lambda n, a, b, c, part: 12 * n - a - a * b - (a * b - c) * (1 + part),
    "harvest within a year": lambda n, each, months: n * each * (12 // months),
    "round all his prices": lambda p, q, r, a, b, c: a * _whole(p) + b * _whole(q) + c * _whole(r),
    "slain": lambda n, part, times, other: n * part * times * other,
    "this family eat in one week": lambda a, b, c: 7 * (a + b + c),
}
"""Formulas of answers that count things, and so are whole."""
_AMBIGUOUS = r"How much more likely is it|this family eat in one month"
"""Whether a percentage is a difference or a ratio of odds, and how many days a month has."""


def solve_gsm_symbolic(prompt: str) -> str | None:
    """Put the numbers into the formula of the story.

    None if the text has two readings, the result is negative or not a number of hundredths, or a count is not
    whole.
    """
    story = prompt.partition(" Give the result")[0]
    if re.search(_AMBIGUOUS, story):
        return None
    found = [formula for formulas in (_AMOUNTS, _COUNTS) for formula in formulas if re.search(formula, story)]
    if len(found) != 1:
        raise UnknownPrompt(f"not one known story, but {found}: {prompt[:200]!r}")
    numbers = [_number(text) for text in _NUMBER.findall(story)]
    if match := re.search(r"square feet.* (\d+) yards", story):
        numbers[1] = 3 * Fraction(match[1])
    value = Fraction((_AMOUNTS | _COUNTS)[found[0]](*numbers))
    if value < 0 or value * (1 if found[0] in _COUNTS else 100) % 1:
        return None
    return str(value) if value.denominator == 1 else f"{float(value):.2f}"


def _number(text: str) -> Fraction:
    """Read a number; a third written with many digits is a third."""
    value = Fraction(text.replace(",", ""))
    return value if value.denominator <= 1000 else value.limit_denominator(1000)


def _whole(price: Fraction) -> int:
    return math.floor(price + Fraction(1, 2))

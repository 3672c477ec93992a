"""Solver of questions about days of the week and leap years."""

from __future__ import annotations

import re
from datetime import date, timedelta

from gem_envs._rg.solvers.reading import UnknownPrompt, find

_DAYS = ["Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday", "Sunday"]
_MONTHS = ["January", "February", "March", "April", "May", "June", "July", "August", "September",
           "October", "November", "December"]  # fmt: skip
_DAY, _MONTH = f"(?:{'|'.join(_DAYS)})", f"(?:{'|'.join(_MONTHS)})"
_DATE = re.compile(rf"(?:({_DAY}), )?({_MONTH}) (\d+)(?:, (\d+))?")
_ORDINALS = ["first", "second", "third", "fourth"]
_FORWARD = r"in (\d+) days\?|after a (\d+)-day jump|Count forward (\d+) days"
_BACKWARD = r"was it (\d+) days (?:ago|before)|Count backward (\d+) days"


def solve_calendar_arithmetic(prompt: str) -> str | None:
    """Count days.

    None if a date has a different weekday than the prompt says, a period ends before it begins, or the answer
    depends on the order of day and month, or on whether a year that is not named is a leap year. A note
    settles the last two.
    """
    prompt, _, note = prompt.partition("\nDates are written month/day/year.")
    if match := re.search(r"(\d+)(?: is)? a leap year", prompt.replace("the year ", "")):
        year = int(match[1])
        return "Yes" if year % 4 == 0 and (year % 100 != 0 or year % 400 == 0) else "No"
    if match := re.search(rf"\b(first|second|third|fourth|last) ({_DAY})\b", prompt):
        when = find(rf"({_MONTH}) (\d+)", prompt)
        return _recurring(match[1], match[2], _MONTHS.index(when[1]) + 1, int(when[2]))
    if match := re.search(r"first day of the year|January 1 fell on|is January 1st", prompt):
        return _in_a_year(prompt, leap_too=not note)
    if match := re.search(r"(\d\d)/(\d\d)/(\d+)", prompt):
        a, b, year = map(int, match.groups())
        days = {_weekday(date(year, m, d)) for m, d in ((a, b), (b, a)) if m <= 12 and (m == a or not note)}
        return days.pop() if len(days) == 1 else None
    dates = _dates(prompt)
    if dates is None:
        return None
    if match := re.search(_FORWARD, prompt):
        return _weekday(dates[0] + timedelta(days=int(match[match.lastindex or 1])))
    if match := re.search(_BACKWARD, prompt):
        return _weekday(dates[0] - timedelta(days=int(match[match.lastindex or 1])))
    if len(dates) == 1:
        return _weekday(dates[0])
    if "business days" in prompt or "excluding weekends" in prompt:
        counted = _DAYS[:5]
    else:
        counted = [find(rf"How many ({_DAY})s|occurrences of ({_DAY})|does ({_DAY}) occur", prompt)[0]]
        counted = re.findall(_DAY, counted[0])
    period = range((dates[1] - dates[0]).days + 1)
    return str(sum(_weekday(dates[0] + timedelta(days=n)) in counted for n in period)) if period else None


def _weekday(day: date) -> str:
    return _DAYS[day.weekday()]


def _dates(prompt: str) -> list[date] | None:
    """Return the dates in words; one without a year is in the year of the next one.

    None if a date has a different weekday.
    """
    found: list[date] = []
    year = ""
    for name, month, day, own_year in reversed(_DATE.findall(prompt)):
        year = own_year or year
        try:
            found.insert(0, date(int(year), _MONTHS.index(month) + 1, int(day)))
        except ValueError:  # February 29 of another year
            return None
        if name and name != _weekday(found[0]):
            return None
    if not found:
        raise UnknownPrompt(f"no date in {prompt[:200]!r}")
    return found


def _recurring(ordinal: str, weekday: str, month: int, year: int) -> str:
    days, day = [], date(year, month, 1)
    while day.month == month:
        if _weekday(day) == weekday:
            days.append(day.day)
        day += timedelta(days=1)
    return str(days[-1] if ordinal == "last" else days[_ORDINALS.index(ordinal)])


def _in_a_year(prompt: str, *, leap_too: bool) -> str | None:
    """Return the weekday of a date in a year whose first weekday is given."""
    first = find(_DAY, prompt)[0]
    month, day = [(m, int(d)) for m, d in re.findall(rf"({_MONTH}) (\d+)\b(?!st)", prompt)][-1]
    results = set()
    for year in (2001, 2004) if leap_too else (2001,):
        try:
            passed = date(year, _MONTHS.index(month) + 1, day) - date(year, 1, 1)
        except ValueError:  # February 29
            return None
        results.add(_DAYS[(_DAYS.index(first) + passed.days) % 7])
    return results.pop() if len(results) == 1 else None

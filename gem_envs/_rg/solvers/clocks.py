"""Solver of differences of times and dates."""

from __future__ import annotations

import re
from datetime import datetime, timedelta, timezone

_ASKED = re.compile(
    r"(?:between|from|started at|departed at|began at) (.*?) "
    r"(?:and ended at|and completed at|and arrived at|and|to) (.*?)[.?] "
    r".*\b(?:in|as) (\S.*)\.$"
)
_NAMES = ["jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec"]
_MONTHS = {name: number for number, name in enumerate(_NAMES, 1)}


def solve_time_intervals(prompt: str) -> str | None:
    """Subtract; None if the end is before the start or the format cannot show the difference."""
    match = _ASKED.search(prompt.strip())
    if match is None:
        raise ValueError(f"not a question about two times: {prompt!r}")
    start, end = _moment(match[1]), _moment(match[2])
    elapsed = end - start
    if elapsed < timedelta(0):
        return None
    milliseconds = round(elapsed / timedelta(milliseconds=1))
    seconds, milliseconds = divmod(milliseconds, 1000)
    minutes, second = divmod(seconds, 60)
    hours, minute = divmod(minutes, 60)
    days, hour = divmod(hours, 24)
    form = match[3]
    if form == "D days":
        return f"{days} days"
    if (milliseconds and not form.endswith("mmm")) or (second and "SS" not in form):
        return None
    head = f"{days} days, {hour:02d}" if form.startswith("D days") else f"{hours:02d}"
    text = f"{head}:{minute:02d}"
    if "SS" in form:
        text += f":{second:02d}"
    return f"{text}.{milliseconds:03d}" if form.endswith("mmm") else text


def _moment(text: str) -> datetime:
    """Read a time, a date, or both, with or without an offset from UTC."""
    zone = re.search(r" ([+-])(\d\d)(\d\d)$", text)
    clock = re.search(r"(\d\d):(\d\d)(?::(\d\d))?(?:\.(\d{3}))?", text)
    hour, minute, second, thousandth = (int(part or 0) for part in (clock.groups() if clock else "0000"))
    offset = timedelta(0)
    if zone:
        offset = (1 if zone[1] == "+" else -1) * timedelta(hours=int(zone[2]), minutes=int(zone[3]))
    year, month, day = _date(text)
    when = datetime(year, month, day, hour, minute, second, thousandth * 1000)
    return when.replace(tzinfo=timezone(offset))


def _date(text: str) -> tuple[int, int, int]:
    """Return year, month, and day; those of an arbitrary day if there is only a time."""
    if match := re.search(r"(\d{4})-(\d\d)-(\d\d)", text):
        return int(match[1]), int(match[2]), int(match[3])
    if match := re.search(r"(\d\d)/(\d\d)/(\d{4})", text):
        return int(match[3]), int(match[1]), int(match[2])
    named = "|".join(_MONTHS)
    if match := re.search(rf"\b({named})\w* (\d\d?),? (\d{{4}})", text, re.IGNORECASE):
        return int(match[3]), _MONTHS[match[1].lower()], int(match[2])
    if match := re.search(rf"\b(\d\d?) ({named})\w* (\d{{4}})", text, re.IGNORECASE):
        return int(match[3]), _MONTHS[match[2].lower()], int(match[1])
    return 2000, 1, 1

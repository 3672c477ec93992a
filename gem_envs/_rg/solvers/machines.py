"""Solvers of tasks that run a stated procedure: cards, buttons, dismantling, and rewriting of strings."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable


def solve_mahjong_puzzle(prompt: str) -> str | None:
    """Play the rounds; the last new card decides."""
    hand = Counter(re.findall(r"the initial cards ([A-Z]+),", prompt)[0])
    result = ""
    for new, old in re.findall(r"Add an? ([A-Z]) card and remove an? ([A-Z]) card", prompt):
        sequences = [(-2, -1), (-1, 1), (1, 2)]
        if hand[new] >= 2:
            result = "Peng"
        elif any(hand[chr(ord(new) + a)] and hand[chr(ord(new) + b)] for a, b in sequences):
            result = "Chi"
        else:
            result = "Pass"
        hand[new] += 1
        hand[old] -= 1
        if hand[old] < 0:
            return None  # the card is not in the hand
    return result


def judge_quantum_lock(prompt: str, answer: str) -> bool | None:
    """Press the buttons, and compare with the fewest presses.

    Unless the prompt forbids to press a button in the other light, that only toggles the light. None if such
    a press is part of a shortest sequence, because the package does not toggle the light.
    """
    buttons = {
        name: (verb, int(value), color)
        for name, verb, value, color in re.findall(
            r"^([A-Z]): (Add|Subtract|Multiply) (\d+) \(when (\w+)\)$", prompt, re.MULTILINE
        )
    }
    start, light, target = re.findall(r"Start: (-?\d+) \((\w+)\)\nTarget: (-?\d+)", prompt)[0]
    idle = "can be pressed only in the light" not in prompt
    fewest = _fewest_presses(int(start), light, int(target), buttons, idle=idle)
    if fewest is None:
        return None
    value, names = int(start), [name.strip() for name in answer.split("→")]
    for name in names:
        if name not in buttons or buttons[name][2] not in ("any", light):
            return False
        value = _pressed(value, buttons[name])
        light = "green" if light == "red" else "red"
    return value == int(target) and len(names) == fewest


def _fewest_presses(
    start: int, light: str, target: int, buttons: dict[str, tuple[str, int, str]], *, idle: bool
) -> int | None:
    """Return the fewest presses, None if as short a sequence has presses without effect."""
    front, other_front = (
        {(start, light)},
        set[tuple[int, str]](),
    )  # reached with effects only, or also without
    for presses in range(1, 20):
        ahead, other_ahead = set[tuple[int, str]](), set[tuple[int, str]]()
        for group, reached in ((front, ahead), (other_front, other_ahead)):
            for value, color in group:
                other = "green" if color == "red" else "red"
                for button in buttons.values():
                    if button[2] in ("any", color):
                        reached.add((_pressed(value, button), other))
                    elif idle:
                        other_ahead.add((value, other))
        front, other_front = ahead, other_ahead
        if any(value == target for value, _ in other_front):
            return None
        if any(value == target for value, _ in front):
            return presses
    return None


def _pressed(value: int, button: tuple[str, int, str]) -> int:
    verb, number, _ = button
    return value + number if verb == "Add" else value - number if verb == "Subtract" else value * number


_BLOCKS = ["[A]", "[B]", "[C]", "{A}", "{B}", "{C}", "(A)", "(B)", "(C)"]
_SYNTHESIS: list[tuple[dict[str, int], dict[str, int]]] = [
    ({"[A]": 1, "[B]": 1, "[C]": 1}, {"{A}": 1}),
    ({"[A]": 1, "[B]": 1}, {"{C}": 1}),
    ({"[B]": 1, "[C]": 1}, {"{B}": 1}),
    ({"[C]": 2}, {"{C}": 1}),
    ({"{A}": 1, "{C}": 1}, {"(A)": 1, "(B)": 1}),
    ({"{B}": 2}, {"(C)": 1}),
]
_SPLITTING: list[tuple[dict[str, int], dict[str, int]]] = [
    ({"A": 1}, {"X": 2, "Y": 1}),
    ({"B": 2}, {"X": 1}),
    ({"C": 2}, {"Y": 1}),
    ({"B": 1, "C": 1}, {"A": 1}),
    ({"X": 1, "Y": 1}, {"Z": 1}),
]


def solve_string_synthesis(prompt: str) -> str | None:
    """Combine blocks; None if the first rule that applies and a cycle of one use per rule differ."""
    numbers = re.findall(r"Now, you have (\d+) \[A\], (\d+) \[B\], and (\d+) \[C\]", prompt)[0]
    start = dict(zip(_BLOCKS, map(int, numbers), strict=False))
    return _combined(
        start,
        _BLOCKS,
        _SYNTHESIS,
        (_RESTART,) if "start again from rule 1" in prompt else (_RESTART, _EXHAUST, _CYCLE),
    )


def solve_string_splitting(prompt: str) -> str | None:
    """Dismantle machines; None if it matters whether to restart or to exhaust a rule."""
    numbers = re.findall(r"Now, you have (\d+) machine A, (\d+) machine B, and (\d+) machine C", prompt)[0]
    start = dict(zip("ABC", map(int, numbers), strict=True))
    return _combined(start, list("ABCXYZ"), _SPLITTING, (_RESTART, _EXHAUST))


Next = Callable[[int], int]
"""Which rule to try after a rule has been used once."""
_RESTART: Next = lambda rule: 0  # noqa: E731  # three defs would be longer
_EXHAUST: Next = lambda rule: rule  # noqa: E731
_CYCLE: Next = lambda rule: rule + 1  # noqa: E731


def _combined(
    start: dict[str, int],
    names: list[str],
    rules: list[tuple[dict[str, int], dict[str, int]]],
    readings: tuple[Next, ...],
) -> str | None:
    """Return the counts at the end, None if the readings of the order of rules differ."""
    results = set()
    for after in readings:
        counts = Counter(start)
        rule = failures = 0
        while failures < len(rules):
            needed, made = rules[rule % len(rules)]
            if all(counts[name] >= number for name, number in needed.items()):
                counts.subtract(needed)
                counts.update(made)
                rule, failures = after(rule), 0
            else:
                rule, failures = rule + 1, failures + 1
        results.add(" ".join(str(counts[name]) for name in names))
    return results.pop() if len(results) == 1 else None


def solve_string_insertion(prompt: str) -> str | None:
    """Read from the left; after a match, go on behind the inserted character."""
    rest, result = prompt.strip().rsplit(": ", 1)[1], ""
    while rest:
        if rest[:4] in ("ABCD", "BCDE", "CDEA", "DEAB", "EABC"):
            result, rest = result + rest[:4] + rest[0], rest[4:]
        else:
            result, rest = result + rest[0], rest[1:]
    return result


_CONDITIONS: list[tuple[str, Callable[[str, str], bool]]] = [
    (r"(?:the string )?(?:prefix is|starts with) '(\w+)'", lambda s, x: s.startswith(x)),
    (r"(?:the string )?(?:suffix is|ends with) '(\w+)'", lambda s, x: s.endswith(x)),
    (r"the string contains '(\w+)'(?! \()", lambda s, x: x in s),
    (r"the string contains '(\w+)' \(not at the start\)", lambda s, x: x in s[1:]),
    (
        r"the string contains an even number of '(\w)'s \(and at least one '\w'\)",
        lambda s, x: s.count(x) > 0 and s.count(x) % 2 == 0,
    ),
    (r"the string length is greater than (\d+)", lambda s, x: len(s) > int(x)),
]


def solve_string_manipulation(prompt: str) -> str | None:
    """Apply the first rule that applies until nothing changes or a string is repeated.

    None if "the middle character" of a string of even length matters.
    """
    prompt, _, middle = prompt.partition("\nOf two middle characters,")
    string = prompt.strip().splitlines()[-1]
    rules = re.findall(r"^\d+\. If (.*?), (.*)\.$", prompt, re.MULTILINE)
    results = {_rewritten(string, rules, upper) for upper in ((True,) if middle else (False, True))}
    return results.pop() if len(results) == 1 else None


def _rewritten(string: str, rules: list[tuple[str, str]], upper: bool) -> str:
    seen = {string}
    while True:
        for condition, actions in rules:
            kind, what = _condition(condition)
            if _CONDITIONS[kind][1](string, what):
                new = string
                for action in re.split(r",? and ", actions):
                    new = _changed(new, action, what, kind, upper)
                break
        else:
            return string
        if new in seen:
            return string
        seen.add(new)
        string = new


def _condition(text: str) -> tuple[int, str]:
    for kind, (rule, _) in enumerate(_CONDITIONS):
        if match := re.fullmatch(rule, text):
            return kind, match[1]
    raise ValueError(f"not a condition on a string: {text!r}")


def _changed(string: str, action: str, what: str, kind: int, upper: bool) -> str:
    """Return a string after one action of a rule.

    Args:
        string: The string before.
        action: What to do, in words.
        what: The text of the condition, which stands for "it".
        kind: Index of the condition in `_CONDITIONS`.
        upper: Which of two middle characters to take.
    """
    if action in ("delete the first two characters", "remove the first two characters"):
        return string[2:]
    if action in ("remove the last character", "delete the last character"):
        return string[:-1]
    if action in ("remove the last two characters", "delete the last two characters"):
        return string[:-2]
    if action == "remove the first character":
        return string[1:]
    if action == "remove the second character":
        return string[:1] + string[2:]
    if action == "remove the middle character":
        middle = len(string) // 2 if upper else (len(string) - 1) // 2
        return string[:middle] + string[middle + 1 :]
    if action in ("delete the first occurrence entirely", "remove the first occurrence"):
        return string.replace(what, "", 1)
    if action == "remove the first occurrence found after the first character":
        return string[0] + string[1:].replace(what, "", 1)
    if match := re.fullmatch(r"append '(\w+)' (?:to|at) the end", action):
        return string + match[1]
    if match := re.fullmatch(r"(?:prepend|insert) '(\w+)' (?:to|at) the start", action):
        return match[1] + string
    if match := re.fullmatch(r"replace the first two characters with '(\w+)'", action):
        return match[1] + string[2:]
    if match := re.fullmatch(r"replace the first occurrence with its reverse \('(\w+)'\)", action):
        return string.replace(what, match[1], 1)
    if match := re.fullmatch(r"replace (?:the first occurrence|it) with '(\w+)'", action):
        if kind == 1:
            return string[: -len(what)] + match[1]
        return string.replace(what, match[1], 1)
    raise ValueError(f"not an action on a string: {action!r}")

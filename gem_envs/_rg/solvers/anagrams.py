"""Solvers of tasks on letters: counting, grouping, and replacing them."""

from __future__ import annotations

import json
import re
from collections import Counter

from gem_envs._rg.solvers.reading import find


def solve_letter_counting(prompt: str) -> str | None:
    """Count a letter, uppercase and lowercase."""
    letter, text = find(r'the letter "(.)" appear in the text: "(.*)"\?', prompt).groups()
    return str(text.lower().count(letter.lower()))


def judge_group_anagrams(prompt: str, answer: str) -> bool | None:
    """Check that all words with the same letters are together; the order does not matter."""
    groups: dict[tuple[str, ...], list[str]] = {}
    for word in json.loads(find(r"into anagrams:\n(\[.*\])", prompt)[1]):
        groups.setdefault(tuple(sorted(word)), []).append(word)
    return sorted(map(sorted, json.loads(answer))) == sorted(map(sorted, groups.values()))


def solve_isomorphic_strings(prompt: str) -> str | None:
    """Compare the places at which the letters of both strings occur first."""
    first, second = find(r"or False otherwise:\n(\S+) (\S+)", prompt).groups()
    return str([first.index(letter) for letter in first] == [second.index(letter) for letter in second])


def solve_emoji_mystery(prompt: str) -> str | None:
    """Read the bytes after the emoji as the hint says; a selector of the emoji's color is a part of it."""
    hidden = find(r"from the emoji: .\ufe0f?(.*?)\n", prompt)[1]
    codes = [ord(sign) for sign in hidden]
    values = [code - 0xFE00 if code < 0xFE10 else code - 0xE0100 + 16 for code in codes if code >= 0xFE00]
    return bytes(values).decode()


def judge_letter_jumble(prompt: str, answer: str) -> bool | None:
    """Check that each word has the letters of its original; not whether it is English."""
    jumbled = find(r"(?:words|sentence): (.*)", prompt)[1].split()
    words = answer.split()
    return [Counter(word) for word in words] == [Counter(word) for word in jumbled] and bool(
        re.search(r"\w", answer)
    )

"""Solvers of tasks on letters, words, and sentences."""

from __future__ import annotations

import ast
import itertools
import json
import re
from collections import Counter


def solve_spell_backward(prompt: str) -> str | None:
    """Return the letters from the last to the first."""
    return prompt.strip().rsplit(": ", 1)[1][::-1]


def solve_word_sequence_reversal(prompt: str) -> str | None:
    """Return the words from the last to the first."""
    return ", ".join(reversed(prompt.strip().rsplit("list of words: ", 1)[1].split(", ")))


def solve_word_sorting(prompt: str) -> str | None:
    """Sort the words by code points."""
    order, words = re.findall(r"in (\w+) order .* comma-separated list: (.*)", prompt)[0]
    return ", ".join(sorted(words.split(", "), reverse=order == "descending"))


def solve_ransom_note(prompt: str) -> str | None:
    """Compare the numbers of letters."""
    note, magazine = re.findall(r"Ransom note: (.*)\nMagazine: (.*)", prompt)[0]
    return str(not Counter(note) - Counter(magazine))


def judge_palindrome_generation(prompt: str, answer: str) -> bool | None:
    """Check that all letters are used, and that they read the same both ways."""
    letters = prompt.strip().rsplit(": ", 1)[1].split(", ")
    word = answer.strip()
    return sorted(word) == sorted(letters) and all(a == b for a, b in zip(word, reversed(word), strict=True))


def judge_palindrome_partitioning(prompt: str, answer: str) -> bool | None:
    """Compare the sets of all partitions."""
    given = [tuple(parts) for parts in json.loads(answer)]
    return len(given) == len(set(given)) and set(given) == set(_partitions(prompt.split()[-1]))


def _partitions(word: str) -> list[tuple[str, ...]]:
    if not word:
        return [()]
    return [
        (word[:end], *rest)
        for end in range(1, len(word) + 1)
        if word[:end] == word[end - 1 :: -1] or word[:end] == word[:end][::-1]
        for rest in _partitions(word[end:])
    ]


def solve_needle_haystack(prompt: str) -> str | None:
    """Find the sentence that the question asks about; None if there are several or none."""
    text, question = prompt.strip().rsplit("\n", 1)
    claim = re.fullmatch(r"Who (.*)\? Reply only with a name\.", question)
    if claim is None:
        return None
    names = {
        sentence.split(" ", 1)[0]
        for sentence in text.strip().split(". ")
        if _says(sentence.rstrip(". "), claim[1])
    }
    return names.pop() if len(names) == 1 else None


def _says(sentence: str, what: str) -> bool:
    return sentence.partition(" ")[2] == what


def judge_sentence_reordering(prompt: str, answer: str) -> bool | None:
    """Reject other words and a doubled word; the order itself cannot be verified.

    None if a word occurs twice, because the package then puts both in one place.
    """
    words = prompt.strip().partition(": ")[2].split()
    given = answer.split()
    if sorted(given) != sorted(words) or any(a == b for a, b in itertools.pairwise(given)):
        return False
    return None if len(set(words)) < len(words) else True


def judge_word_ladder(prompt: str, answer: str) -> bool | None:
    """Check the ends, and that each step changes one letter; the prompt does not say which words exist."""
    start, end = re.findall(r"word ladder '(\w+)' to '(\w+)'", prompt)[0]
    words = answer.strip().split(",")
    return (
        words[0] == start
        and words[-1] == end
        and all(re.fullmatch(r"[A-Z]+", word) and len(word) == len(start) for word in words)
        and all(sum(x != y for x, y in zip(a, b, strict=True)) == 1 for a, b in itertools.pairwise(words))
    )


def judge_number_filtering(prompt: str, answer: str) -> bool | None:
    """Compare the lists; the texts of the numbers stay as they are."""
    verb, kind, bound, listed = re.findall(
        r"(Keep|Remove) all numbers (larger|smaller) than (\S+) in this list: (\[.*\])", prompt
    )[0]
    texts: list[str] = ast.literal_eval(listed)
    beyond = [
        text
        for text in texts
        if (float(text) > float(bound) if kind == "larger" else float(text) < float(bound))
    ]
    kept = beyond if verb == "Keep" else [text for text in texts if text not in beyond]
    return bool(ast.literal_eval(answer) == kept)


def judge_number_sorting(prompt: str, answer: str) -> bool | None:
    """Compare the values and the order; equal numbers may be in any order."""
    order, listed = re.findall(r"Sort these numbers in (\w+) order: (.*)", prompt)[0]
    right = sorted(map(float, listed.split(", ")), reverse=order == "descending")
    return [float(text) for text in ast.literal_eval(answer)] == right


def judge_number_format(prompt: str, answer: str) -> bool | None:
    """Compare with the largest or smallest number, up to the rounding of a float."""
    kind, listed = re.findall(
        r"pick the (largest|smallest) number of the following candidates: (.*)", prompt
    )[0]
    values = [float(text.replace(",", "")) for text in listed.split()]
    right = max(values) if kind == "largest" else min(values)
    return abs(float(answer.replace(",", "")) - right) < 1e-5 and values.count(right) == 1

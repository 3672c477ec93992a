"""Second solver of questions about documents: reads facts from sentences, and follows them."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable
from functools import lru_cache

Facts = dict[tuple[int, str], set[str]]
"""Objects of a relation by its place in `_RELATIONS` and its subject."""

_RELATIONS = (
    (r"(.+) was born in (.+)", "the city where", "was born"),
    (r"(.+) lives in (.+)", "the city where", "lives"),
    (r"(.+) has its headquarters in (.+)", "the city where", "has its headquarters"),
    (r"(.+) has a factory in (.+)", "the city where", "has a factory"),
    (r"(.+) works for (.+)", "the company that", "works for"),
    (r"(.+) lies in (.+)", "the country in which", "lies"),
    (r"(.+) was built on the banks of the (.+)", "the river on which", "was built"),
    (r"(.+) learned the trade from (.+)", "the teacher of", ""),
    (r"The mayor of (.+) is (.+)", "the mayor of", ""),
    (r"(.+) was founded by (.+)", "the founder of", ""),
    (r"(.+) was written by (.+)", "the author of", ""),
    (r"(.+) was published by (.+)", "the publisher of", ""),
    (r"The capital of (.+) is (.+)", "the capital of", ""),
    (r"(.+) is led by (.+)", "the leader of", ""),
)
"""Sentence about a subject and an object, and the words around a subject that stand for its object."""
_KIND = r"(.+) is an? (?:person|city|country|company|book|river)"
_ASKED = re.compile(r"(?:What is the name of|Name|What is|Find out the name of) (.+?)(?: called)?[.?]")


def named(question: str, pages: Iterable[str]) -> set[str]:
    """Return all names that a question may ask for, in any reading of the question.

    Args:
        question: The question, such as "What is the mayor of the city where Ana lives called?".
        pages: Texts of the documents.

    Raises:
        ValueError: A sentence states no fact, or the question has an unknown form.
    """
    asked = _ASKED.fullmatch(question)
    if asked is None:
        raise ValueError(f"not a question about a name: {question!r}")
    return _meant(asked[1], _facts(tuple(pages)))


@lru_cache(maxsize=2)  # a whole encyclopedia stays the same
def _facts(pages: tuple[str, ...]) -> Facts:
    facts: Facts = defaultdict(set)
    for sentence in (text for page in pages for text in page.rstrip(".").split(". ")):
        read = [
            (place, found)
            for place, (form, _, _) in enumerate(_RELATIONS)
            if (found := re.fullmatch(form, sentence))
        ]
        if not read and not re.fullmatch(_KIND, sentence):
            raise ValueError(f"not a fact: {sentence!r}")
        for place, found in read:
            facts[place, found[1]].add(found[2])
    return facts


def _meant(phrase: str, facts: Facts) -> set[str]:
    """Return what a phrase stands for: itself if it is a name, else objects of what is within it."""
    objects: set[str] = set()
    described = False
    for place, (_, before, after) in enumerate(_RELATIONS):
        ending = f" {after}" if after else ""
        if phrase.startswith(f"{before} ") and phrase.endswith(ending):
            described = True
            for subject in _meant(phrase[len(before) + 1 : len(phrase) - len(ending)], facts):
                objects |= facts.get((place, subject), set())
    return objects if described else {phrase}

"""A solver of puzzles about people who always tell the truth and people who always lie."""

from __future__ import annotations

import itertools
import re

from gem_envs._rg.solvers.reading import UnknownPrompt, find

Roles = dict[str, bool]
"""Who tells the truth."""


def judge_knights_knaves(prompt: str, answer: str) -> bool | None:
    """Try all roles; None if several or none agree with what the people say."""
    truthful, lying = find(r"inhabited only by (\w+?)s and (\w+?)s\. ", prompt).groups()
    names = re.findall(r"\b[A-Z]\w*", find(r"inhabitants: (.*?)\.", prompt)[1])
    claims = [
        (_speaker(sentence, names), _claim(sentence))
        for sentence in re.findall(r'[^.]+\."?', find(r"inhabitants: .*?\.(.*) So who is", prompt)[1])
    ]
    found = []
    for values in itertools.product((True, False), repeat=len(names)):
        roles = dict(zip(names, values, strict=True))
        if all(roles[speaker] == _Reader(claim, roles, truthful).truth() for speaker, claim in claims):
            found.append(roles)
    if len(found) != 1:
        return None
    given = re.findall(rf"\b(\w+) is an? ({truthful}|{lying})\b", answer, re.IGNORECASE)
    answered = [(name.capitalize(), role.lower() == truthful) for name, role in given]
    return sorted(answered) == sorted(found[0].items())


def _claim(sentence: str) -> str:
    """Return what is said, without quotation marks, who says it, and how."""
    return find(r"(?=\(|\bif |\bit is not the case|\b[A-Z]\w* is an? ).*\bis an? \w+\)*", sentence)[0]


def _speaker(sentence: str, names: list[str]) -> str:
    speakers = [name for name in names if re.search(rf"\b{name}\b", sentence.replace(_claim(sentence), ""))]
    if len(speakers) != 1:
        raise UnknownPrompt(f"who says this? {sentence!r}")
    return speakers[0]


class _Reader:
    """Reads a claim with brackets, and, or, if, if and only if, and not."""

    def __init__(self, claim: str, roles: Roles, truthful: str) -> None:
        self._words: list[str] = re.findall(
            r"\(|\)|if and only if|it is not the case that|\w+ is an? \w+|\w+", claim
        )
        self._roles = roles
        self._truthful = truthful

    def truth(self) -> bool:
        """Return whether the claim is true.

        Raises:
            Unreadable: The claim is followed by other words.
        """
        value = self._joined()
        if self._words:
            raise UnknownPrompt(f"words after a claim: {self._words}")
        return value

    def _joined(self) -> bool:
        if self._words[0] == "if":
            self._take("if")
            condition = self._single()
            self._take("then")
            return self._single() or not condition
        values = [self._single()]
        joint = self._words[0] if self._words and self._words[0] != ")" else "and"
        while self._words and self._words[0] != ")":
            self._take(joint)
            values.append(self._single())
        if joint == "if and only if":
            return len(set(values)) == 1
        return all(values) if joint == "and" else any(values)

    def _single(self) -> bool:
        word = self._words.pop(0)
        if word == "(":
            value = self._joined()
            self._take(")")
            return value
        if word == "it is not the case that":
            return not self._single()
        name, _, role = word.partition(" is ")
        return self._roles[name] == (role.split()[-1] == self._truthful)

    def _take(self, word: str) -> None:
        if self._words.pop(0) != word:
            raise UnknownPrompt(f"no {word!r} in a claim")

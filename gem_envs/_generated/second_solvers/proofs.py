"""Second solver of statements about people: what the facts and rules of the text say."""

from __future__ import annotations

import re

_SUBJECT = r"(?:someone is|all|whoever is both|whoever is|everyone who is|people who are|being|both)?"
_RULE = re.compile(
    rf"{_SUBJECT} ?(\w+)(?: and (\w+)| as well as (\w+))?(?: people)?,? "
    r"(?:then they are|are always|is also|makes one|are|is) (\w+)"
)


def follows(question: str) -> bool:
    """Say whether a statement about a person is true, where what cannot be derived is false.

    Raises:
        ValueError: A sentence is neither a fact nor a rule.
    """
    story, asked = question.splitlines()[:2]
    facts: set[tuple[str, str]] = set()
    rules: list[tuple[set[str], str]] = []
    for sentence in story.rstrip(".").split(". "):
        if fact := re.fullmatch(r"([A-Z][a-z]+) is (\w+)", sentence):
            facts.add((fact[1], fact[2]))
            continue
        rule = _RULE.fullmatch(sentence.removeprefix("If ").lower())
        if rule is None:
            raise ValueError(f"neither a fact nor a rule: {sentence!r}")
        rules.append(({trait for trait in rule.groups()[:3] if trait}, rule[4]))
    people = {person for person, _ in facts}
    before = -1
    while len(facts) != before:
        before = len(facts)
        for needed, trait in rules:
            facts |= {(who, trait) for who in people if all((who, one) in facts for one in needed)}
    claim = re.search(r"([A-Z][a-z]+) is (not )?(\w+)\.", asked)
    if claim is None:
        raise ValueError(f"no statement: {asked!r}")
    return ((claim[1], claim[3]) in facts) != bool(claim[2])

"""Solvers of tasks in logic: syllogisms, statements about themselves, propositions, and zebra puzzles."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from itertools import permutations, product

_STATEMENT = re.compile(r"(All|No|Some) ([\w ]+?) are (not )?([\w ]+)")
_REGIONS = list(product((False, True), repeat=3))
"""Kinds of things, by the terms that hold for them."""


def solve_syllogism(prompt: str) -> str | None:
    """Try all worlds of the three terms; None if it matters whether each has members, as a note may say."""
    statements = [match.groups() for match in _STATEMENT.finditer(prompt)]
    terms = sorted({term for _, a, _, b in statements for term in (a, b)})
    if len(statements) != 3 or len(terms) != 3:
        return None
    answers = set()
    stated = "has at least one member" in prompt
    for with_members in (True,) if stated else (False, True):
        worlds = [
            [region for region, there in zip(_REGIONS, present, strict=True) if there]
            for present in product((False, True), repeat=len(_REGIONS))
        ]
        if with_members:
            worlds = [world for world in worlds if all(any(thing[k] for thing in world) for k in range(3))]
        premises, (conclusion,) = statements[:2], statements[2:]
        possible = [world for world in worlds if all(_holds(one, terms, world) for one in premises)]
        answers.add("Yes" if all(_holds(conclusion, terms, world) for world in possible) else "No")
    return answers.pop() if len(answers) == 1 else None


def _holds(statement: tuple[str | None, ...], terms: list[str], world: list[tuple[bool, ...]]) -> bool:
    quantifier, a, negated, b = statement
    i, j = terms.index(a or ""), terms.index(b or "")
    if quantifier == "All":
        return all(thing[j] for thing in world if thing[i])
    if quantifier == "No":
        return not any(thing[j] for thing in world if thing[i])
    return any(thing[j] != bool(negated) for thing in world if thing[i])


def solve_self_reference(prompt: str) -> str | None:
    """Count the assignments of truth values under which every statement says what it is."""
    texts = re.findall(r"Statement \d+: '(.*)'", prompt)
    if len(texts) != 7:
        return None
    return str(
        sum(
            all(_claims(text, values) == value for text, value in zip(texts, values, strict=True))
            for values in product((False, True), repeat=len(texts))
        )
    )


def _claims(text: str, values: tuple[bool, ...]) -> bool:
    """Return whether a statement holds under given truth values."""
    if match := re.fullmatch(
        r"(At least|At most|Exactly) (\d+) of these 7 statements are (true|false)\.", text
    ):
        number, bound = values.count(match[3] == "true"), int(match[2])
        return {"At least": number >= bound, "At most": number <= bound, "Exactly": number == bound}[match[1]]
    if match := re.fullmatch(r"Either Statement (\d) or Statement (\d) is true, but not both\.", text):
        return values[int(match[1]) - 1] != values[int(match[2]) - 1]
    match = re.fullmatch(r"The number of (true|false) statements is a (prime|composite) number\.", text)
    if match is None:
        raise ValueError(f"not a statement about statements: {text!r}")
    number = values.count(match[1] == "true")
    divisors = sum(number % divisor == 0 for divisor in range(1, number + 1))
    return divisors == 2 if match[2] == "prime" else divisors > 2


Values = dict[str, bool]
Formula = Callable[[Values], bool]


def judge_propositional_logic(prompt: str, answer: str) -> bool | None:
    """Check with all truth values that a conclusion needs the premises together.

    None if the premises contradict each other.
    """
    premises = [
        _formula(text) for text in re.findall(r"^\.?\d+\. (.*)$", prompt.split("Given:\n")[1], re.MULTILINE)
    ]
    letters = sorted(set(re.findall(r"\b[A-Z]\b", prompt.split("Given:\n")[1].split("\n.What")[0])))
    plain = answer.replace("(", "").replace(")", "").replace(" ", "")
    if not re.fullmatch(r"¬*[A-Z]([∨→]¬*[A-Z])?", plain) or not set(re.findall("[A-Z]", plain)) <= set(
        letters
    ):
        return False
    conclusion = _formula(plain)
    worlds = [
        dict(zip(letters, values, strict=True)) for values in product((False, True), repeat=len(letters))
    ]
    possible = [world for world in worlds if all(premise(world) for premise in premises)]
    if not possible:
        return None
    alone = any(all(conclusion(world) for world in worlds if premise(world)) for premise in premises)
    return all(conclusion(world) for world in possible) and not alone


_LEVELS = ("↔", "→", "∨", "∧")
"""Operators from the weakest to the strongest."""


def _formula(text: str) -> Formula:
    """Read a formula of propositional logic."""
    tokens = re.findall(r"[A-Z]|[¬∧∨→↔()]", text)
    formula = _joined(tokens, 0)
    if tokens:
        raise ValueError(f"not a formula: {text!r}")
    return formula


def _joined(tokens: list[str], level: int) -> Formula:
    if level == len(_LEVELS):
        return _single(tokens)
    left = _joined(tokens, level + 1)
    while tokens and tokens[0] == _LEVELS[level]:
        tokens.pop(0)
        left = _operation(_LEVELS[level], left, _joined(tokens, level + 1))
    return left


def _single(tokens: list[str]) -> Formula:
    token = tokens.pop(0)
    if token == "¬":
        inner = _single(tokens)
        return lambda values: not inner(values)
    if token == "(":
        inner = _joined(tokens, 0)
        if tokens.pop(0) != ")":
            raise ValueError("a bracket is missing")
        return inner
    return lambda values: values[token]


def _operation(sign: str, a: Formula, b: Formula) -> Formula:
    return {
        "∧": lambda values: a(values) and b(values),
        "∨": lambda values: a(values) or b(values),
        "→": lambda values: not a(values) or b(values),
        "↔": lambda values: a(values) == b(values),
    }[sign]


_ORDINALS = ["", "first", "second", "third", "fourth", "fifth", "sixth", "seventh"]
_RELATIONS: list[tuple[str, Callable[[int, int], bool]]] = [
    (r"(.*) and (.*) are next to each other", lambda i, j: abs(i - j) == 1),
    (r"(.*) is directly left of (.*)", lambda i, j: i + 1 == j),
    (r"(.*) is somewhere to the left of (.*)", lambda i, j: i < j),
    (r"(.*) is somewhere to the right of (.*)", lambda i, j: i > j),
    (r"There is one house between (.*) and (.*)", lambda i, j: abs(i - j) == 2),
    (r"There are two houses between (.*) and (.*)", lambda i, j: abs(i - j) == 3),
]
_ADJECTIVES = {"brit": "british", "swede": "swedish"}
_CHILD = re.compile(r"child is named|mother of")
Trait = tuple[int, str]
"""Index of a characteristic, and a value of it."""
Clue = tuple[tuple[Trait, ...], Callable[..., bool]]
"""Traits, and what holds for the houses that have them."""


def solve_zebra_puzzles(prompt: str) -> str | None:
    """Try all arrangements; None if the clues do not determine the name."""
    listed = re.findall(r"^ - (.*): (.*)$", prompt, re.MULTILINE)
    traits = [(k, value) for k, (_, values) in enumerate(listed) for value in values.split(", ")]
    children = {k for k, (about, _) in enumerate(listed) if "child" in about}
    clues = [_clue(text, traits, children) for text in re.findall(r"^\d+\. (.*)\.$", prompt, re.MULTILINE)]
    house = int(re.findall(r"lives in House (\d+)", prompt)[0])
    names = {
        values[house - 1] for values in _arrangements([values.split(", ") for _, values in listed], clues)
    }
    return names.pop() if len(names) == 1 else None


def _arrangements(lists: list[list[str]], clues: list[Clue]) -> Iterator[tuple[str, ...]]:
    """Yield the names by house for each arrangement that fits the clues."""

    def search(k: int, houses: dict[Trait, int], names: tuple[str, ...]) -> Iterator[tuple[str, ...]]:
        if k == len(lists):
            yield names
            return
        ready = [clue for clue in clues if max(trait[0] for trait in clue[0]) == k]
        for values in permutations(lists[k]):
            placed = houses | {(k, value): house for house, value in enumerate(values, 1)}
            if all(holds(*(placed[trait] for trait in about)) for about, holds in ready):
                yield from search(k + 1, placed, names or values)

    yield from search(0, {}, ())


def _clue(text: str, traits: list[Trait], children: set[int]) -> Clue:
    if match := re.fullmatch(r"(.*) is (not )?in the (\w+) house", text):
        trait, number = _trait(match[1], traits, children), _ORDINALS.index(match[3])
        if trait:
            return (trait,), lambda house: (house == number) != bool(match[2])
    for pattern, relation in _RELATIONS:
        if match := re.fullmatch(pattern, text):
            a, b = (_trait(part, traits, children) for part in match.groups())
            if a and b:
                return (a, b), relation
    for split in re.finditer(" is ", text):
        a = _trait(text[: split.start()], traits, children)
        b = _trait(text[split.end() :], traits, children)
        if a and b:
            return (a, b), lambda i, j: i == j
    raise ValueError(f"not a clue: {text!r}")


def _trait(text: str, traits: list[Trait], children: set[int]) -> Trait | None:
    """Return the trait that a description names: the longest value in it."""
    text = text.strip().lower()
    found = [
        trait
        for trait in traits
        if (trait[0] in children) == bool(_CHILD.search(text))
        and (text == trait[1] if trait[0] == 0 else _ADJECTIVES.get(trait[1], trait[1]) in text)
    ]
    return max(found, key=lambda trait: len(trait[1]), default=None)

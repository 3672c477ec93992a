"""True or false: facts and rules about fictional people, and a statement that needs some steps to derive.

Everything that cannot be derived is false (closed world). The depth of an item is the length of the shortest
derivation of its statement or of the statement's opposite; if neither can be derived, it is the length of the
longest derivation about the same person.
"""

from __future__ import annotations

from itertools import pairwise
from random import Random
from typing import NamedTuple

from gem_core._util.checks import check_int
from gem_core.data import GeneratedRows, Row
from gem_core.data.rows import Split
from gem_core.envs.datasets.qa import QaEnv

_PEOPLE = "Arlo Bena Cyrus Dora Elmo Fenja Gitte Hugo Ilva Janko Kaja Ludo".split()  # noqa: SIM905
_TRAITS = (  # noqa: SIM905
    "brave calm curious early fair gentle honest jolly keen loud modest neat orderly patient quick rich shy "
    "tidy unhurried vain wise young"
).split()
_ONE = (
    "If someone is {a} then they are {c}.", "All {a} people are {c}.", "Whoever is {a} is also {c}.",
    "Everyone who is {a} is {c}.", "People who are {a} are always {c}.", "Being {a} makes one {c}.",
)  # fmt: skip
_TWO = (
    "If someone is {a} and {b} then they are {c}.", "{a_} and {b} people are {c}.",
    "Whoever is both {a} and {b} is {c}.", "Everyone who is {a} as well as {b} is {c}.",
)  # fmt: skip
_ASK = ("Statement: {s} Is it true or false?", "Is this true or false? {s}", "{s} True or false?")

_DRAWS = 1000
"""Number of theories to try for one with the desired statement; one to five suffice on average."""


class _Rule(NamedTuple):
    conditions: tuple[str, ...]
    conclusion: str


class ProofRows(GeneratedRows):
    """Small theories with a statement each; half of the statements are true."""

    columns: tuple[str, ...] = ("question", "answer")
    key = "question"
    templates = 1000
    """A lower bound: the kinds and the order of the sentences are drawn as well."""

    def __init__(self, depth: int, split: Split, size: int, seed: int, distractors: bool = True) -> None:
        super().__init__(split, size, seed)
        self.depth = depth
        self.distractors = distractors

    def draw(self, random: Random) -> Row:
        kind: tuple[bool, bool] | None = None
        for draws in range(_DRAWS + 1):
            last = draws == _DRAWS  # fall back to a chain and a statement that follows, which always exists
            people = random.sample(_PEOPLE, 3)
            traits = random.sample(_TRAITS, 10)
            facts, rules = self._theory(random, people, traits, self.distractors and not last)
            steps = derive(facts, rules)
            if (
                kind is None
            ):  # drawn once: redrawing it with the theory would favor the kind that fits more theories
                kind = random.random() < 0.5, random.random() < 0.3
            true, denied = kind
            follows = last or true != denied
            if known := self._statements(people, traits, rules, steps, follows):
                break
        who, what = random.choice(known)
        text = f"{who} is {'not ' if denied else ''}{what}."
        sentences = [f"{who} is {what}." for who, what in facts] + [_say(random, rule) for rule in rules]
        random.shuffle(sentences)
        question = f"{' '.join(sentences)}\n{random.choice(_ASK).format(s=text)}"
        return {"question": question, "answer": str(follows != denied)}

    def _theory(
        self, random: Random, people: list[str], traits: list[str], distractors: bool
    ) -> tuple[list[tuple[str, str]], list[_Rule]]:
        """Return a chain of the desired length, plus other rules and facts."""
        chain = traits[: self.depth + 1]
        facts = {(people[0], chain[0])}
        rules = []
        for before, after in pairwise(chain):
            conditions: tuple[str, ...] = (before,)
            if random.random() < 0.3:
                extra = random.choice(traits[self.depth + 1 :])
                facts.add((people[0], extra))
                conditions = (before, extra)
            rules.append(_Rule(conditions, after))
        for _ in range(random.randint(2, 4) if distractors else 0):
            *conditions_, conclusion = random.sample(traits, random.choice((2, 3)))
            rules.append(_Rule(tuple(conditions_), conclusion))
        for _ in range(random.randint(2, 4) if distractors else 0):
            facts.add((random.choice(people[1:]), random.choice(traits)))
        return sorted(facts), list(dict.fromkeys(rules))

    def _statements(
        self,
        people: list[str],
        traits: list[str],
        rules: list[_Rule],
        steps: dict[tuple[str, str], int],
        follows: bool,
    ) -> list[tuple[str, str]]:
        """Return the statements of the desired depth that follow, or that do not.

        A statement that does not follow is the conclusion of some rule, like one that follows; otherwise
        looking for such a rule would distinguish the two. A chain without distractors has no such trait, and
        depth 0 needs none.
        """
        if follows:
            return sorted(fact for fact, depth in steps.items() if depth == self.depth)
        if self.depth and self.distractors:
            traits = sorted({rule.conclusion for rule in rules})
        reach = {who: max((n for (p, _), n in steps.items() if p == who), default=-1) for who in people}
        return sorted(
            (p, t) for p in people for t in traits if (p, t) not in steps and reach[p] == self.depth
        )


class ProofEnv(QaEnv):
    r"""Say whether a statement follows from facts and rules.

    Action: ``\boxed{True}`` or ``\boxed{False}``; the last box with an answer counts.

    Rewards: 1 for the right answer, 0 for anything else. One step. Half of the statements are true, so
    guessing earns 0.5 on average. `max_return` is 1; the oracle reaches it.
    """

    def __init__(
        self,
        depth: int = 2,
        split: Split = "train",
        size: int = 100_000,
        seed: int = 0,
        *,
        distractors: bool = True,
    ) -> None:
        """Set the size of the theories.

        Args:
            depth: Number of steps of the derivation, from 0 (the fact is given) to 5.
            split: "train" or "test"; they share no question.
            size: Number of items.
            seed: Random seed of the items.
            distractors: Whether to add facts and rules that the derivation does not need. Without them, an
                item is about one person, there are fewer items (at depth 0, a fact and a statement), and at
                depth 1 and above a statement follows if some rule ends in its trait.

        Raises:
            ConfigError: A value is out of range or of the wrong type.
        """
        check_int("depth", depth, 0, 5)
        self.keys = "question", "answer"
        self.set_form("boxed")
        self.use_rows(ProofRows(depth, split, size, seed, distractors))

    def question(self, row: Row) -> str:
        return (
            f"{row['question']}\nWhat cannot be derived is false. "
            "Answer with \\boxed{True} or \\boxed{False}."
        )

    def random_answer(self, row: Row, random: Random) -> str:
        """Return true or false."""
        return random.choice(["\\boxed{True}", "\\boxed{False}"])


def derive(facts: list[tuple[str, str]], rules: list[_Rule]) -> dict[tuple[str, str], int]:
    """Return everything that follows, with the number of steps of its shortest derivation."""
    steps = dict.fromkeys(facts, 0)
    people = sorted({who for who, _ in facts})
    for depth in range(1, len(rules) + 1):
        new = {
            (who, rule.conclusion): depth
            for who in people
            for rule in rules
            if (who, rule.conclusion) not in steps and all((who, c) in steps for c in rule.conditions)
        }
        if not new:
            break
        steps.update(new)
    return steps


def _say(random: Random, rule: _Rule) -> str:
    if len(rule.conditions) == 1:
        return random.choice(_ONE).format(a=rule.conditions[0], c=rule.conclusion)
    a, b = rule.conditions
    return random.choice(_TWO).format(a=a, a_=a.capitalize(), b=b, c=rule.conclusion)

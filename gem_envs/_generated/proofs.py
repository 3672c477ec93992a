"""True or false: facts and rules about fictional people, and a statement that takes some steps to derive.

Everything that cannot be derived is false (closed world). The depth of an item is the length of the longest
derivation about the person of its statement; a statement that follows needs exactly as many steps.
"""

from __future__ import annotations

from itertools import pairwise
from random import Random
from typing import NamedTuple, TypeAlias

from gem_core._util.checks import check_int
from gem_envs._text import boxed_answer
from gem_envs.data import GeneratedRows
from gem_envs.data._rows import DataRow, DataSplit
from gem_envs.datasets._qa import QaEnv

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


class _Rule(NamedTuple):
    conditions: tuple[str, ...]
    conclusion: str


class ProofRows(GeneratedRows):
    """Small theories with a statement each; half of the statements are true."""

    columns: tuple[str, ...] = ("question", "answer")
    key = "question"
    templates = 1000
    """A lower bound: the kinds and the order of the sentences are drawn as well."""

    def __init__(self, depth: int, split: DataSplit, size: int, seed: int, distractors: bool = True) -> None:
        super().__init__(split, size, seed)
        self.depth = depth
        self.distractors = distractors

    def draw(self, random: Random) -> DataRow:
        theory = self._two_chains if self.distractors else self._one_chain
        while True:  # one or two theories on average
            facts, rules, who, true, false = theory(random)
            steps = derive(facts, rules)
            reach = max(depth for (person, _), depth in steps.items() if person == who)
            if steps.get((who, true)) == reach == self.depth and (who, false) not in steps:
                break
        follows, negative = random.random() < 0.5, random.random() < 0.3
        text = f"{who} is {'not ' if negative else ''}{true if follows else false}."
        sentences = [f"{who} is {what}." for who, what in facts] + [_say(random, rule) for rule in rules]
        random.shuffle(sentences)
        question = f"{' '.join(sentences)}\n{random.choice(_ASK).format(s=text)}"
        return {"question": question, "answer": str(follows != negative)}

    def _one_chain(self, random: Random) -> _Theory:
        """Return a chain about one person, and a trait that no rule mentions."""
        who = random.choice(_PEOPLE)
        *traits, extra, false = random.sample(_TRAITS, self.depth + 3)
        rules, extras = _chain(random, traits, [extra])
        return sorted({(who, what) for what in (traits[0], *extras)}), rules, who, traits[-1], false

    def _two_chains(self, random: Random) -> _Theory:
        """Return two chains that differ only in who has their first trait: the person, or someone else.

        The last trait of the first chain follows for the person, the last trait of the second one does not.
        Everything else about the chains has the same distribution, so only a derivation tells them apart.
        """
        people = random.sample(_PEOPLE, 3)
        length = self.depth + 1
        traits = random.sample(_TRAITS, 2 * length + 5)
        true, false, other = traits[:length], traits[length : 2 * length], traits[2 * length :]
        facts = {(people[0], true[0]), (people[1], false[0])}
        rules: list[_Rule] = []
        for chain in (true, false):
            more, extras = _chain(random, chain, other[:3])
            rules += more
            facts |= {(person, extra) for extra in extras for person in people[:2]}
        for _ in range(random.randint(1, 2)):  # rules whose conclusions are on no chain
            conditions = random.sample([*true[:-1], *false[:-1], *other[:4]], random.choice((1, 2)))
            rules.append(_Rule(tuple(conditions), other[4]))
        facts |= {(people[2], random.choice(traits)) for _ in range(random.randint(1, 2))}
        return sorted(facts), list(dict.fromkeys(rules)), people[0], true[-1], false[-1]


_Theory: TypeAlias = tuple[list[tuple[str, str]], list[_Rule], str, str, str]
"""Facts, rules, a person, a trait that follows for the person in `depth` steps, and one that does not."""


def _chain(random: Random, traits: list[str], extras: list[str]) -> tuple[list[_Rule], list[str]]:
    """Return rules from each trait to the next, some with an extra condition, and these conditions."""
    rules, used = [], []
    for before, after in pairwise(traits):
        conditions: tuple[str, ...] = (before,)
        if random.random() < 0.3:
            extra = random.choice(extras)
            used.append(extra)
            conditions = (before, extra)
        rules.append(_Rule(conditions, after))
    return rules, used


class ProofEnv(QaEnv):
    r"""Say whether a statement follows from facts and rules.

    Action: ``\boxed{True}`` or ``\boxed{False}``; the last box with an answer counts.

    Rewards: 1 for the right answer, 0 for anything else. One step. Half of the statements are true, so
    guessing earns 0.5 on average. `max_return` is 1; the oracle reaches it.
    """

    possible_answers = 2

    def __init__(
        self,
        depth: int = 2,
        split: DataSplit = "train",
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
            distractors: Whether to add a chain of rules that does not apply to the person, and other facts
                and rules. Without them, an item is about one person, there are fewer items (at depth 0, a
                fact and a statement), and at depth 1 and above a statement follows if some rule ends in its
                trait.

        Raises:
            ConfigError: A value is out of range or of the wrong type.
        """
        check_int("depth", depth, 0, 5)
        self.keys = "question", "answer"
        self.set_form("boxed")
        self.use_rows(ProofRows(depth, split, size, seed, distractors))

    def question(self, row: DataRow) -> str:
        return (
            f"{row['question']}\nWhat cannot be derived is false. "
            "Answer with \\boxed{True} or \\boxed{False}."
        )

    def verify(self, action: str) -> bool | None:
        """Return whether the verdict in the box follows, by a derivation from the text."""
        from gem_envs._generated.second_solvers.proofs import follows

        self._require_running("verify")
        answer = boxed_answer(action)
        return (answer == "True") == follows(self.row["question"]) if answer in ("True", "False") else None

    def random_answer(self, row: DataRow, random: Random) -> str:
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

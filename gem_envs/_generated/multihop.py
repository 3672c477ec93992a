"""Questions that require several documents: a small fictional world, its encyclopedia, and paths through it.

All items of a seed share a world; its documents can be written to a file for a search index:

    World(seed=0).documents()  ->  [{"id": "0", "title": "Ladonia Varn", "text": "Ladonia Varn is ..."}, ...]
"""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from itertools import pairwise
from pathlib import Path
from random import Random
from typing import NamedTuple, TypedDict

from gem_core._util.checks import check_int
from gem_core._util.files import write_json_lines
from gem_core._util.seeds import derive_rng
from gem_envs.data import GeneratedRows
from gem_envs.data._rows import DataRow, DataSplit
from gem_envs.datasets._qa import QaEnv

_SYLLABLES = (  # noqa: SIM905  # a list of fifty strings is harder to read
    "ba be bo da de do fa fi ga go ha he ja jo ka ke ko la le lo ma me mi mo na ne no pa pe ra re ri ro "
    "sa se so ta te to va ve vi wa za zo"
).split()
_SIZES = {"person": 120, "city": 40, "country": 12, "company": 40, "book": 60, "river": 12}


class _Relation(NamedTuple):
    subject: str
    object: str
    sentence: str
    """Sentence of a document, about {s} and {o}."""
    phrase: str
    """Description of the object in a question, with {s} for the subject."""


_RELATIONS = (
    _Relation("person", "city", "{s} was born in {o}.", "the city where {s} was born"),
    _Relation("person", "city", "{s} lives in {o}.", "the city where {s} lives"),
    _Relation("person", "company", "{s} works for {o}.", "the company that {s} works for"),
    _Relation("person", "person", "{s} learned the trade from {o}.", "the teacher of {s}"),
    _Relation("city", "country", "{s} lies in {o}.", "the country in which {s} lies"),
    _Relation("city", "river", "{s} was built on the banks of the {o}.", "the river on which {s} was built"),
    _Relation("city", "person", "The mayor of {s} is {o}.", "the mayor of {s}"),
    _Relation(
        "company", "city", "{s} has its headquarters in {o}.", "the city where {s} has its headquarters"
    ),
    _Relation("company", "city", "{s} has a factory in {o}.", "the city where {s} has a factory"),
    _Relation("company", "person", "{s} was founded by {o}.", "the founder of {s}"),
    _Relation("book", "person", "{s} was written by {o}.", "the author of {s}"),
    _Relation("book", "company", "{s} was published by {o}.", "the publisher of {s}"),
    _Relation("country", "city", "The capital of {s} is {o}.", "the capital of {s}"),
    _Relation("country", "person", "{s} is led by {o}.", "the leader of {s}"),
)
_SEARCH = "The facts are in an encyclopedia: search it with a tool before you answer."
_ASK = ("What is the name of {p}?", "Name {p}.", "What is {p} called?", "Find out the name of {p}.")


class EncyclopediaPage(TypedDict):
    """One page of the encyclopedia."""

    id: str
    title: str
    text: str


class World:
    """Named entities, with one object for every relation of each."""

    def __init__(self, seed: int) -> None:
        random = derive_rng("world", seed)
        taken: set[str] = set()
        self.names = {kind: [_name(random, kind, taken) for _ in range(n)] for kind, n in _SIZES.items()}
        self.kinds = {name: kind for kind, names in self.names.items() for name in names}
        self.links: dict[tuple[str, int], str] = {}
        for index, relation in enumerate(_RELATIONS):
            for subject in self.names[relation.subject]:
                used = {subject, *(self.links.get((subject, n)) for n in range(index))}
                others = [name for name in self.names[relation.object] if name not in used]
                self.links[subject, index] = random.choice(others)
        order = list(self.kinds)
        random.shuffle(order)
        self._documents: dict[str, EncyclopediaPage] = {
            title: {"id": str(index), "title": title, "text": self._text(title)}
            for index, title in enumerate(order)
        }

    def documents(self) -> list[EncyclopediaPage]:
        """Return the whole encyclopedia, one page per entity."""
        return [document.copy() for document in self._documents.values()]

    def document(self, title: str) -> EncyclopediaPage:
        """Return the page of one entity."""
        return self._documents[title]

    def write(self, path: str | Path) -> None:
        """Write the documents as JSON Lines, for a search index."""
        write_json_lines(path, self._documents.values())

    def relations(self, kind: str) -> list[int]:
        """Return the relations whose subject is of this kind."""
        return [index for index, relation in enumerate(_RELATIONS) if relation.subject == kind]

    def objects(self, title: str) -> list[str]:
        """Return the other entities that a page mentions."""
        return [self.links[title, relation] for relation in self.relations(self.kinds[title])]

    def _text(self, title: str) -> str:
        kind = self.kinds[title]
        article = "an" if kind[0] in "aeiou" else "a"
        sentences = [
            _RELATIONS[r].sentence.format(s=title, o=self.links[title, r]) for r in self.relations(kind)
        ]
        return " ".join([f"{title} is {article} {kind}.", *sentences])


@lru_cache(maxsize=4)
def world(seed: int) -> World:
    """Return the world of a seed, built once per process."""
    return World(seed)


class MultiHopRows(GeneratedRows):
    """Questions along a path of `hops` relations."""

    columns: tuple[str, ...] = ("question", "answer", "titles")
    key = "question"

    def __init__(self, hops: int, split: DataSplit, size: int, seed: int) -> None:
        super().__init__(split, size, seed)
        self.hops = hops
        self.world = world(seed)

    @property
    def templates(self) -> int:
        """Number of questions that differ in more than names: paths through the kinds, in four wordings."""
        paths = [[kind] for kind in _SIZES]
        for _ in range(self.hops):
            paths = [[*path, r.object] for path in paths for r in _RELATIONS if r.subject == path[-1]]
        return len(_ASK) * len(paths)

    def draw(self, random: Random) -> DataRow:
        while True:
            start = here = random.choice(self.world.names[random.choice(list(_SIZES))])
            phrase, titles = start, [start]
            for _ in range(self.hops):
                choices = self.world.relations(self.world.kinds[here])
                if not choices:  # a river is not the subject of any relation
                    break
                relation = random.choice(choices)
                phrase = _RELATIONS[relation].phrase.format(s=phrase)
                here = self.world.links[here, relation]
                titles.append(here)
            if len(titles) == self.hops + 1 and len(set(titles)) == len(titles):
                question = random.choice(_ASK).format(p=phrase)
                return {"question": question, "answer": here, "titles": titles[:-1]}


class MultiHopEnv(QaEnv):
    """Answer a question that needs several facts.

    Action: the name in ``<answer>...</answer>``; the last one counts.

    Rewards: 1 for the right name, ignoring letter case, punctuation, and articles; 0 for anything else. One
    step. `max_return` is 1; the oracle reaches it.

    With `documents`, the question contains the facts, among others; with 0, they must be found by searching
    the documents of `World`: such an environment needs a search tool, which the wrapper
    ``tools(tools="search(corpus='multihop')")`` adds.
    """

    def __init__(
        self,
        hops: int = 2,
        documents: int = 8,
        split: DataSplit = "train",
        size: int = 100_000,
        seed: int = 0,
    ) -> None:
        """Set the size of the questions.

        Args:
            hops: Number of facts that a question needs, from 1 to 4.
            documents: Number of pages in the question, including the needed ones; 0 for none.
            split: "train" or "test"; they share the world but no question.
            size: Number of items.
            seed: Random seed of the world.

        Raises:
            ConfigError: A value is out of range or of the wrong type.
        """
        check_int("hops", hops, 1, 4)
        check_int("documents", documents, 0, 100)
        if documents:
            check_int("documents", documents, hops)
        self.documents = documents
        self.keys = "question", "answer"
        self.set_form("tag")
        self.use_rows(MultiHopRows(hops, split, size, seed))
        self.world = world(seed)

    def question(self, row: DataRow) -> str:
        question = super().question(row)
        if not self.documents:
            return f"{_SEARCH}\n\n{question}"
        pages = "\n".join(self.world.document(title)["text"] for title in self.shown(row))
        return f"{pages}\n\n{question}"

    def shown(self, row: DataRow) -> list[str]:
        """Return the titles of the pages in the question: the required ones and distractors, shuffled.

        The first distractors are pages that a required page mentions in place of the next one (the city where
        someone lives instead of the city of birth). The others are of the same kind as the last required
        page. Thus neither the outermost relation of the question nor the kind of a page reveals the right
        page.
        """
        random = Random(row["question"])
        needed = row["titles"]
        kinds = self.world.kinds
        lures = [
            title
            for here, following in pairwise(needed)
            for title in self.world.objects(here)
            if kinds[title] == kinds[following] and title not in needed
        ]
        same = [title for title in self.world.names[kinds[needed[-1]]] if title not in (*needed, *lures)]
        every = [title for title in kinds if title not in (*needed, *lures, *same)]
        others = [*dict.fromkeys(lures), *_shuffled(random, same), *_shuffled(random, every)]
        titles = [*needed, *others[: max(0, self.documents - len(needed))]]
        random.shuffle(titles)
        return titles

    def verify(self, action: str) -> bool | None:
        """Return whether the answer is the only name that the pages give in any reading of the question.

        The pages are those in the question, or the whole encyclopedia if the question has none.
        """
        from gem_envs._generated.second_solvers.documents import named

        self._require_running("verify")
        answer = self.parse(action)
        if answer is None:
            return None
        shown = self.question(self.row).partition("\n\n")[0].splitlines()
        pages = shown if self.documents else [page["text"] for page in self.world.documents()]
        names = named(self.row["question"], pages)
        return len(names) == 1 and answer.casefold().split() == names.pop().casefold().split()

    def random_answer(self, row: DataRow, random: Random) -> str:
        """Return a name that the shown pages mention, or any name of this world."""
        shown = self.shown(row) if self.documents else []
        names = [name for title in shown for name in self.world.objects(title)]
        return f"<answer>{random.choice(names or list(self.world.kinds))}</answer>"


def _shuffled(random: Random, titles: list[str]) -> list[str]:
    return random.sample(titles, len(titles))


def _name(random: Random, kind: str, taken: set[str]) -> str:
    """Return an unused name."""

    def word(low: int, high: int) -> str:
        return "".join(random.choices(_SYLLABLES, k=random.randint(low, high))).capitalize()

    forms: dict[str, Callable[[], str]] = {
        "person": lambda: f"{word(2, 3)} {word(2, 3)}n",
        "city": lambda: f"{word(2, 3)}burg",
        "country": lambda: f"{word(2, 3)}nia",
        "company": lambda: f"{word(2, 2)} Works",
        "book": lambda: f"The Book of {word(2, 3)}",
        "river": lambda: f"{word(1, 2)}l",
    }
    while True:
        name = forms[kind]()
        if name not in taken:
            taken.add(name)
            return name

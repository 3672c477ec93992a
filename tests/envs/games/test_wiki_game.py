from __future__ import annotations

import re

import pytest

import gem_core
from gem_core.errors import ConfigError
from gem_envs._games.data import read_lines
from gem_envs._games.wiki_game import WikiGame
from gem_envs._games.wiki_pages import BundledPages, Page, distances, within
from tests.envs.games.players import oracle_return, say

PAGES = {
    "A": Page("A", "First. Second one. Third.", ("B", "C c", "End")),
    "B": Page("B", "b", ("A", "D")),
    "C c": Page("C c", "c", ("A",)),
    "D": Page("D", "d", ("Goal",)),
    "End": Page("End", "Nothing more.", ()),
    "Goal": Page("Goal", "The goal.", ()),
}


class FakePages:
    """Pages in a dict, for rules that the bundled encyclopedia never triggers."""

    def page(self, title):
        return PAGES.get(title)

    def random_page(self, random):
        return PAGES["A"]


def start(variant: str = "noregrets", turns: int = 10, **kwargs) -> WikiGame:
    env = WikiGame(max_turns=turns, variant=variant, **kwargs)
    env.reset(seed=0)
    env.pages = FakePages()
    env.target = {"title": "Goal", "text": "The goal.", "links": []}
    env.trail, env.listed = [], []
    env._show(PAGES["A"])
    return env


def play(env: WikiGame, *moves: str):
    """Play the moves and return the result of the last step."""
    for move in moves:
        step = env.step(say(move))
    return step


def test_golden_game():
    env = start()
    observation, reward, terminated, _, info = env.step(say("B"))
    assert (observation, reward, terminated) == ("You are on B.", -0.05, False)
    assert (
        info["suffix"] == "You are on the page B: b\nYou may go to:\n- A\n- D\nTarget: Goal.\nTurns left: 9."
    )
    observation, reward, terminated, truncated, info = play(env, "D", "Goal")
    assert (observation, reward, terminated, truncated) == ("You reached Goal.", 1.0, True, False)
    assert (info["success"], info["metrics"]) == (True, {"progress": 1.0})


@pytest.mark.parametrize("title", ["C c", "c_c", "C C", " c c "])
def test_case_and_underscores_do_not_matter(title):
    assert start().step(say(title))[0] == "You are on C c."


@pytest.mark.parametrize("variant", ["noregrets", "oneback", "freenav", "eidetic"])
def test_an_illegal_move_costs_and_the_game_continues(variant):
    env = start(variant)
    for title in ("D", "Nowhere", "x" * 1000):
        observation, reward, terminated, truncated, info = env.step(say(title))
        assert (reward, terminated, truncated, info["invalid"]) == (-0.2, False, False, "illegal")
        assert len(observation) < 120
    assert env.current["title"] == "A"


def test_a_format_error_costs_and_the_game_continues():
    env = start(turns=2)
    _, reward, terminated, truncated, info = env.step("I do not know.")
    assert (reward, terminated, truncated, info["invalid"]) == (-0.2, False, False, "format")
    assert "Turns left: 1." in info["suffix"]
    _, reward, terminated, truncated, info = env.step(r"\boxed{ }")
    assert (reward, terminated, truncated, info["success"]) == (-0.2, False, True, False)


def test_turn_limit_truncates():
    assert play(start(turns=2), "B", "A")[1:4] == (-0.05, False, True)


def test_a_page_without_links_ends_the_game_without_regrets():
    observation, reward, terminated, truncated, info = play(start(), "End")
    assert (observation, reward) == ("End links to nothing. You lost.", -0.05)
    assert (terminated, truncated, info["success"]) == (True, False, False)


@pytest.mark.parametrize("variant", ["oneback", "freenav"])
def test_a_page_without_links_sends_back_and_costs_two_turns(variant):
    env = start(variant)
    assert play(env, "End")[1:3] == (-0.1, False)
    assert (env.current["title"], env.turn) == ("A", 2)
    env = start(variant, turns=1)
    assert play(env, "End")[1:4] == (-0.1, False, True)


def test_eidetic_goes_to_any_listed_page_and_forgets_between_episodes():
    env = start("eidetic")
    assert play(env, "B", "C c")[0] == "You are on C c."
    assert play(env, "End")[:3] == ("You are on End.", -0.05, False)  # others are still listed
    assert play(env, "D", "Goal")[1] == 1.0
    env = WikiGame(variant="eidetic")
    for seed in range(5):
        env.reset(seed=seed)
        assert env.listed == env.current["links"]


@pytest.mark.parametrize("variant", ["noregrets", "eidetic"])
def test_no_way_back(variant):
    assert play(start(variant), "B", "<PREV_PAGE>")[0] == "There is no going back in this variant."


def test_going_back():
    one, free = start("oneback"), start("freenav")
    for env in (one, free):
        assert play(env, "<PREV_PAGE>")[:2] == ("This is the first page.", -0.2)
        assert play(env, "B", "A", "<PREV_PAGE>")[:2] == ("You are back on B.", -0.05)
    assert play(one, "<PREV_PAGE>")[:2] == ("You went back already.", -0.2)
    assert play(free, "<PREV_PAGE>")[:2] == ("You are back on A.", -0.05)
    assert play(one, "D", "<PREV_PAGE>")[0] == "You are back on B."


@pytest.mark.parametrize(
    ("length", "shown"),
    [
        ((5, "characters"), "First..."),
        ((100, "characters"), "First. Second one. Third."),
        ((2, "words"), "First. Second..."),
        ((2, "sentences"), "First. Second one..."),
    ],
)
def test_summaries(length, shown):
    env = start(page_summary_length=length)
    assert env.board().splitlines()[0] == f"You are on the page A: {shown}"


def test_the_encyclopedia():
    lines = read_lines("encyclopedia.txt")
    titles = [line.split("\t")[0] for line in lines]
    assert len(titles) == len(set(titles)) > 400
    for title in titles:
        page = BundledPages().page(title)
        assert page is not None
        assert page.links
        assert set(page.links) <= set(titles)
        assert len(distances(title)) == len(titles)  # reachable from every page
        assert not re.search(r"[\[\]]", page.text)
        assert title not in page.links
    assert max(max(distances(title).values()) for title in titles) <= 10


@pytest.mark.parametrize("turns", [1, 2, 3])
def test_targets_are_within_the_turns(turns):
    env = WikiGame(max_turns=turns)
    for seed in range(30):
        env.reset(seed=seed)
        away = distances(env.target["title"])[env.current["title"]]
        assert min(2, turns) <= away <= turns
        assert env.target["title"] in within(env.current["title"], turns)


@pytest.mark.parametrize("variant", ["noregrets", "oneback", "freenav", "eidetic"])
def test_the_oracle_takes_a_shortest_path(variant):
    env = WikiGame(max_turns=15, variant=variant)
    for seed in range(20):
        env.reset(seed=seed)
        away = distances(env.target["title"])[env.current["title"]]
        assert oracle_return(env, seed) == pytest.approx(1 - 0.05 * (away - 1))


def test_random_variant_draws_turns_and_rules():
    env = gem_core.make("game:WikiGame-v0-random")
    drawn = set()
    for seed in range(60):
        observation, _ = env.reset(seed=seed)
        drawn.add((env.turn_limit, env.variant))
        assert ("<PREV_PAGE>" in observation) == (env.variant in ("oneback", "freenav"))
    assert len(drawn) == 8


@pytest.mark.parametrize(
    "kwargs",
    [
        {"max_turns": 0}, {"max_turns": None}, {"variant": "regrets"}, {"backend": "wikipedia"},
        {"page_summary_length": (100, "pages")}, {"page_summary_length": (0, "words")},
        {"page_summary_length": [1]}, {"page_summary_length": 5}, {"variant": ["eidetic"]},
        {"backend": ["mw"]},
        {"backend": "mw", "trawler_kwargs": "url"}, {"page_summary_length": ([1], "words")},
        {"trawler_kwargs": {"url": "x"}},
        {"backend": "mw", "trawler_kwargs": {"zimfile": "x"}},
        {"backend": "kiwix", "trawler_kwargs": {"url": 5}},
        {"backend": "kiwix", "trawler_kwargs": {"url": "ftp://x"}},
        {"backend": "mw", "trawler_kwargs": {"query_delay_ms": -1}},
    ],
)  # fmt: skip
def test_impossible_arguments_are_rejected(kwargs):
    with pytest.raises(ConfigError):
        WikiGame(**kwargs)

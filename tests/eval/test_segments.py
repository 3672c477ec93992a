"""The rows, threads, and side calls of an episode on its page, from the tokens of a trace alone."""

from __future__ import annotations

import copy
from dataclasses import replace
from typing import Any

import pytest

from gem_core.rollout import Episode, Thread, Turn
from gem_core.rollout._turn import Prompts
from gem_lab.eval._segments import segments_of
from tests.eval.traces import EVIL, episode

SYSTEM, TASK, MORE = "<s>You are an agent. ", "Find the gem. ", "Go on. "
THOUGHT = "<think>Where may it be?</think>"


def tokens(text: str) -> list[int]:
    return [ord(character) for character in text]


TEXTS = {code: chr(code) for code in range(128)}


def played(*turns: tuple[str, str], **changes: Any) -> Episode:
    """Return an episode of prompts and responses."""
    prompts = Prompts()
    made = []
    for prompt, response in turns:
        parent, context = prompts.add(tokens(prompt), tokens(response))
        made.append(Turn(context, tokens(response), None, 0.0, "o", response, "stop", parent=parent))
    for index, thread in changes.pop("in_thread", {}).items():
        made[index].thread = thread
    return episode(*made, context_mode="rebuild", **changes)


FIRST = (SYSTEM + TASK, THOUGHT + "Here?")
HISTORY = "".join(FIRST) + MORE
LONG = HISTORY + "".join(f"Step {number}. " for number in range(40))

SHAPES: dict[str, tuple[Episode, list[tuple[list[int], str, str, int | None]]]] = {
    "thinking dropped": (
        played(FIRST, (HISTORY.replace(THOUGHT, ""), "There.")),
        [([0], "first", "the first turn", None), ([1], "thinking", f"{len(THOUGHT)} tokens of thinking", 0)],
    ),
    "thinking emptied": (
        played(FIRST, (HISTORY.replace("Where may it be?", ""), "There.")),
        [([0], "first", "the first turn", None), ([1], "thinking", "16 tokens of thinking", 0)],
    ),
    "observation rewritten": (
        played(FIRST, (HISTORY, "a"), (f"{HISTORY.replace('the gem', 'a pearl')}a{MORE}", "b")),
        [([0, 1], "first", "the first turn", None), ([2], "rewritten", "differs from token 27 on", 0)],
    ),
    "left out": (
        played(FIRST, (LONG, "There"), (LONG.replace("Step 3. Step 4. ", "") + "There" + MORE, "b")),
        [([0, 1], "first", "the first turn", None), ([2], "rewritten", "16 tokens were left out", 1)],
    ),
    "added": (
        played(
            FIRST,
            (HISTORY, "There"),
            (HISTORY.replace(MORE, "Be quick. " + MORE) + "There" + MORE, "b"),
        ),
        [([0, 1], "first", "the first turn", None), ([2], "rewritten", "10 tokens were added", 1)],
    ),
    "compaction": (
        played(FIRST, (LONG, "a"), (SYSTEM + "So far: nothing. ", "b")),
        [([0, 1], "first", "the first turn", None), ([2], "shorter", "38 tokens, of which 21 are", 0)],
    ),
    "changed in two places": (
        played(
            FIRST, (LONG, "There"), (LONG.replace("Step 3. ", "").replace("Step 9", "Stop") + "There", "b")
        ),
        [([0, 1], "first", "the first turn", None), ([2], "rewritten", "differs from token 108 on", 1)],
    ),
    "cut back": (
        played((LONG, "a"), (HISTORY, "b")),
        [([0], "first", "the first turn", None), ([1], "cut back", f"after {len(HISTORY)} known", 0)],
    ),
    "another conversation": (
        played(FIRST, ("<s>Title? " * 5, "Gems")),
        [([0], "first", "the first turn", None), ([1], "conversation", "3 of its 50 tokens", None)],
    ),
    "parallel calls": (
        played(FIRST, *((f"{HISTORY} Part {part}.", "Done.") for part in "xyz")),
        [
            ([0, 1], "first", "the first turn", None),
            ([2], "branch", "another turn continues the same tokens", 0),
            ([3], "branch", "another turn continues the same tokens", 0),
        ],
    ),
    "asked again": (
        played(FIRST, (HISTORY, "a"), (HISTORY, "b")),
        [([0, 1], "first", "the first turn", None), ([2], "repeated", "the same prompt again", 1)],
    ),
    "sub-agent": (
        played(
            FIRST, ("<s>Search. ", "a"), ("<s>Search. a. ", "b"), (HISTORY, "c"),
            threads={1: Thread(0, 0)}, in_thread={1: 1, 2: 1},
        ),
        [([0, 3], "first", "the first turn", None), ([1, 2], "thread", "a new thread: sub-agent", 0)],
    ),
}  # fmt: skip


@pytest.mark.parametrize("shape", SHAPES)
def test_each_row_says_why_it_was_opened(shape: str) -> None:
    played, expected = SHAPES[shape]
    segments = segments_of(played, TEXTS)
    assert segments is not None
    assert [list(row["turns"]) for row in segments["rows"]] == [turns for turns, *_ in expected]
    for row, (_, kind, why, about) in zip(segments["rows"], expected, strict=True):
        assert (row["kind"], row["about"]) == (kind, about)
        assert why in row["why"]
    rows = played.rows()
    assert [row["prompt"] + row["sampled"] + row["between"] for row in segments["rows"]] == [*map(len, rows)]
    assert sum(row["sampled"] for row in segments["rows"]) == played.num_response_tokens


def test_a_turn_that_could_continue_a_row_but_names_no_parent_is_told() -> None:
    shown = played(FIRST, (HISTORY, "a"))
    shown.turns[1].parent, shown.turns[1].context_ids = None, tokens(HISTORY)
    segments = segments_of(shown, TEXTS)
    assert segments is not None
    assert (segments["rows"][1]["kind"], segments["rows"][1]["about"]) == ("continued", 0)


def test_an_episode_of_one_row_has_no_segments() -> None:
    assert segments_of(played(FIRST, (HISTORY, "a")), TEXTS) is None
    assert segments_of(episode(), TEXTS) is None


def test_a_difference_is_shown_with_the_text_around_it() -> None:
    changed, _ = SHAPES["observation rewritten"]
    segments = segments_of(changed, TEXTS)
    assert segments is not None
    difference = segments["rows"][1]["difference"]
    assert (difference["at"], difference["turn"], difference["part"]) == (26, 0, "prompt")
    assert (difference["before"], difference["was"], difference["is"]) == (
        "agent. Find ", "the gem. <th", "a pearl. <th",
    )  # fmt: skip
    unknown = segments_of(changed, {})
    assert unknown is not None
    assert unknown["rows"][1]["difference"]["was"].startswith("⟨116⟩⟨104⟩")


def test_rows_of_an_episode_that_is_not_trained_are_shown() -> None:
    segments = segments_of(replace(SHAPES["asked again"][0], trainable=False), TEXTS)
    assert segments is not None
    assert len(segments["rows"]) == 2


SHORT = SYSTEM + "So far: nothing. "
KINDS: dict[str, tuple[Episode, dict[int, str]]] = {
    "sub-agent": (SHAPES["sub-agent"][0], {0: "main", 1: "sub-agent"}),
    "parallel": (
        played(
            FIRST, ("<s>One. ", "a"), ("<s>Two. ", "b"), (HISTORY, "c"),
            threads={1: Thread(0, 0, True), 2: Thread(0, 0, True)}, in_thread={1: 1, 2: 2},
        ),
        {0: "main", 1: "sub-agent, 2 in parallel", 2: "sub-agent, 2 in parallel"},
    ),
    "compaction": (
        played(
            (LONG, "a"), (LONG + "a Summarize!", "b"), (SHORT, "c"),
            threads={1: Thread(0, 2)}, in_thread={1: 1},
        ),
        {0: "main", 1: "compaction"},
    ),
    "rejected attempt": (
        played(
            FIRST, (HISTORY, "no"), (HISTORY, "yes"), threads={1: Thread(0, 2)}, in_thread={1: 1},
        ),
        {0: "main", 1: "rejected attempt"},
    ),
    "rejected at the start": (
        played(FIRST, FIRST, threads={1: Thread(None, 1)}, in_thread={0: 1}),
        {0: "main", 1: "rejected attempt"},
    ),
    "background": (
        played(
            FIRST, ("<s>Watch. ", "a"), (HISTORY, "b"), (HISTORY + "b" + MORE, "c"),
            threads={1: Thread(0, 3)}, in_thread={1: 1},
        ),
        {0: "main", 1: "background"},
    ),
    "no result": (
        played(FIRST, ("<s>Title? ", "a"), (HISTORY, "b"), threads={1: Thread(0, None)}, in_thread={1: 1}),
        {0: "main", 1: "background, its result is not used"},
    ),
    "side call": (
        played(FIRST, ("<s>Which? ", "a"), (HISTORY, "b"), threads={1: Thread(0, 2)}, in_thread={1: 1}),
        {0: "main", 1: "side call"},
    ),
}  # fmt: skip


@pytest.mark.parametrize("shape", KINDS)
def test_each_thread_says_what_it_is_and_where_it_belongs(shape: str) -> None:
    played, kinds = KINDS[shape]
    segments = segments_of(played, TEXTS)
    assert segments is not None
    assert {thread["number"]: thread["kind"] for thread in segments["threads"]} == kinds
    for thread in segments["threads"][1:]:
        link = played.threads[thread["number"]]
        assert (thread["called_by"], thread["returns_to"], thread["independent"]) == link
        assert all(played.turns[turn].thread == thread["number"] for turn in thread["turns"])


def test_a_summary_of_the_own_loop_is_a_compaction() -> None:
    summarized = copy.deepcopy(KINDS["side call"][0])
    summarized.turns[1].info["side_turn"] = True
    segments = segments_of(summarized, TEXTS)
    assert segments is not None
    assert segments["threads"][1]["kind"] == "compaction"


GATEWAY = {"calls": 3, "rows": 2, "recognized": 1, "spliced": 0, "foreign": 1, "refused": 1, "lost": 1}
LOG = {
    "opened": {"0": {"kind": "first", "why": "the first call"},
               "2": {"kind": "rewritten", "why": EVIL, "turn": 1}},
    "refused": [{"after": 1, "code": "not_found", "why": EVIL}],
    "foreign": [{"after": 2, "text": EVIL, "count": 3}],
    "lost": [{"after": 0, "text": EVIL, "tokens": 7}],
}  # fmt: skip


def test_what_a_gateway_knows_is_shown() -> None:
    metadata = {"gateway": GATEWAY, "gateway_log": LOG, "harness_error": "it fell"}
    segments = segments_of(replace(SHAPES["observation rewritten"][0], metadata=metadata), TEXTS)
    assert segments is not None
    assert [(row["kind"], row["why"], row["about"]) for row in segments["rows"]] == [
        ("first", "the first call", None), ("rewritten", EVIL, 1),
    ]  # fmt: skip
    assert segments["rows"][1]["difference"]["at"] == 26  # where the tokens differ is known beside it
    assert segments["harness"]["counts"] == GATEWAY
    assert segments["harness"]["error"] == "it fell"
    assert [entry["what"] for entry in segments["harness"]["aside"]] == [
        "refused", "not sampled here", "lost",
    ]  # fmt: skip


@pytest.mark.parametrize(
    "log", [None, 3, "x", {"opened": 3}, {"opened": {"2": 3}}, {"opened": {"2": {"turn": 99}}}, {"lost": [1]}]
)
def test_a_log_that_is_no_log_is_ignored(log: Any) -> None:
    metadata = {"gateway": GATEWAY, "gateway_log": log}
    segments = segments_of(replace(SHAPES["observation rewritten"][0], metadata=metadata), TEXTS)
    assert segments is not None
    assert len(segments["rows"]) == 2
    assert segments["harness"]["aside"] == []

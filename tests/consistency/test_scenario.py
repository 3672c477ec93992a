"""gem_core's shared step contains every intended case, and the oracle agrees."""

from __future__ import annotations

import json

from tests.consistency.cases import Case, expected, largest_difference, trainable
from tests.consistency.scenario import GAMMA, TASKS, TOKENS_PER_TURN, TOOL, scenario
from tests.support import needs

pytestmark = needs("transformers", "train")


def test_the_step_contains_every_course_of_an_episode() -> None:
    core = scenario().core()
    assert {played.stop_reason for played in core.episodes} == {
        "terminated",
        "truncated",
        "max_turns",
        "token_budget",
        "env_error",
    }
    turns = [played.turn_ids.count(n) for played in trainable(core) for n in range(len(played.advantages))]
    assert min(turns) == 1  # only an end-of-turn token
    assert max(turns) == TOKENS_PER_TURN  # cut by the limit
    assert any(reward not in (0.0, 1.0, -0.1) for played in core.episodes for reward in played.rewards or [])
    assert any(played.rewards and len(played.rewards) > 2 for played in core.episodes)
    assert any(-0.1 in (played.rewards or []) for played in core.episodes)  # a format error
    assert [0.0, 1.0] in [played.rewards for played in core.episodes if played.env_id == TOOL]  # a call


def test_the_step_with_several_rows_contains_every_kind_of_row() -> None:
    for name in ("core-rows", "core-rows-without-budget"):
        episodes = trainable(scenario().core(name))
        shapes = {(len(played.advantages), len(played.row_lengths) or 1) for played in episodes}
        assert {(1, 1), (2, 1), (2, 2), (4, 2)} <= shapes  # turns and rows
        for played in episodes:
            assert sum(played.row_lengths) in (0, len(played.token_ids))


def test_no_prompt_after_the_first_is_shared() -> None:
    """Otherwise the answers would depend on the order of the requests."""
    made = scenario()
    first = {tuple(played.token_ids[: played.turn_ids.index(0)]) for played in trainable(made.core())}
    for script in (made.script, made.rows_script):
        answers = json.loads(script.read_text())
        shared = {tuple(map(int, prompt.split())) for prompt, many in answers.items() if len(many) > 1}
        assert len(shared) == TASKS
        assert len(first) == TASKS - 1  # one task fails
        assert first < shared


def test_some_responses_are_not_what_the_tokenizer_would_make_of_their_text() -> None:
    from transformers import AutoTokenizer

    shared = scenario()
    tokenizer = AutoTokenizer.from_pretrained(shared.model)
    answers = [answer for many in json.loads(shared.script.read_text()).values() for answer, *_ in many]
    again = [tokenizer.encode(tokenizer.decode(ids), add_special_tokens=False) for ids in answers]
    assert any(ids != other for ids, other in zip(answers, again, strict=True))


def test_the_record_of_gem_core_is_what_the_oracle_says() -> None:
    for name in ("core", "core-without-budget", "core-rows", "core-rows-without-budget"):
        episodes = trainable(scenario().core(name))
        wanted = expected(Case("rebn", GAMMA), episodes)
        assert largest_difference([played.advantages for played in episodes], wanted) <= 1e-9

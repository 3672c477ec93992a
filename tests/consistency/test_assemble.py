"""The comparison of episodes with several rows finds a loss without the factors of rows."""

from __future__ import annotations

import copy
from typing import Any

import pytest

from tests.support import needs

pytestmark = needs("transformers", "train")

torch = pytest.importorskip("torch")

from gem_core.rollout import Episode  # noqa: E402
from gem_core.trainers._weights import row_factors  # noqa: E402
from gem_lab.consistency import Played, Record, compare  # noqa: E402
from tests.consistency import assemble  # noqa: E402
from tests.consistency.scenario import scenario  # noqa: E402
from tests.trainers.evidence import Row, Update  # noqa: E402


def rows_of(played: Played) -> list[Row]:
    """Return the rows of an episode as a loss consumes them."""
    rows, start = [], 0
    for length in played.row_lengths or [len(played.token_ids)]:
        tokens, turns = (values[start : start + length] for values in (played.token_ids, played.turn_ids))
        size = next(place for place, turn in enumerate(turns) if turn >= 0)
        advantages = [played.advantages[turn] if turn >= 0 else 0.0 for turn in turns]
        mask = [int(turn >= 0) for turn in turns]
        rows.append(Row(tokens[:size], tokens[size:], mask[size:], advantages[size:], [], None, None))
        start += length
    return rows


def mean_of_row_means(model: Any, rows: list[Row]) -> list[Any]:
    """Return the gradient of a loss that averages over rows of means."""
    loss = torch.zeros(())
    for row in rows:
        start = len(row.prompt)
        logits = model(torch.tensor([row.prompt + row.response])).logits[0, start - 1 : -1]
        logprobs = logits.log_softmax(-1).gather(1, torch.tensor(row.response)[:, None])[:, 0]
        weights = torch.tensor(row.advantages) * torch.tensor(row.mask)
        loss = loss - (weights * logprobs).sum() / sum(row.mask) / len(rows)
    return list(torch.autograd.grad(loss, list(model.parameters()), allow_unused=True))


@pytest.mark.parametrize("weighted", [True, False])
def test_a_mean_over_rows_equals_a_mean_over_episodes_with_factors_only(weighted: bool) -> None:
    from transformers import AutoModelForCausalLM, AutoTokenizer

    made = scenario()
    core = made.core("core-rows")
    tokenizer = AutoTokenizer.from_pretrained(made.model)
    model = AutoModelForCausalLM.from_pretrained(made.model, attn_implementation="eager").float()
    pairs = [
        (n, row) for n, played in enumerate(core.episodes) if played.trainable for row in rows_of(played)
    ]
    factors = row_factors("row means", [sum(row.mask) for _, row in pairs], [n for n, _ in pairs])
    assert len({round(factor, 6) for factor in factors}) > 2
    for (_, row), factor in zip(pairs, factors, strict=True):
        row.advantages = [value * (factor if weighted else 1.0) for value in row.advantages]
    rows = [row for _, row in pairs]
    weights = [parameter.detach().clone() for parameter in model.parameters()]
    gradient = assemble.gradient_difference(
        Update(rows, weights, mean_of_row_means(model, rows)), core, model, episode_means=True
    )
    carried = [
        (rows_of(played)[0].prompt + rows_of(played)[0].response if played.trainable else [], outline(played))
        for played in reversed(core.episodes)
    ]
    episodes = assemble.from_row_means(rows[::-1], carried, tokenizer)
    found = compare(core, Record("mine", {}, "", core.model, episodes, "core-rows", gradient=gradient))
    assert [found.levels[level].equal for level in (1, 2, 3)] == [True, weighted, weighted], found


def outline(played: Played) -> Episode:
    """Return the episode without tokens."""
    episode = assemble.episode_of(copy.deepcopy(played))
    for turn in episode.turns:
        turn.context_ids, turn.response_ids = [], []
    episode.terminated, episode.truncated = bool(played.terminated), bool(played.truncated)
    episode.stop_reason = played.stop_reason  # type: ignore[assignment]
    return episode

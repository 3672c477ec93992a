"""Measures of a language model that plays both sides of Kuhn poker."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Mapping, Sequence
from itertools import chain, permutations, product
from pathlib import Path
from typing import TypeAlias

import torch

from gem_chat import AppendContext
from gem_chat._concurrency import play_tasks
from gem_core import rollout
from gem_envs._one_agent import random_player
from gem_envs.multiagent import OneAgent
from gem_envs.multiagent._kuhn_poker import ACTIONS, CARDS, KuhnPoker
from gem_envs.multiagent._turn_game import PLAYERS
from gem_lab._engines.loading import load_model, load_tokenizer
from gem_lab._engines.sampling import BatchingPolicy
from gem_lab.train import TrainConfig

HANDS = 3000
"""Hands on each side from which a policy is estimated."""

Situation: TypeAlias = tuple[int, str]
"""Knowledge of the acting player: their own card (0 to 2) and the actions so far, joined by spaces."""
Policy: TypeAlias = Mapping[Situation, Mapping[str, float]]
"""Probability of each possible action; the rest up to 1 is the probability of a forfeit."""


def measure(folder: Path, _options: object = None) -> dict[str, float]:
    """Return the measures of the model in a folder; the options of its run do not matter.

    Returns:
        "nash_conv": sum over both players of what a best response against the other gains, in chips per hand,
        0 for an equilibrium. "forfeits": probability that a hand ends with a forfeit. Both are computed from
        an estimated policy. The best response also uses the errors of the estimate, so "nash_conv" has a
        positive bias, about 0.01 at an equilibrium; its standard error is about 0.02 elsewhere.
    """
    policy = read_policy(folder)
    return {"nash_conv": nash_conv(policy), "forfeits": expected(policy, policy)[2]}


def nash_conv(policy: Policy) -> float:
    """Return the gains of a best response to the policy, summed over both players, in chips per hand."""
    first, second, _ = expected(policy, policy)
    best_first = max(expected(answer, policy)[0] for answer in _pure_policies(0))
    best_second = max(expected(policy, answer)[1] for answer in _pure_policies(1))
    return best_first - first + best_second - second


def expected(first: Policy, second: Policy) -> tuple[float, float, float]:
    """Return the expected chips of both players per hand, and the probability of a forfeit."""
    deals = list(permutations(range(len(CARDS)), 2))
    values = [_value((first, second), deal, "") for deal in deals]
    one, two, forfeits = (sum(column) / len(deals) for column in zip(*values, strict=True))
    return one, two, forfeits


def read_policy(folder: Path) -> Policy:
    """Estimate the policy of a model from sampled hands on both sides against random play.

    The environment reads the responses, so every spelling of an action that it accepts counts as this action,
    and everything else as a forfeit.
    """
    tokenizer = load_tokenizer(str(folder))
    responder = BatchingPolicy(
        load_model(str(folder), torch.device("cpu"), "float32"),
        eos_token_ids=[tokenizer.eos_token_id],
        pad_token_id=tokenizer.eos_token_id,
        reuse_prefix=False,  # the states of thousands of hands would fill the memory
    )
    return estimate_policy(responder, AppendContext(tokenizer))


def estimate_policy(responder: rollout.Policy, context: AppendContext) -> Policy:
    """Estimate what a responder does in each situation from `HANDS` hands on each side.

    A situation that no hand reached counts as a forfeit. Only the responder's own earlier actions can prevent
    it, so it has no influence on the measures.
    """
    tasks = list(product(PLAYERS, range(HANDS)))
    played = asyncio.run(play_tasks(tasks, lambda _, task: _play(responder, context, *task), at_once=512))
    counts: dict[Situation, Counter[str]] = {situation: Counter() for situation in _situations()}
    for choice, action in chain.from_iterable(played):
        counts[choice][action] += 1
    return {
        situation: {action: chosen[action] / chosen.total() for action in ACTIONS[situation[1]] if chosen}
        for situation, chosen in counts.items()
    }


async def _play(
    responder: rollout.Policy, context: AppendContext, player: str, seed: int
) -> list[tuple[Situation, str]]:
    """Play one side of a hand; return the situations of the player, and the action or "" for a forfeit."""
    game = KuhnPoker()
    episode = await rollout.run_episode(
        OneAgent(game, player, random_player),
        responder,
        context,
        rollout.EpisodeLimits(max_tokens_per_turn=TrainConfig.max_tokens_per_turn),
        seed=seed,
        request_id=f"{player}/{seed}",
    )
    actions = [*game.history.split(), ""]  # a forfeit ends the hand
    card, side = game.cards[player], PLAYERS.index(player)
    positions = range(side, side + 2 * len(episode.turns), 2)
    return [((card, " ".join(actions[:position])), actions[position]) for position in positions]


def _situations() -> list[Situation]:
    return list(product(range(len(CARDS)), ACTIONS))


def _pure_policies(side: int) -> list[Policy]:
    """Return all policies of the player who begins (0) or of the other (1) that never draw an action."""
    situations = [(card, history) for card, history in _situations() if len(history.split()) % 2 == side]
    choices = product(*(ACTIONS[history] for _, history in situations))
    return [
        {situation: {action: 1.0} for situation, action in zip(situations, chosen, strict=True)}
        for chosen in choices
    ]


def _value(policies: Sequence[Policy], deal: Sequence[int], history: str) -> tuple[float, float, float]:
    """Return the expected chips of both players and the probability of a forfeit after some actions."""
    side = len(history.split()) % 2
    actions = policies[side][deal[side], history]
    left = 1 - sum(actions.values())
    forfeit = [0.0, 0.0]
    forfeit[side] = KuhnPoker.format_error_reward
    totals = [left * forfeit[0], left * forfeit[1], left]
    for action, chance in actions.items():
        following = f"{history} {action}".strip()
        values = (
            _value(policies, deal, following)
            if following in ACTIONS
            else (*_payoffs(deal, side, action), 0.0)
        )
        totals = [total + chance * value for total, value in zip(totals, values, strict=True)]
    return totals[0], totals[1], totals[2]


def _payoffs(deal: Sequence[int], side: int, action: str) -> tuple[float, float]:
    """Return the chips of both players at the end of a hand."""
    if action == "fold":
        won = -1.0 if side == 0 else 1.0  # for the player who began
    else:
        won = (2.0 if action == "call" else 1.0) * (1 if deal[0] > deal[1] else -1)
    return won, -won

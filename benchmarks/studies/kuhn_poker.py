"""Exact measures of a language model that plays both sides of Kuhn poker."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from itertools import permutations, product
from pathlib import Path
from typing import TypeAlias

import torch

from gem_core.engines.loading import load_model, load_tokenizer
from gem_core.envs.multiagent.kuhn_poker import ACTIONS, CARDS, KuhnPoker
from gem_core.envs.multiagent.turn_game import PLAYERS
from gem_core.rollout import AppendContext, Episode, Generation
from gem_core.rollout.agents import run_agents
from gem_core.train.objective import compute_logprobs, make_batch

Situation: TypeAlias = tuple[int, str]
"""Knowledge of the acting player: their own card (0 to 2) and the actions so far, joined by spaces."""
Policy: TypeAlias = Mapping[Situation, Mapping[str, float]]
"""Probability of each possible action; the rest up to 1 is the probability of a forfeit."""


def measure(folder: Path) -> dict[str, float]:
    """Return the measures of the model in a folder.

    Returns:
        "nash_conv": sum over both players of what a best response against the other gains, in chips per hand,
        0 for an equilibrium. "forfeits": probability that a hand ends with a forfeit.
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
    """Return the policy of a model.

    The probability of an action is the probability of the tokens into which the tokenizer encodes it,
    followed by the end of the turn. Any other response counts as a forfeit, even if the environment accepts
    it. Training can lead to such responses; the measures are then wrong, and "forfeits" is far above the rate
    of format errors.
    """
    tokenizer = load_tokenizer(str(folder))
    model = load_model(str(folder), torch.device("cpu"), "float32")
    context = AppendContext(tokenizer)
    policy: dict[Situation, dict[str, float]] = {}
    played = [(history, asyncio.run(_play(tokenizer, context, history))) for history in _histories()]
    batch = make_batch([episode for _, hands in played for hand in hands for episode in hand.values()])
    with torch.no_grad():
        logprobs = compute_logprobs(model, batch)
    of_turns = torch.zeros(int(batch.turn_ids.max()) + 1, dtype=torch.float64)
    of_turns.index_add_(0, batch.turn_ids.clamp(min=0).flatten(), logprobs.double().flatten())
    remaining = iter(of_turns.exp().tolist())
    for history, hands in played:
        for deal, hand in zip(permutations(range(len(CARDS)), 2), hands, strict=True):
            for side, player in enumerate(PLAYERS):
                for turn, _ in enumerate(hand[player].turns):
                    number = 2 * turn + side
                    known = deal[side], " ".join(history[:number])
                    policy.setdefault(known, {})[history[number]] = next(remaining)
    return policy


class _Script:
    """A policy that responds with the actions of a list in order."""

    def __init__(self, responses: Sequence[Sequence[int]]) -> None:
        self._responses = iter(responses)

    async def generate(self, prompt_ids: Sequence[int], *, max_tokens: int, request_id: str) -> Generation:
        return Generation(list(next(self._responses)), None, "stop")


async def _play(
    tokenizer: object, context: AppendContext, history: Sequence[str]
) -> list[dict[str, Episode]]:
    """Return the hands with these actions, by player, for all deals in the order of `permutations`."""
    encode, end = tokenizer.encode, tokenizer.eos_token_id  # type: ignore[attr-defined]
    responses = [[*encode(f"\\boxed{{{word}}}", add_special_tokens=False), end] for word in history]
    hands: dict[tuple[int, ...], dict[str, Episode]] = {}
    env, seed = KuhnPoker(), 0
    deals = list(permutations(range(len(CARDS)), 2))
    while len(hands) < len(deals):
        env.reset(seed=seed)
        deal = tuple(env.cards[player] for player in PLAYERS)
        if deal not in hands:
            hands[deal] = await run_agents(env, _Script(responses), context, seed=seed)
        seed += 1
    return [hands[deal] for deal in deals]


def _histories() -> list[tuple[str, ...]]:
    """Return the actions of all possible hands."""
    unfinished, finished = [()], []
    while unfinished:
        history = unfinished.pop()
        options = ACTIONS.get(" ".join(history), ())
        unfinished += [(*history, option) for option in options]
        if not options:
            finished.append(history)
    return sorted(finished)


def _pure_policies(side: int) -> list[Policy]:
    """Return all policies of the player who begins (0) or of the other (1) that never draw an action."""
    situations = [
        (card, history)
        for card in range(len(CARDS))
        for history in ACTIONS
        if len(history.split()) % 2 == side
    ]
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

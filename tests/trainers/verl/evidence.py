"""What a run should have consumed, worked out from the engine's ids and the spy environment's rewards.

Nothing here calls the code under test, except the reference trainer's gradient.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from gem_core.rollout import Episode, Turn
from tests.advantages.oracle import standardized, turn_returns

_NAME = re.compile(r"Episode (\d+-\d+)\.")


@dataclass
class Played:
    """One episode: the engine's requests in order, and what the environment paid for each."""

    requests: list[dict[str, Any]]
    rewards: list[float]

    @property
    def token_ids(self) -> list[int]:
        last = self.requests[-1]
        return [*last["prompt"], *last["response"]]

    @property
    def prompt_length(self) -> int:
        return len(self.requests[0]["prompt"])

    @property
    def turns(self) -> list[int]:
        """Turn number of each token, -1 off-response."""
        ids = [-1] * len(self.token_ids)
        for number, request in enumerate(self.requests):
            start = len(request["prompt"])
            ids[start : start + len(request["response"])] = [number] * len(request["response"])
        return ids

    def turn_of(self, prompt: list[int], response: list[int]) -> int:
        """Number of the request with these ids."""
        return [(request["prompt"], request["response"]) for request in self.requests].index(
            (prompt, response)
        )

    def episode(self, advantages: list[float], *, rebuilt: bool) -> Episode:
        """For the reference gradient."""
        turns, seen = [], 0
        for request, reward, advantage in zip(self.requests, self.rewards, advantages, strict=True):
            context, response = request["prompt"][0 if rebuilt else seen :], request["response"]
            turns.append(Turn(context, response, None, reward, "", "", "stop", {}, advantage))
            seen = len(request["prompt"]) + len(response)
        mode = "rebuild" if rebuilt else "append"
        return Episode("", None, turns, True, False, "terminated", context_mode=mode)


@dataclass
class Row:
    """One row as verl's loss got it."""

    prompt: list[int]
    response: list[int]
    mask: list[int]
    advantages: list[float]
    old: list[float]
    rollout: list[float]
    reference: list[float] | None

    @property
    def is_pad(self) -> bool:
        return not any(self.mask)


@dataclass
class Update:
    """One step of the optimizer: the rows before it, and weights and gradients at it."""

    rows: list[Row]
    weights: list[torch.Tensor]
    gradients: list[torch.Tensor | None]


def played(spy: Path, tokenizer: Any) -> dict[str, Played]:
    """Episodes by the name that the spy environment gave them."""
    rewards: dict[str, list[float]] = {}
    for line in (spy / "env.jsonl").read_text().splitlines():
        step = json.loads(line)
        rewards.setdefault(step["episode"], []).append(step["reward"])
    requests: dict[str, list[dict[str, Any]]] = {}
    for line in (spy / "engine.jsonl").read_text().splitlines():
        request = json.loads(line)
        requests.setdefault(name_in(request["prompt"], tokenizer), []).append(request)
    for made in requests.values():
        made.sort(key=lambda request: len(request["prompt"]))
    return {name: Played(requests[name], rewards[name]) for name in rewards}


def conversation(ids: list[int], requests: list[dict[str, Any]]) -> Played:
    """The requests whose prompt and answer these ids begin with, in order; no rewards yet."""
    made: dict[int, dict[str, Any]] = {}
    for request in requests:
        whole = [*request["prompt"], *request["response"]]
        if ids[: len(whole)] == whole:
            made[len(request["prompt"])] = request
    return Played([made[length] for length in sorted(made)], [0.0] * len(made))


def name_in(prompt: list[int], tokenizer: Any) -> str:
    """Name of the episode that a prompt belongs to."""
    found = _NAME.search(tokenizer.decode(prompt))
    assert found, tokenizer.decode(prompt)
    return found[1]


def updates(spy: Path) -> list[Update]:
    """The optimizer's steps in order, the rows of all ranks together."""
    ranks = [
        _updates_of_rank(spy, pid) for pid in sorted({path.stem.split("-")[1] for path in spy.glob("*.pt")})
    ]
    for steps in zip(*ranks, strict=True):
        for other in steps[1:]:
            steps[0].rows.extend(other.rows)
    return ranks[0]


def _updates_of_rank(spy: Path, pid: str) -> list[Update]:
    found, rows = [], []
    for path in sorted(spy.glob(f"*-{pid}-*.pt"), key=lambda path: path.stem.split("-")[2]):
        saved = torch.load(path, weights_only=False)
        if path.name.startswith("loss"):
            columns = (
                "prompts", "responses", "response_mask", "advantages", "old_log_probs", "rollout_log_probs",
            )  # fmt: skip
            reference = saved.get("ref_log_prob") or [None] * len(saved["prompts"])
            parts = zip(*(saved[name] for name in columns), reference, strict=True)
            rows += [Row(*part) for part in parts]
        else:
            found.append(Update(rows, saved["weights"], saved["gradients"]))
            rows = []
    return found


def oracle(rewards: list[list[float]], gamma: float) -> list[list[float]]:
    """ReBN advantages, per episode and turn."""
    returns = [turn_returns(of_episode, gamma) for of_episode in rewards]
    flat = [g for gs in returns for g in gs]
    wanted = iter(standardized(flat, flat, 0, 1e-8, 1e-6))
    return [[next(wanted) for _ in gs] for gs in returns]


def cosine(found: list[torch.Tensor | None], wanted: list[torch.Tensor]) -> float:
    """Of two gradients, all parameters as one vector."""
    left = torch.cat(
        [
            (torch.zeros_like(w) if f is None else f).double().flatten()
            for f, w in zip(found, wanted, strict=True)
        ]
    )
    right = torch.cat([w.double().flatten() for w in wanted])
    return float(torch.nn.functional.cosine_similarity(left, right, dim=0))

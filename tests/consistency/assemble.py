"""Assembles a record from the files of a trainer's shared spies."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping, Sequence
from importlib.metadata import version
from pathlib import Path
from typing import Any

import torch

from gem_core.rollout import Episode, Turn
from gem_lab.consistency import Played, Record, compare
from gem_lab.consistency._compare import Comparison
from gem_lab.train._batches import policy_gradient
from tests.consistency.scenario import Scenario
from tests.trainers.evidence import Row, Update, load_weights

_TASK = re.compile(r"Task (\d+)\.")


def turn_ids_of(mask: Sequence[int]) -> list[int]:
    """Return the number of the run of 1s at each position, -1 where the mask is 0."""
    ids, number, before = [], -1, 0
    for on in mask:
        number += int(bool(on) and not before)
        ids.append(number if on else -1)
        before = on
    return ids


def carried_episodes(spy: Path) -> list[tuple[list[int], Episode]]:
    """Return the tokens of each row and the outline of its episode, from ``carried.jsonl`` of a spy."""
    lines = [json.loads(line) for line in (spy / "carried.jsonl").read_text().splitlines()]
    return [(line["token_ids"], Episode.from_dict(line["episode"])) for line in lines]


def from_rows(rows: Iterable[Row], carried: Iterable[tuple[list[int], Episode]]) -> list[Played]:
    """Return the episodes of a trainer with one row per episode.

    Args:
        rows: Rows as the loss consumed them.
        carried: Tokens and outline of each episode; an outline that is not trainable needs no tokens.
    """
    left = [row for row in rows if not row.is_pad]
    found = []
    for tokens, outline in carried:
        made = Played(outline.env_id, outline.seed or 0, outline.trainable)
        made.copy_outcome(outline)
        if outline.trainable:
            row = next((row for row in left if row.prompt + row.response == tokens), None)
            assert row is not None, (
                f"{outline.env_id}, seed {outline.seed}: no row of the loss has its tokens"
            )
            left.remove(row)
            fill(made, row)
        found.append(made)
    assert not left, f"{len(left)} rows of the loss belong to no episode"
    return found


def from_turns(rows: Iterable[Row], carried: Iterable[Episode], tokenizer: Any) -> list[Played]:
    """Return the episodes of a trainer with one row per turn and append contexts.

    Each row begins with the tokens of the previous rows of its episode.

    Args:
        rows: Rows as the loss consumed them.
        carried: Outline of each episode; their order is unrelated to the rows.
        tokenizer: Tokenizer of the model.
    """
    left = sorted(rows, key=lambda row: len(row.prompt) + len(row.response))
    chains = []
    while left:
        chain = [left.pop()]  # the longest remaining row ends an episode
        while before := [row for row in left if _goes_before(row, chain[0])]:
            chain.insert(0, before[-1])
            left.remove(before[-1])
        chains.append(chain)
    found = []
    for outline in carried:
        made = Played(outline.env_id, outline.seed or 0, outline.trainable)
        made.copy_outcome(outline)
        if outline.trainable:
            chain = next(
                chain
                for chain in chains
                if task_seed(chain[0].prompt, tokenizer) == outline.seed and len(chain) == len(outline.turns)
            )
            chains.remove(chain)
            fill(made, _joined(chain))
        found.append(made)
    assert not chains, f"{len(chains)} chains of rows belong to no episode"
    return found


def _goes_before(row: Row, later: Row) -> bool:
    tokens = row.prompt + row.response
    return len(tokens) < len(later.prompt) and later.prompt[: len(tokens)] == tokens


def _joined(chain: Sequence[Row]) -> Row:
    """Return one row with all turns."""
    first, last = chain[0], chain[-1]
    start = len(first.prompt)
    size = len(last.prompt) + len(last.response) - start
    mask, advantages = [0] * size, [0.0] * size
    for row in chain:
        place = slice(len(row.prompt) - start, len(row.prompt) - start + len(row.response))
        mask[place], advantages[place] = row.mask, row.advantages
    tokens = last.prompt + last.response
    return Row(first.prompt, tokens[start:], mask, advantages, [], None, None)


def fill(made: Played, row: Row) -> None:
    """Set tokens, turns, and advantages from a row."""
    made.token_ids = row.prompt + row.response
    made.turn_ids = [-1] * len(row.prompt) + turn_ids_of(row.mask)
    made.read_advantages([0.0] * len(row.prompt) + row.advantages)


def task_seed(token_ids: Sequence[int], tokenizer: Any) -> int:
    """Return the seed of the task, which the wrapper "named" wrote into the prompt."""
    found = _TASK.search(tokenizer.decode(token_ids))
    assert found
    return int(found[1])


def gradient_difference(update: Update, core: Record, model: Any, factor: float = 1.0) -> float:
    """Return |gradient - reference| / |reference|, with the reference trainer's gradient on `core`.

    Args:
        update: Weights and gradients of the trainer's first step.
        core: Expected inputs of the step.
        model: Model of the same architecture, in float32.
        factor: Known factor of the trainer's objective relative to the mean over tokens.
    """
    load_weights(model, update.weights)
    wanted = list(policy_gradient(model, [episode_of(played) for played in core.episodes]).values())
    pairs = list(zip(update.gradients, wanted, strict=True))
    gap = torch.cat([((0 if g is None else g / factor) - w).double().flatten() for g, w in pairs])
    return float(gap.norm() / torch.cat([w.double().flatten() for w in wanted]).norm())


def lengths(played: Played) -> list[tuple[int, int]]:
    """Return, for each turn, the number of tokens since the previous turn, and of its own tokens."""
    found, before = [], 0
    for turn in range(len(played.advantages)):
        first = played.turn_ids.index(turn)
        size = played.turn_ids.count(turn)
        found.append((first - before, size))
        before = first + size
    return found


def episode_of(played: Played) -> Episode:
    """Return an episode with the same tokens, rewards, and advantages."""
    turns, start, ids = [], 0, played.token_ids
    values = zip(lengths(played), played.rewards or [], played.advantages, strict=True)
    for (context, size), reward, advantage in values:
        middle, end = start + context, start + context + size
        turn = Turn(ids[start:middle], ids[middle:end], [0.0] * size, reward, "", "", "stop", {}, advantage)
        turns.append(turn)
        start = end
    return Episode(played.env_id, played.seed, turns, True, False, "terminated", trainable=played.trainable)


def judge(
    made: Scenario,
    trainer: str,
    packages: Sequence[str],
    command: str,
    episodes: list[Played],
    gradient: float | None,
    *,
    reference: str = "core",
    not_carried: Mapping[str, str] | None = None,
    notes: Mapping[str, float] | None = None,
    checkout: Mapping[str, str] | None = None,
) -> Comparison:
    """Write the trainer's record next to the others, and compare it with gem_core's.

    `checkout` has the versions of software that is not installed as a package.
    """
    record = Record(
        trainer,
        {**(checkout or {}), **{package: version(package) for package in packages}},
        command,
        made.model_hash(),
        episodes,
        reference,
        dict(not_carried or {}),
        gradient,
        dict(notes or {}),
    )
    record.write(made.records / f"{trainer}.json")
    return compare(made.core(reference), record)

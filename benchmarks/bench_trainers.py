"""The plugins' shared code at the size of real training steps: against ReBN alone, and against the step."""

from __future__ import annotations

import asyncio
import ctypes
import importlib.util
import platform
import time
from collections.abc import Callable, Sequence
from itertools import count
from typing import Any

import common
import torch

from gem_chat import EpisodePlayer
from gem_core import Env, advantages, register
from gem_core.rollout import Episode, Generation, RolloutOptions, Turn
from gem_core.tasks import TaskRow
from gem_core.trainers import EstimatorChoice, batch_metrics, pack_facts, read_estimator, unpack_facts
from gem_core.trainers._facts import unpack_outlines

ROWS, TOKENS, TURNS = 250, 32_768, 32
"""Size of the batch whose advantages are computed."""
MORE_ROWS = (500, 1_000)
"""Larger batches, which may cost only slightly more per row."""
LARGEST_ROWS = 10_000
"""Rows of the largest batch, which takes 5 GB of memory with a mask of one byte per token."""
STEP_ROWS, STEP_TOKENS, STEP_TURNS = 1_024, 8_192, 16
"""Size of the batch of the step."""
PLAYED = 32
"""Number of rows of the step that are played and packed; the time of the others is extrapolated."""
ENGINE_RATE = 50_000
"""Tokens per second that the simulated engine reads and writes. A step takes longer: it also trains."""
WORKERS = 8
"""Processes that play episodes, verl's default."""
CHOICE: EstimatorChoice = read_estimator("rebn", {}, gamma=0.9)


def episode_of(turns: int, tokens: int, adjacent: bool) -> Episode:
    """Return an episode of equal turns, half of whose tokens are observations; the second may have none."""
    half = tokens // turns // 2
    contexts = [[0] * half for _ in range(turns)]
    if adjacent:
        contexts[1], contexts[2] = [], [0] * (2 * half)
    steps = [Turn(context, [1] * half, None, 1.0, "", "", "stop") for context in contexts]
    return Episode("bench:Echo", 0, steps, True, False, "terminated")


def batch(
    rows: int, episode: Episode, mask_dtype: torch.dtype = torch.int64
) -> tuple[torch.Tensor, torch.Tensor, list[dict[str, Any]]]:
    """Return rewards, mask, and facts of a batch of such episodes, as a trainer stores them."""
    (row,) = episode.rows()
    mask = torch.tensor(row.response_mask[row.prompt_length :], dtype=mask_dtype).expand(rows, -1)
    mask = mask.contiguous()
    generator = torch.Generator().manual_seed(0)
    facts = [fact for _ in range(rows) for fact in pack_facts(episode, [row])]
    return torch.randn(mask.shape, generator=generator), mask, facts


def from_facts(
    rows: int, tokens: int, turns: int, adjacent: bool, mask_dtype: torch.dtype = torch.int64
) -> tuple[Callable[[], int], Callable[[], int], Callable[[], int]]:
    """Return the work of computing advantages from the facts: ours, ReBN alone, and the plain algorithm."""
    episode = episode_of(turns, tokens, adjacent)
    rewards, mask, facts = batch(rows, episode, mask_dtype)
    (row,) = episode.rows()
    spans = [(start - row.prompt_length, stop - row.prompt_length) for start, stop in row.spans]
    keys = list(range(rows))

    def ours() -> int:
        known = unpack_facts(facts, keys, [0] * rows, lambda: mask)
        CHOICE.compute(rewards, mask, turn_ids=known.turn_ids)
        return rows

    def peer() -> int:
        advantages.rebn.tensors(rewards, mask, gamma=0.9)
        return rows

    def plain() -> int:
        """Write the turn ids of each row as a list, as the plugins did at first."""
        turn_ids = torch.full(mask.shape, -1)
        for index in range(rows):
            row_turns = [-1] * mask.shape[1]
            for turn, (start, stop) in enumerate(spans):
                row_turns[start:stop] = [turn] * (stop - start)
            turn_ids[index] = torch.tensor(row_turns)
        CHOICE.compute(rewards, mask, turn_ids=turn_ids)
        return rows

    return ours, peer, plain


TEXT = " ".join(str(number % 10) for number in range(STEP_TOKENS // STEP_TURNS // 2 - 12))
"""A text of almost as many tokens as words; the chat template adds a few."""


class Echo(Env):
    """Answers each response with a text of the same number of tokens."""

    def reset(self, seed: int | None = None, *, options: Any = None) -> Any:
        self.begin_episode(seed)
        self.seed, self.turn = seed, 0
        return self.text(), {}

    def step(self, action: str) -> Any:
        self.turn += 1
        return self.text(), 1.0, self.turn == STEP_TURNS, False, {}

    def text(self) -> str:
        return f"{self.seed} {self.turn} {TEXT}"


class Engine:
    """An engine that immediately answers with the number of tokens of a turn."""

    def __init__(self, response: list[int]) -> None:
        self.response = response

    async def generate(self, prompt_ids: Sequence[int], *, max_tokens: int, request_id: str) -> Generation:
        return Generation(list(self.response), [-0.5] * len(self.response), "stop")


class Timed:
    """A tokenizer that counts its CPU time."""

    def __init__(self, tokenizer: Any) -> None:
        self.seconds = 0.0
        for name in ("encode", "decode", "apply_chat_template"):
            setattr(tokenizer, name, self._timed(getattr(tokenizer, name)))

    def _timed(self, method: Callable[..., Any]) -> Callable[..., Any]:
        def timed(*args: Any, **kwargs: Any) -> Any:
            start = time.process_time()
            result = method(*args, **kwargs)
            self.seconds += time.process_time() - start
            return result

        return timed


def step_seconds(quick: bool) -> list[tuple[float, float, float, float]]:
    """Return the seconds of a step: of a worker, of its tokenizer, from facts to metrics, and of the engine.

    All but the engine's are CPU time. The worker spends its time while the engine is busy.

    Returns:
        The four numbers of each round.
    """
    from bench_context import make_tokenizer

    register("bench:Echo", Echo)
    tokenizer = make_tokenizer([" ".join(map(str, range(10)))] * 20)
    response = tokenizer.encode(" ".join("1" for _ in range(STEP_TOKENS // STEP_TURNS // 2)))
    timed = Timed(tokenizer)
    player = EpisodePlayer(RolloutOptions(), tokenizer)
    engine, numbers = Engine([*response, tokenizer.eos_token_id]), count()

    async def play() -> list[Episode]:
        tasks = [
            TaskRow(env_id="bench:Echo", env_kwargs={}, seed=next(numbers), index=0, item=None)
            for _ in range(PLAYED)
        ]
        plays = [
            player.play(task, engine, split="train", metadata={}, max_tokens_per_turn=1024) for task in tasks
        ]
        return await asyncio.gather(*plays)

    def work() -> tuple[float, float, list[list[dict[str, Any]]], int]:
        start, timed.seconds = time.process_time(), 0.0
        episodes = asyncio.run(play())
        packed, tokens = [], 0
        for episode in episodes:
            rows = episode.rows()
            packed.append(pack_facts(episode, rows))
            rows[0].response_mask, rows[0].logprobs_or_zeros()  # every trainer reads these
            tokens += len(rows[0])
        return time.process_time() - start - timed.seconds, timed.seconds, packed, tokens

    work()
    rewards, mask, _ = batch(STEP_ROWS, episode_of(STEP_TURNS, STEP_TOKENS, adjacent=False))
    factor = STEP_ROWS // PLAYED
    worker_share = factor / WORKERS
    rounds = []
    for _ in range(1 if quick else 5):
        seconds, tokenizing, packed, tokens = work()
        facts = [row_facts for _ in range(factor) for rows in packed for row_facts in rows]
        start = time.process_time()
        known = unpack_facts(facts, list(range(STEP_ROWS)), [0] * STEP_ROWS, lambda: mask)
        result = CHOICE.compute(rewards, mask, turn_ids=known.turn_ids)
        batch_metrics(unpack_outlines(facts), result.stats)
        at_the_end = time.process_time() - start
        whole = tokens * factor / ENGINE_RATE
        rounds.append((seconds * worker_share, tokenizing * worker_share, at_the_end, whole))
    return rounds


def per_row(
    name: str, ours: Callable[[], int], peer: Callable[[], int], limit: float | None, note: str, quick: bool
) -> common.Result:
    """Return a line with the milliseconds per row of both sides."""
    pair = common.compare(ours, peer, seconds=0.02, rounds=3 if quick else 5).times(1e3)
    return common.Result(name, *pair, unit="ms", at_most=limit, note=note)


def keep_memory() -> None:
    """Keep freed memory in this process.

    The memory of tensors of a gigabyte would otherwise go back to the kernel and be mapped again page by
    page, which can take four times as long as the estimator and affects one side of a comparison more than
    the other.
    """
    if platform.libc_ver()[0] == "glibc":
        m_trim_threshold, m_mmap_max = -1, -4
        libc = ctypes.CDLL(None)
        libc.mallopt(m_trim_threshold, -1)
        libc.mallopt(m_mmap_max, 0)


def run(quick: bool) -> list[common.Result]:
    if importlib.util.find_spec("transformers") is None:
        raise SystemExit("bench_trainers needs transformers: pip install 'gem-core[train]'")
    torch.set_num_threads(1)  # waiting threads would count as CPU time
    keep_memory()
    rows = 20 if quick else ROWS
    results = []
    # Chat templates separate turns; adjacent turns need turn ids, which are written first and then read like
    # the mask.
    limit = 1.5
    for name, adjacent in (("turns apart", False), ("adjacent turns", True)):
        ours, peer, plain = from_facts(rows, TOKENS, TURNS, adjacent)
        note = f"per row of {TOKENS:,} tokens, {TURNS} turns, {rows} rows; peer: ReBN on the mask"
        results.append(per_row(f"trainers: from facts to advantages, {name}", ours, peer, limit, note, quick))
        note = f"per row of {rows} rows; peer: turn ids written as a list per row"
        results.append(per_row(f"trainers: {name}, against plain Python", ours, plain, 0.1, note, quick))
        for more in (2 * rows,) if quick else MORE_ROWS:
            larger, *_ = from_facts(more, TOKENS, TURNS, adjacent)
            note = f"per row of {more:,} rows; peer: of {rows} rows"
            results.append(
                per_row(f"trainers: {name}, {more:,} rows", larger, ours, None if quick else 1.3, note, quick)
            )
        del ours, peer, plain, larger
        rows_of_all = 4 * rows if quick else LARGEST_ROWS
        ours, peer, _ = from_facts(rows_of_all, TOKENS, TURNS, adjacent, torch.uint8)
        note = f"per row of {rows_of_all:,} rows; peer: ReBN on the mask"
        results.append(
            per_row(f"trainers: {name}, {rows_of_all:,} rows against ReBN", ours, peer, limit, note, quick)
        )
        del ours, peer
    rounds = step_seconds(quick)
    note = f"{STEP_ROWS:,} rows of {STEP_TOKENS:,} tokens; peer: {ENGINE_RATE:,} tokens/s"
    for name, parts, most in (
        ("gem-core's code and the tokenizer", (0, 1, 2), 0.01),
        (f"one of {WORKERS} workers plays", (0,), None),
        ("the worker's tokenizer", (1,), None),
        ("from facts to metrics", (2,), None),
    ):
        pair = common.Pair.of([(1e3 * sum(one[part] for part in parts), 1e3 * one[3]) for one in rounds])
        results.append(
            common.Result(f"trainers: in a step, {name}", *pair, unit="ms", at_most=most, note=note)
        )
    return results


if __name__ == "__main__":
    common.main(run)

"""Many agents at once against one gateway: what it costs, and whether every turn arrives.

    python benchmarks/gateway_load.py --agents 1000

Each agent has a connection of its own, and plays its episode in several calls that follow one another. The
policy answers with a text that only this call of this episode may get, letter by letter, and the environment
gives a reward for it. A lost turn, a mixed-up answer, or a socket that is left open ends the measurement with
an error.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import resource
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import aiohttp

from gem_agents import AgentTask, run_harness
from gem_agents._gateway import GATEWAY
from gem_agents._run import AGENTS
from gem_chat import AppendContext
from gem_core import Env
from gem_core._core import ResetResult, StepResult
from gem_core.rollout import Episode, EpisodeLimits, Generation

TEMPLATE = (
    "{% for m in messages %}{{ '<|im_start|>' + m.role + '\n' + m.content + '<|im_end|>\n' }}{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}"
)
SHOWN = "What happened is written down here so that a history grows as that of a coding agent does. " * 4
"""Rest of each observation."""


def make_tokenizer() -> Any:
    """Return a byte-level tokenizer with a few merges, which needs no download."""
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
    from transformers import PreTrainedTokenizerFast

    bpe = Tokenizer(models.BPE())
    bpe.pre_tokenizer, bpe.decoder = pre_tokenizers.ByteLevel(add_prefix_space=False), decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        special_tokens=["<|im_start|>", "<|im_end|>"],
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    bpe.train_from_iterator([SHOWN], trainer)
    tokenizer = PreTrainedTokenizerFast(tokenizer_object=bpe, eos_token="<|im_end|>")
    tokenizer.chat_template = TEMPLATE
    return tokenizer


def answer_of(episode: str, turn: int) -> str:
    """Return what the policy says in a turn."""
    return f"turn {turn} of {episode}"


class Letters:
    """Answers letter by letter, in tokens that no encoder would produce.

    Args:
        tokenizer: The tokenizer.
        seconds: Number of seconds that a response takes.
        turns: Number of responses of each episode.
    """

    def __init__(self, tokenizer: Any, seconds: float, turns: int) -> None:
        self._end, self._seconds = tokenizer.eos_token_id, seconds
        self._ids = {chr(code): tokenizer.encode(chr(code)) for code in range(32, 127)}
        self.sampled: dict[str, list[tuple[list[int], list[int]]]] = {}
        self.open = self.most_open = 0

    async def generate(self, prompt_ids: Sequence[int], *, max_tokens: int, request_id: str) -> Generation:
        said = self.sampled.setdefault(request_id, [])
        self.open += 1
        self.most_open = max(self.most_open, self.open)
        await asyncio.sleep(self._seconds)
        self.open -= 1
        text = answer_of(request_id, len(said))
        ids = [id for letter in text for id in self._ids[letter]] + [self._end]
        said.append((list(prompt_ids), ids))
        return Generation(ids, [-0.1] * len(ids), "stop")


class Told(Env):
    """Gives a reward for each answer that is the one of this episode and turn."""

    def __init__(self, episode: str, turns: int) -> None:
        self._episode, self._turns, self._taken = episode, turns, 0

    def reset(self, seed: int | None = None, *, options: Any = None) -> ResetResult:
        self.begin_episode(seed)
        self._taken = 0
        return f"Begin {self._episode}. {SHOWN}", {}

    def step(self, action: str) -> StepResult:
        right = action == answer_of(self._episode, self._taken)
        self._taken += 1
        return f"Go on. {SHOWN}", float(right), self._taken == self._turns, False, {}


async def agent(task: AgentTask) -> None:
    """Play an episode over one connection, with the whole history in each request."""
    messages = [{"role": "user", "content": task.prompt}]
    async with aiohttp.ClientSession() as http:
        while True:
            body = {"model": "policy", "messages": messages}
            async with http.post(f"{task.openai_url}/chat/completions", json=body) as answer:
                said = (await answer.json())["choices"][0]["message"]["content"]
            async with http.post(task.step_url, json={"action": said}) as result:
                step = await result.json()
            if step["done"]:
                return
            messages += [
                {"role": "assistant", "content": said},
                {"role": "user", "content": step["observation"]},
            ]


def sockets() -> int:
    """Return the number of sockets that this process has open."""
    count = 0
    for entry in os.scandir("/proc/self/fd"):
        try:
            count += os.readlink(entry.path).startswith("socket:")
        except FileNotFoundError:  # that of the listing
            continue
    return count


async def tasks_of_loops() -> int:
    """Return the number of tasks on the loops of the gateway and of the agents, without those that count."""

    async def count() -> int:
        return len(asyncio.all_tasks()) - 1

    return await GATEWAY._background.on(count()) + await AGENTS.on(count())


def check(episodes: Sequence[Episode], policy: Letters, turns: int) -> None:
    """Check that each episode holds each of its responses once, as it was sampled, and their rewards.

    Raises:
        RuntimeError: Something was lost or mixed up.
    """
    for index, episode in enumerate(episodes):
        name = f"agent {index}"
        said = policy.sampled.get(name, [])
        if not said:
            raise RuntimeError(f"{name}: no call; {episode.metadata}")
        (row,) = episode.rows()
        wanted = [*said[-1][0], *said[-1][1]]
        counts = episode.metadata["gateway"]
        facts = {
            "turns": len(episode.turns) == len(said) == turns,
            "rewards": [turn.reward for turn in episode.turns] == [1.0] * turns,
            "responses": [turn.response_ids for turn in episode.turns] == [ids for _, ids in said],
            "row": [*row.prompt_ids, *row.response_ids] == wanted,
            "recognized": counts["recognized"] == turns * (turns - 1) // 2,
            "counts": not (counts["lost"] or counts["refused"] or counts["foreign"] or counts["spliced"]),
            "end": episode.stop_reason == "terminated" and "harness_error" not in episode.metadata,
        }
        if wrong := [fact for fact, right in facts.items() if not right]:
            raise RuntimeError(f"{name}: {', '.join(wrong)}; {episode.metadata}")


async def load(agents: int, turns: int, seconds: float) -> dict[str, Any]:
    """Play all episodes at once, and check them.

    Args:
        agents: Number of agents.
        turns: Number of turns of each.
        seconds: Number of seconds that a response takes.

    Returns:
        What was measured: "wall_s", "cpu_s", "calls_per_s", "cpu_ms_per_call", "most_open" responses at once
        and what is left afterwards in "tasks_left", "sockets_left", and "sessions_left".

    Raises:
        RuntimeError: Something was lost or mixed up.
    """
    tokenizer = make_tokenizer()
    policy, context = Letters(tokenizer, seconds, turns), AppendContext(tokenizer)
    limits = EpisodeLimits(max_turns=turns, max_tokens_per_turn=200)

    async def play(name: str) -> Episode:
        with Told(name, turns) as env:
            return await run_harness(agent, env, policy, context, limits, seed=0, request_id=name)

    await play("warm-up")  # starts the loops and the server
    before = await tasks_of_loops(), sockets()
    wall, cpu = time.perf_counter(), time.process_time()
    episodes = await asyncio.gather(*(play(f"agent {index}") for index in range(agents)))
    wall, cpu = time.perf_counter() - wall, time.process_time() - cpu
    check(episodes, policy, turns)
    for _ in range(100):  # the server sees that connections were closed
        left = await tasks_of_loops() - before[0], sockets() - before[1]
        if max(left) <= 0:
            break
        await asyncio.sleep(0.1)
    return {
        "agents": agents,
        "turns": turns,
        "response_s": seconds,
        "wall_s": round(wall, 2),
        "cpu_s": round(cpu, 2),
        "calls_per_s": round(agents * turns / wall, 1),
        "cpu_ms_per_call": round(1000 * cpu / (agents * turns), 2),
        "most_open": policy.most_open,
        "tasks_left": left[0],
        "sockets_left": left[1],
        "sessions_left": len(GATEWAY._sessions),
    }


def main() -> None:
    """Measure, and write what was measured."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--agents", type=int, default=1000)
    parser.add_argument("--turns", type=int, default=8)
    parser.add_argument("--seconds", type=float, default=1.0, help="duration of a response")
    parser.add_argument("--out", type=Path, help="JSON file to write")
    args = parser.parse_args()
    start = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    row = asyncio.run(load(args.agents, args.turns, args.seconds))
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    row |= {"peak_mib": round(peak), "start_mib": round(start)}
    print(json.dumps(row, indent=1))
    if args.out:
        args.out.write_text(json.dumps(row, indent=1) + "\n")


if __name__ == "__main__":
    main()

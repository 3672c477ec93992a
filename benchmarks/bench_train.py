"""Steps of the reference trainer with a tiny model, against a plain loop over `generate` of transformers."""

from __future__ import annotations

import importlib.util
import tempfile
from collections.abc import Sequence
from itertools import chain, count
from pathlib import Path
from typing import Any, NamedTuple

import common

ENV = "game:GuessTheNumber-v0-easy"
EPISODES, MINIBATCHES, GAMMA, LR = 256, 4, 0.9, 1e-3
TOKENS = 32
"""Maximum number of tokens in a response."""


class Played(NamedTuple):
    """An episode of the plain loop."""

    tokens: list[int]
    turn_ids: list[int]
    """Index of the turn on response tokens, -1 elsewhere."""
    rewards: list[float]


def play(model: Any, tokenizer: Any, envs: Sequence[Any], seeds: Sequence[int]) -> list[Played]:
    """Play an episode in each environment; one call of `generate` samples a turn of all of them."""
    import torch

    from gem_chat import AppendContext
    from gem_core import render_observation

    context, end = AppendContext(tokenizer), tokenizer.eos_token_id
    episodes = []
    for env, seed in zip(envs, seeds, strict=True):
        prompt = context.first(render_observation(*env.reset(seed=seed)))
        episodes.append(Played(prompt, [-1] * len(prompt), []))
    running = list(range(len(envs)))
    while running:
        width = max(len(episodes[episode].tokens) for episode in running)
        padded = [
            [-1] * (width - len(episodes[episode].tokens)) + episodes[episode].tokens for episode in running
        ]
        ids = torch.tensor(padded)
        sampled = model.generate(
            input_ids=ids.clamp(min=0), attention_mask=(ids >= 0).long(), do_sample=True, top_k=0,
            max_new_tokens=TOKENS, eos_token_id=end, pad_token_id=0,
        )[:, width:].tolist()  # fmt: skip
        following = []
        for episode, response in zip(running, sampled, strict=True):
            tokens, turn_ids, rewards = episodes[episode]
            if end in response:
                response = response[: response.index(end) + 1]
            observation, reward, terminated, truncated, info = envs[episode].step(context.decode(response))
            tokens += response
            turn_ids += [len(rewards)] * len(response)
            rewards.append(reward)
            if not (terminated or truncated):
                message = context.extend(render_observation(observation, info), response)
                tokens += message
                turn_ids += [-1] * len(message)
                following.append(episode)
        running = following
    return episodes


def update(model: Any, optimizer: Any, episodes: Sequence[Played]) -> None:
    """Take the optimizer steps of ReBN on whole, padded episodes."""
    import torch

    from gem_core.advantages import rebn

    advantages = rebn([episode.rewards for episode in episodes], gamma=GAMMA)
    for first in range(MINIBATCHES):
        rows = range(first, len(episodes), MINIBATCHES)
        width = max(len(episodes[row].tokens) for row in rows)
        shape = len(rows), width
        ids, mask, weights = torch.zeros(shape, dtype=torch.long), torch.zeros(shape), torch.zeros(shape)
        for index, row in enumerate(rows):
            tokens, turn_ids, _ = episodes[row]
            ids[index, : len(tokens)] = torch.tensor(tokens)
            mask[index, : len(tokens)] = 1
            token_weights = [0.0 if turn < 0 else float(advantages[row][turn]) for turn in turn_ids]
            weights[index, : len(tokens)] = torch.tensor(token_weights)
        logits = model(input_ids=ids, attention_mask=mask.long()).logits
        logprobs = logits[:, :-1].log_softmax(-1).gather(-1, ids[:, 1:, None]).squeeze(-1)
        responses = sum(turn >= 0 for turn in chain.from_iterable(episodes[row].turn_ids for row in rows))
        optimizer.zero_grad()
        (-(logprobs * weights[:, 1:]).sum() / responses).backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()


def run(quick: bool) -> list[common.Result]:
    if importlib.util.find_spec("transformers") is None:
        raise SystemExit("bench_train needs transformers: pip install 'gem-core[train]'")
    import torch
    from transformers import AutoModelForCausalLM, AutoTokenizer

    from gem_core import make
    from gem_lab.train import TinyOptions, TrainConfig, save_tiny, train
    from gem_lab.train._console import quiet_transformers

    quiet_transformers()
    torch.set_num_threads(1)
    steps = 1 if quick else 4
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary) / "model"
        save_tiny(folder, TinyOptions(env=(ENV,), warm_start_steps=10 if quick else 300))

        def ours() -> int:
            train(
                TrainConfig(
                    model=str(folder), out=str(Path(temporary) / "run"), env=[ENV], gamma=GAMMA, kl=0.0,
                    learning_rate=LR, steps=steps, warmup_steps=0, learning_rate_schedule="constant",
                    episodes_per_step=EPISODES,
                    minibatches=MINIBATCHES, max_tokens_per_turn=TOKENS, eval_episodes=0, trace_every=0,
                    curve=False, resume=False, device="cpu", threads=1,
                )
            )  # fmt: skip
            return steps * EPISODES

        def plain() -> int:
            torch.manual_seed(0)
            model = AutoModelForCausalLM.from_pretrained(folder)
            tokenizer = AutoTokenizer.from_pretrained(folder)
            optimizer = torch.optim.AdamW(model.parameters(), lr=LR, betas=(0.9, 0.99), weight_decay=0.0)
            envs, seeds = [make(ENV) for _ in range(EPISODES)], count()
            for _ in range(steps):
                update(model, optimizer, play(model, tokenizer, envs, [next(seeds) for _ in envs]))
            for env in envs:
                env.close()
            return steps * EPISODES

        pair = common.compare(ours, plain, seconds=0.0, rounds=2 if quick else 5)
    note = f"{EPISODES} episodes and {MINIBATCHES} updates per step; peer: a loop over transformers' generate"
    return [
        common.Result(
            "train: tiny model, easy game",
            *pair,
            unit="episodes/s",
            at_least=None if quick else 1.15,
            note=note,
        )
    ]


if __name__ == "__main__":
    common.main(run)

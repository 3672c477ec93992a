"""Tokens and time of a gradient with one row per turn, and with as few rows as the prompts allow.

    python benchmarks/rows_study.py        # writes docs/results/rows/rows.json and summary.md

Four episodes of 50 turns whose histories are rewritten in different ways, with the rule of Qwen3's chat
template: thinking is shown only after the last user message. A response has 60 tokens of thinking and 15 of
an answer, an observation 25. Both splits train every response token once, so their gradients must be equal.
"""

from __future__ import annotations

import json
import random
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import torch
from transformers import Qwen3Config, Qwen3ForCausalLM

from gem_core._util.files import write_atomically
from gem_core.rollout import Episode, Turn
from gem_core.rollout._turn import Prompts
from gem_lab.train._batches import policy_gradient

OUT = Path(__file__).resolve().parents[1] / "docs" / "results" / "rows"
TURNS, WORDS = 50, 500
USER, ASSISTANT, TOOL, END = range(WORDS, WORDS + 4)
HEAD = """\
# Rows of an episode

Made by `python benchmarks/rows_study.py`: episodes of 50 turns with one row per turn, and with as few rows as
their prompts allow. Seconds of one core for the gradient of a tiny model.

| episode | turns | rows | tokens | ratio | seconds | difference of the gradients |
|---|---|---|---|---|---|---|"""
TAIL = """
Fewer rows save nothing where a template drops the thinking at each turn, because no prompt then continues an
earlier one; see [Episodes of many rows](../../concepts/episodes.md)."""
Message = tuple[int, list[int], list[int]]
"""Role, tokens of thinking, and tokens of the text."""


def render(messages: list[Message]) -> list[int]:
    """Return the prompt: thinking is shown after the last user message only."""
    last = max(index for index, (role, _, _) in enumerate(messages) if role == USER)
    prompt: list[int] = []
    for index, (role, thinking, text) in enumerate(messages):
        prompt += [role, *(thinking if index > last else []), *text, END]
    return [*prompt, ASSISTANT]


def play(role_of: Callable[[int], int], compact_every: int = 0) -> Episode:
    """Return an episode whose observation after each turn has a role; the history may be compacted."""
    rng, prompts = random.Random(0), Prompts()
    turns: list[Turn] = []

    def say(count: int) -> list[int]:
        return [rng.randrange(WORDS) for _ in range(count)]

    def respond(messages: list[Message], thinking: int, text: int) -> Message:
        answer = ASSISTANT, say(thinking), say(text)
        response = [*answer[1], *answer[2], END]
        parent, context = prompts.add(render(messages), response)
        advantage = rng.gauss(0, 1)
        turns.append(Turn(context, response, None, 0.0, "", "", "stop", advantage=advantage, parent=parent))
        return answer

    messages: list[Message] = [(USER, [], say(40))]
    for turn in range(TURNS):
        messages += [respond(messages, 60, 15), (role_of(turn), [], say(25))]
        if compact_every and (turn + 1) % compact_every == 0:
            _, _, summary = respond([*messages, (TOOL, [], say(1))], 20, 40)
            messages = [messages[0], (USER, [], summary)]
    return Episode("", 0, turns, True, False, "terminated")


EPISODES = {
    "a user message after each turn": play(lambda turn: USER),
    "one question, 50 tool calls": play(lambda turn: TOOL),
    "5 questions with 10 tool calls each": play(lambda turn: USER if turn % 10 == 9 else TOOL),
    "tool calls, history compacted every 10": play(lambda turn: TOOL, compact_every=10),
}


def norm(tensors: Iterable[torch.Tensor]) -> float:
    """Return the norm of all entries together."""
    return float(sum(tensor.double().square().sum() for tensor in tensors) ** 0.5)


def measure(episode: Episode, model: Any) -> dict[str, float]:
    """Return rows, tokens, and processor seconds of the gradient for both splits, and the difference."""
    found: dict[str, float] = {"turns": len(episode.turns)}
    gradients = []
    for split in ("turn", "auto"):
        rows = episode.rows(split)
        start = time.process_time()
        gradients.append(policy_gradient(model, [episode], rows=split, max_tokens=8192))
        found[f"{split} seconds"] = round(time.process_time() - start, 2)
        found |= {f"{split} rows": len(rows), f"{split} tokens": sum(map(len, rows))}
    by_turn, joined = gradients
    difference = norm(by_turn[name] - joined[name] for name in by_turn) / norm(by_turn.values())
    return found | {"difference": float(f"{difference:.1e}")}


def main() -> None:
    """Measure, and write the files."""
    torch.set_num_threads(1)
    torch.manual_seed(0)
    config = Qwen3Config(
        vocab_size=WORDS + 4, hidden_size=64, intermediate_size=128, num_hidden_layers=2,
        num_attention_heads=2, num_key_value_heads=1, head_dim=32, max_position_embeddings=16384,
    )  # fmt: skip
    model = Qwen3ForCausalLM(config).float()
    results = {name: measure(episode, model) for name, episode in EPISODES.items()}
    lines = [HEAD]
    for name, row in results.items():
        ratio = row["turn tokens"] / row["auto tokens"]
        cells = [
            f"{row['turn rows']} → {row['auto rows']}", f"{row['turn tokens']:,} → {row['auto tokens']:,}",
            f"{ratio:.1f}", f"{row['turn seconds']} → {row['auto seconds']}", f"{row['difference']:.0e}",
        ]  # fmt: skip
        lines.append(f"| {name} | {row['turns']} | {' | '.join(cells)} |")
    lines.append(TAIL)
    OUT.mkdir(exist_ok=True)
    write_atomically(OUT / "rows.json", [json.dumps(results, indent=1) + "\n"])
    write_atomically(OUT / "summary.md", ["\n".join(lines) + "\n"])


if __name__ == "__main__":
    main()

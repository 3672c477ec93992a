"""Questions of a user's own beside the tasks of a run: the files, and what their reward function said."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from tests.trainers import evidence
from tests.trainers.evidence import Played, Row, Update
from tests.trainers.processes import Run

REWARD = '''
import json, os, zlib

def reward_func(queries, prompts, labels):
    """Return a reward that depends on every token of the only row, and record it."""
    (query,), (label,) = queries, labels
    reward = zlib.crc32((query + label).encode()) % 100 / 50 - 1
    with open(os.path.join(os.environ["GEM_SPY"], "own.jsonl"), "a") as file:
        file.write(json.dumps({"query": query, "label": label, "reward": reward}) + "\\n")
    return {"rewards": reward, "extra_logs": {"asked": 1.0}}
'''
TEXT = "What is {} + {}?"


def flags(folder: Path, count: int, evaluated: int) -> dict[str, str | None]:
    """Write a reward function and questions for training and evaluation; return a user's flags for them."""
    (folder / "reward.py").write_text(REWARD)
    for name, numbers in (("questions", range(count)), ("held-out", range(100, 100 + evaluated))):
        rows = [{"question": TEXT.format(n, n), "answer": str(2 * n), "datasource": "sums"} for n in numbers]
        (folder / f"{name}.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    return {
        "reward.remote_url": str(folder / "reward.py"),
        "data.input_key": "question",
        "data.label_key": "answer",
        "data.apply_chat_template": None,
    }


def rewards_of(run: Run) -> dict[str, float]:
    """Return the reward that the function gave, by the text of the row."""
    lines = [json.loads(line) for line in (run.spy / "own.jsonl").read_text().splitlines()]
    assert all(f"{int(line['label']) // 2} + " in line["query"] for line in lines)
    return {line["query"]: line["reward"] for line in lines}


def is_question(row: Row, tokenizer: Any) -> bool:
    return TEXT.split("{}")[0] in tokenizer.decode(row.prompt)


def asked(run: Run, update: Update, tokenizer: Any) -> dict[int, Played]:
    """Return the question of each row that has one, by the `id` of the row, with its reward."""
    rewards = rewards_of(run)
    requests = [json.loads(line) for line in (run.spy / "engine.jsonl").read_text().splitlines()]
    result = {}
    for row in update.rows:
        if is_question(row, tokenizer):
            made = evidence.conversation(row.prompt + row.response, requests)
            text = tokenizer.decode(row.prompt + row.response)
            result[id(row)] = Played(made.requests, [rewards[text]])
    return result

"""What `gem-core doctor` says about the arguments of a trainer's command, for the tests of each trainer."""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Mapping, Sequence
from pathlib import Path

import pytest

from gem_lab import main
from tests.docs.blocks import ROOT

SILENT_SERVER = "openenv:http://127.0.0.1:1"
"""Environment on a server that does not answer."""

TRUNCATED = (
    "the engine samples from fewer tokens than the log-probs cover, so the importance ratio and the gradient "
    "are those of another distribution"
)
"""The plan's note about a sampling parameter such as top_p."""


def check_mistakes(
    trainer: str,
    arguments: Sequence[str],
    mistakes: Mapping[tuple[str, ...], str],
    capsys: pytest.CaptureFixture[str],
) -> None:
    """Check that the doctor accepts arguments, and that its message about each mistake contains a text.

    Args:
        trainer: Name of the trainer.
        arguments: Accepted arguments.
        mistakes: Maps arguments to the text. They are appended, after others for the same ``key=value``.
        capsys: Fixture of the test.
    """
    problem = problem_of(trainer, arguments, capsys)
    assert problem is None, problem
    for words, text in mistakes.items():
        names = {_name(word) for word in words if "=" in word}
        problem = problem_of(
            trainer, [*(word for word in arguments if _name(word) not in names), *words], capsys
        )
        assert problem is not None, f"{words} are accepted"
        assert text in problem, words


def problem_of(trainer: str, arguments: Sequence[str], capsys: pytest.CaptureFixture[str]) -> str | None:
    """Return why the doctor rejects arguments, with what the trainer prints; None if it accepts them."""
    capsys.readouterr()
    code = main(["doctor", "--trainer", trainer, "--json", "--", *arguments])
    out, err = capsys.readouterr()
    report = json.loads(out)
    assert report["checked"], report["problems"]
    assert code == int(report["problem"] is not None)
    return f"{report['problem']} {err}" if code else None


def plan_of(trainer: str, arguments: Sequence[str], capsys: pytest.CaptureFixture[str]) -> list[str]:
    """Return the lines of the plan that the doctor prints for accepted arguments."""
    capsys.readouterr()
    assert main(["doctor", "--trainer", trainer, "--", *arguments]) == 0
    lines = capsys.readouterr().out.splitlines()
    return [line.removeprefix("plan ") for line in lines if line.startswith("plan ")]


def own_words(trainer: str, own_id: str) -> list[str]:
    """Return the words in which the tutorial names an environment to a trainer, for one's own id.

    If the page names several ways, these are the words of the first. If they are a command of gem-core, it is
    run in the current folder, and the result is empty.
    """
    page = (ROOT / "docs/concepts/create.md").read_text(encoding="utf-8")
    (text,) = re.findall(rf"^\| \[{trainer}\]\(.*?\) \| `(.*?)`", page, re.MULTILINE | re.IGNORECASE)
    words = shlex.split(text.replace("hot_cold.py:HotCold", own_id))
    if words[0] != "gem-core":
        return words
    assert main(words[1:]) == 0
    return []


def write_questions(folder: Path) -> None:
    """Write ``gsm8k/train.jsonl`` and ``gsm8k/test.jsonl`` like those that the trainers' pages assume."""
    (folder / "gsm8k").mkdir()
    rows = [{"question": f"What is {n} + {n}?", "answer": str(2 * n)} for n in range(16)]
    for split in ("train", "test"):
        text = "".join(json.dumps(row) + "\n" for row in rows)
        (folder / "gsm8k" / f"{split}.jsonl").write_text(text)


def _name(word: str) -> str:
    return word.lstrip("+").split("=")[0]

"""What `gem-core doctor` says about the arguments of a trainer's command, for the tests of each trainer."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence

import pytest

from gem_core.cli import main


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


def _name(word: str) -> str:
    return word.lstrip("+").split("=")[0]

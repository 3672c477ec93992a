"""The command that a trainer's page checks with `gem-core doctor` is the command that it runs."""

from __future__ import annotations

import pytest

from tests.docs.blocks import blocks, command_lines, split_commands

DOCTOR = ("gem-core", "doctor", "--trainer")
PAGES = ("docs/trainers/openrlhf.md",)
"""Pages that show both commands in full."""
CHECKED = [(page, words) for page in PAGES for words in command_lines(page, *DOCTOR) if "--" in words]


@pytest.mark.parametrize(("page", "words"), CHECKED, ids=[f"{page}-{words[3]}" for page, words in CHECKED])
def test_the_page_runs_the_command_that_it_checks(page: str, words: list[str]) -> None:
    arguments = words[words.index("--") + 1 :]
    run = [
        command
        for block in blocks(page)
        if block.language == "bash"
        for command in split_commands(block.code)
        if command[:3] != [*DOCTOR] and command[-len(arguments) :] == arguments
    ]
    assert run, f"{page} checks {arguments}, but runs no command with these arguments"
    programs = [command[: -len(arguments)] for command in run]
    assert any(not [word for word in program if word.startswith("--") or "=" in word] for program in programs)


def test_each_page_checks_a_command() -> None:
    assert {page for page, _ in CHECKED} == {*PAGES}

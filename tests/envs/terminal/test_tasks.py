"""Every task: its reference solution passes, near misses fail, and no two tasks are alike."""

from __future__ import annotations

import re
from contextlib import closing

import pytest

from gem_core.errors import SandboxError
from gem_envs import _drawn as words
from gem_envs._terminal.source import OwnTasks
from gem_envs._terminal.task import TASKS
from gem_envs.sandbox import open_shell

SOURCE = OwnTasks()
SEEDS = (0,)


def shell():
    try:
        return open_shell()
    except SandboxError as error:
        pytest.skip(str(error))


def failed(task, *commands):
    """Return the tests that fail after the commands."""
    with closing(shell()) as one:
        one.write(task.files)
        for command in commands:
            one.run(command, seconds=60)
        return SOURCE.grade(task, one, shell).failed


def skeleton(index):
    """Return the instruction without numbers and without drawn words."""
    drawn = "|".join((*words.PEOPLE, *words.THINGS, *words.PLACES))
    return re.sub(rf"\d+|\b(?:{drawn})\b", "#", SOURCE.task(index, 0).instruction, flags=re.IGNORECASE)


def test_there_are_enough_items():
    assert len(SOURCE) >= 30
    assert all(len(TASKS.makers[group]) >= 6 for group in TASKS.groups)


def test_no_two_are_alike():
    shapes = [set(re.findall(r"\w+", skeleton(index).lower())) for index in range(len(SOURCE))]
    for place, one in enumerate(shapes):
        for other in shapes[:place]:
            assert len(one & other) / len(one | other) < 0.5, (sorted(one), sorted(other))


def test_the_instruction_of_the_statistics_names_each_number():
    text = SOURCE.task(SOURCE.names.index("statistics"), 0).instruction
    places = [
        text.index(word) for word in ("four numbers", "the smallest", "the largest", "the sum", "how many")
    ]
    assert places == sorted(places)


@pytest.mark.parametrize("index", range(len(SOURCE)), ids=SOURCE.names)
def test_seeds_draw_names_and_numbers(index):
    drawn = [SOURCE.task(index, seed) for seed in range(6)]
    assert len({repr((task.instruction, sorted(task.files.items()))) for task in drawn}) > 1
    assert SOURCE.task(index, 3).files == drawn[3].files
    assert SOURCE.task(index, 3).solution == drawn[3].solution


@pytest.mark.once
@pytest.mark.parametrize("index", range(len(SOURCE)), ids=SOURCE.names)
def test_the_solution_passes_and_similar_ones_fail(index):
    for seed in SEEDS:
        task = SOURCE.task(index, seed)
        assert failed(task, task.solution) == []
        assert failed(task) != []
        assert len(task.wrong) >= 2
        for wrong in task.wrong:
            assert failed(task, wrong) != [], wrong

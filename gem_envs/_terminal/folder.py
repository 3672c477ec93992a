r"""`TerminalBench`: tasks from a folder in the format of terminal-bench or of its successor, Harbor.

See `gem_envs._terminal.formats` for the formats.
"""

from __future__ import annotations

import math
import shlex
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from gem_core._core import Split
from gem_core._util.foreign_json import read_json
from gem_core.errors import ConfigError, DataError, EnvError, SandboxError
from gem_envs._base import MoveResult
from gem_envs._terminal.env import SUBMIT, Terminal
from gem_envs._terminal.formats import HARBOR_SCRIPT, FolderTask, Step, is_task, read_task
from gem_envs._terminal.pytest_verdict import printed_verdict, run_pytest
from gem_envs._terminal.source import Grade
from gem_envs._terminal.task import TerminalTask
from gem_envs.data._split import undivided
from gem_envs.sandbox._shell import File, Shell

_VERIFIER = "/logs/verifier"


class TerminalBench(Terminal):
    r"""Tasks of terminal-bench, with their own tests, from a folder.

    Action: as in `Terminal`.

    Rewards: as in `Terminal`, with the tests of the task. As in terminal-bench, they run on the machine that
    the player has worked on, after all its processes have been stopped. Each test in the text of the test
    files has to be seen to pass. A test script of a Harbor task may pay any reward from 0 to 1, and pays 0 if
    it writes none. In a task with steps, ``submit`` ends the step and shows the next instruction;
    each step pays its reward divided by the number of steps, or, if the task says so, only the last one pays.
    A step whose reward is below its ``min_reward`` ends the episode.

    `max_return` is 1. The oracle runs the reference solution if a task has one.

    The seed draws the task; ``reset(options={"index": i})`` selects task i, in order of name.
    """

    state_fields = (*Terminal.state_fields, "step_starts", "solved_steps")
    whole_image = True

    source: FolderTasks
    step_starts: list[int]
    """Number of commands before each step that has begun."""
    solved_steps: int
    """Number of steps that earned the full reward."""

    def __init__(
        self,
        folder: str | None = None,
        tasks: Sequence[str] | str | None = None,
        max_turns: int = 50,
        seconds: float = 60.0,
        max_output: int = 8000,
        level: str | None = None,
        image: str | None = None,
        packages: Sequence[str] | str = (),
        run_script: bool = False,
        eval_only: bool = True,
    ) -> None:
        """Read the tasks.

        Args:
            folder: Folder that contains one folder per task, or the folder of a single task.
            tasks: Names of tasks; None means all that can run at the level.
            max_turns: Turn limit.
            seconds: Wall-clock limit per command.
            max_output: Maximum number of characters shown of a command's output.
            level: Isolation level. "namespace" (or None) plays the tasks whose image only has files below
                ``/app``; "container" plays tasks whose image you have built.
            image: Name of the image at level "container"; ``{task}`` in it is replaced by the name of the
                task.
            packages: Distributions that Python in the shell and the tests can import at level "namespace".
            run_script: Whether to run the task's own test script, which may need network access. Otherwise
                pytest runs the test files, and the script runs only if there are no test files.
            eval_only: Whether all tasks are for evaluation only; False lets all of them be trained on.

        Raises:
            ConfigError: A value is out of range, or a task unknown.
            DataError: The folder has no playable task; the message says why.
            SandboxError: The level is unavailable on this machine, or too weak.
            MissingDependency: A package is not installed.
        """
        if folder is None:
            raise DataError("folder=None: expected a folder of terminal-bench or Harbor tasks")
        distributions = (packages,) if isinstance(packages, str) else tuple(packages)
        files = level != "container"
        source = FolderTasks(folder, (tasks,) if isinstance(tasks, str) else tasks, files, run_script)
        self.skipped = source.skipped
        self.image_name = image
        self.use(source, max_turns, seconds, max_output)
        self.task_index = 0
        self.eval_only = eval_only
        self.set_level(level, image, ("pytest", *distributions) if files else ())

    def items(self, split: Split) -> range:
        return undivided(self.num_items, self.eval_only, split)

    # -- steps --------------------------------------------------------------------------------

    def new_game(self) -> None:
        super().new_game()
        self.step_starts, self.solved_steps = [0], 0

    @property
    def task(self) -> TerminalTask:
        """The task of the current step."""
        return self.steps[len(self.step_starts) - 1].task

    @property
    def steps(self) -> tuple[Step, ...]:
        """The steps of the current task; most tasks have one."""
        return self._folder_task.steps

    @property
    def _folder_task(self) -> FolderTask:
        return self.source.tasks[self.source.names[self.task_index]]

    def graded(self, before: str, grade: Grade) -> MoveResult:
        """Return the result of a submitted step."""
        if len(self.steps) == 1:
            return super().graded(before, grade)
        number, final = len(self.step_starts), self._folder_task.final
        last = number == len(self.steps)
        self.solved_steps += grade.reward >= 1
        self.passed = self.solved_steps / len(self.steps)
        share = (grade.reward if last else 0.0) if final else grade.reward / len(self.steps)
        if last:
            solved = grade.reward >= 1 if final else self.solved_steps == number
            text = "All tests pass." if solved else "Not all tests pass."
            return f"{before}Step {number} of {number} is over. {text}", share, "solved" if solved else "lost"
        min_rewards = self.steps[number - 1].min_rewards
        rewards = {"reward": grade.reward} if grade.rewards is None else grade.rewards
        if any(rewards.get(name, float("-inf")) < reward for name, reward in min_rewards.items()):
            text = f"Step {number} is not good enough for the next one."
            return f"{before}{text}", share, "lost"
        self.step_starts.append(len(self.commands))
        assert self._shell is not None
        if not self._begin_step(self._shell, number):
            return f"{before}Step {number + 1} could not be set up.", share, "lost"
        text = f"Step {number} of {len(self.steps)} is over. The next instruction:\n\n{self.task.instruction}"
        return before + text, share, "continue"

    def open_folder(self) -> tuple[str, dict[str, File]]:
        if len(self.steps) > 1:
            raise ConfigError(
                "an agent with a folder of its own plays tasks of one step, and this one has "
                f"{len(self.steps)}; play it with Command(..., folder=False)"
            )
        return super().open_folder()

    def oracle_action(self) -> str | None:
        self._require_running("oracle_action")
        solution = self.task.solution.strip()
        if not solution:
            return None
        return self._written(SUBMIT if solution in self.commands[self.step_starts[-1] :] else solution)

    def _open(self) -> Shell:
        name = self.source.names[self.task_index]
        self.image = None if self.image_name is None else self.image_name.replace("{task}", name)
        return super()._open()

    def _replay(self, shell: Shell) -> None:
        for index, start in enumerate(self.step_starts):
            if not self._begin_step(shell, index) and index == 0:
                raise EnvError(f"the setup of {self.source.names[self.task_index]} failed")
            end = self.step_starts[index + 1] if index + 1 < len(self.step_starts) else None
            for command in self.commands[start:end]:
                shell.run(command)

    def _begin_step(self, shell: Shell, index: int) -> bool:
        """Write the files of a step and run its setup; return whether that succeeded."""
        step = self.steps[index]
        try:
            if index:
                shell.renew("/tests")
                shell.renew(_VERIFIER)
                shell.run("cd /app")
            shell.write(step.task.files)
        except SandboxError:  # the player has prevented it
            return False
        if not step.has_setup:
            return True
        return shell.run("cd /app; bash /app/setup.sh", seconds=step.seconds).status == 0


class FolderTasks:
    """The tasks of a folder.

    Args:
        folder: Folder that contains one folder per task, or the folder of a single task.
        names: Names of tasks; None means all that can be played.
        files: Whether to create the files of the image from its Dockerfile, because no image is used.
        run_script: Whether to run the task's own test script.

    Raises:
        ConfigError: A task is unknown or cannot be played.
        DataError: No task can be played.
    """

    def __init__(self, folder: str, names: Sequence[str] | None, files: bool, run_script: bool) -> None:
        root = Path(folder)
        if not root.is_dir():
            raise DataError(f"folder={folder!r}: expected a folder")
        self.files, self.run_script = files, run_script
        self.skipped: dict[str, str] = {}
        """Reasons why tasks cannot be played, by name of the task."""
        self.tasks: dict[str, FolderTask] = {}
        paths = [root] if is_task(root) else [path for path in sorted(root.iterdir()) if is_task(path)]
        for path in paths:
            if names is None or path.name in names:
                try:
                    self.tasks[path.name] = read_task(path, files)
                except DataError as error:
                    self.skipped[path.name] = str(error)
        if missing := [name for name in names or () if name not in self.tasks]:
            raise ConfigError(f"task {missing[0]!r}: {self.skipped.get(missing[0], f'not in {folder}')}")
        if not self.tasks:
            why = "; ".join(f"{name}: {reason}" for name, reason in list(self.skipped.items())[:3])
            advice = "; build the images and use level='container'" if why else ""
            raise DataError(f"{folder} has no playable task ({why or 'no task at all'}){advice}")
        self.names = list(self.tasks)

    def __len__(self) -> int:
        return len(self.names)

    def task(self, index: int, seed: int) -> TerminalTask:
        """See `TaskSet`. Nothing is drawn; the first step is returned."""
        return self.tasks[self.names[index]].steps[0].task

    def grade(self, task: TerminalTask, shell: Shell, open: Callable[[], Shell]) -> Grade:
        """See `TaskSet`. The tests run in the shell of the episode, as the formats require."""
        step = next(step for one in self.tasks.values() for step in one.steps if step.task is task)
        try:
            shell.renew("/tests")
            shell.renew(_VERIFIER)
            shell.write(step.tests, "/tests")
        except SandboxError:  # the player has prevented it
            return Grade(["the tests could not be put in place"], 1)
        before = "export PYTHONNOUSERSITE=1" if self.files else ":"  # /app is the home of the player
        if step.required and not self.run_script:
            return run_pytest(shell, step.tests, step.required, step.seconds, before)
        exports = "; ".join(f"export {name}={shlex.quote(value)}" for name, value in step.env.items())
        return _run_script(shell, step, f"{before}; {exports or ':'}")


def _run_script(shell: Shell, step: Step, before: str) -> Grade:
    """Run the test script, which is in ``/tests``, and grade by what it wrote.

    A script of Harbor has to write a reward; of two files, the lower reward counts. A script of
    terminal-bench has to end with status 0 and to show that the tests in its test files, if any, passed.
    """
    harbor = step.script == HARBOR_SCRIPT
    log = f"{_VERIFIER}/test-stdout.txt"
    end = f"> {log} 2>&1" if harbor else "2>&1"
    script = (
        f"({before}; export PYTEST_ADDOPTS=-rA; cd /app; TEST_DIR=/tests bash /tests/{step.script} {end})"
    )
    result = shell.run(script, seconds=step.seconds, characters=10**6)
    if harbor:
        files = [shell.fetch(f"{_VERIFIER}/{name}") for name in ("reward.json", "reward.txt")]
        grades = [Grade([], 1, _rewards(data)) for data in files if data is not None]
        grade = min(grades, key=lambda one: one.reward, default=Grade([], 1, {}))
        return grade if grade.reward >= 1 else Grade([step.script], 1, grade.rewards)
    failed = printed_verdict(result.output, step.required)
    if not failed and (result.ending, result.status) != ("ok", 0):
        failed = [step.script]
    return Grade(failed, max(1, len(step.required)))


def _rewards(data: bytes) -> dict[str, float]:
    """Return the rewards by name in ``reward.json`` or ``reward.txt``; none if they cannot be read."""
    try:
        values = read_json(data)
        named: Mapping[str, Any] = values if isinstance(values, dict) else {"reward": values}
        rewards = {name: float(value) for name, value in named.items()}
    except (ValueError, TypeError):
        return {}
    readable = all(map(math.isfinite, rewards.values()))
    return {name: min(1.0, max(0.0, value)) for name, value in rewards.items()} if readable else {}

r"""`TerminalBench`: tasks from a folder in the format of terminal-bench or of its successor, Harbor.

| part | terminal-bench | Harbor |
|---|---|---|
| instruction | ``instruction`` in ``task.yaml`` | ``instruction.md`` |
| machine | ``Dockerfile`` | ``environment/Dockerfile`` |
| tests | ``tests/``, ``run-tests.sh`` | ``tests/``, with ``test.sh`` |
| reference solution | ``solution.sh`` | ``solution/solve.sh`` |
"""

from __future__ import annotations

import importlib
import re
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from gem_core.core import Split
from gem_core.data import undivided
from gem_core.envs.terminal.dockerfile import files_of
from gem_core.envs.terminal.env import Terminal
from gem_core.envs.terminal.source import Grade
from gem_core.envs.terminal.task import Task
from gem_core.errors import ConfigError, DataError, MissingDependency, SandboxError
from gem_core.sandbox.shell import File, Shell

_TEST_SECONDS = 180.0
_PYTEST = (  # isolated, so that no module in the player's folder can replace pytest
    'cd /app; python3 -I -c \'import sys; sys.path.append("/packages"); import pytest; '
    "sys.exit(pytest.main(sys.argv[1:]))' -rA -q --tb=no -p no:cacheprovider {} 2>&1"
)
_CLEAR = "chmod -R u+rwx /tests; rm -rf /tests/* /tests/.[!.]*"
_SCRIPT = (
    'cd /app; rm -rf /logs/verifier/*; mkdir -p "$(readlink -f /logs)/verifier"; '
    "TEST_DIR=/tests bash /tests/{} > /logs/tests.txt 2>&1"
)
_REWARD = "cat /logs/verifier/reward.txt"


class TerminalBench(Terminal):
    r"""Tasks of terminal-bench, with their own tests, from a folder.

    Action: as in `Terminal`.

    Rewards: as in `Terminal`, with the tests of the task. As in terminal-bench, they run on the machine that
    the player has worked on, after all its processes have been stopped.

    `max_return` is 1. The oracle runs the reference solution if a task has one.

    The seed draws the task; ``reset(options={"index": i})`` selects task i, in order of name.
    """

    whole_image = True

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
        wanted = (packages,) if isinstance(packages, str) else tuple(packages)
        files = level != "container"
        source = FolderTasks(folder, (tasks,) if isinstance(tasks, str) else tasks, files, run_script)
        self.skipped = source.skipped
        self.image_name = image
        self.use(source, max_turns, seconds, max_output)
        self.task_index = 0
        self.eval_only = eval_only
        self.set_level(level, image, ("pytest", *wanted) if files else ())

    def items(self, split: Split) -> range:
        return undivided(self.num_items, self.eval_only, split)

    def _open(self) -> Shell:
        name = self.source.names[self.task_index]  # type: ignore[attr-defined]
        self.image = None if self.image_name is None else self.image_name.replace("{task}", name)
        return super()._open()


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
        self.run_script = run_script
        self.skipped: dict[str, str] = {}
        """Why a task cannot be played, by the name of the task."""
        self._tasks: dict[str, tuple[Path, Task]] = {}
        paths = [root] if _is_task(root) else [path for path in sorted(root.iterdir()) if _is_task(path)]
        for path in paths:
            if names is None or path.name in names:
                try:
                    self._tasks[path.name] = path, _read(path, files)
                except DataError as error:
                    self.skipped[path.name] = str(error)
        if missing := [name for name in names or () if name not in self._tasks]:
            raise ConfigError(f"task {missing[0]!r}: {self.skipped.get(missing[0], f'not in {folder}')}")
        if not self._tasks:
            why = "; ".join(f"{name}: {reason}" for name, reason in list(self.skipped.items())[:3])
            advice = "; build the images and use level='container'" if why else ""
            raise DataError(f"{folder} has no playable task ({why or 'no task at all'}){advice}")
        self.names = list(self._tasks)

    def __len__(self) -> int:
        return len(self.names)

    def task(self, index: int, seed: int) -> Task:
        """See `TaskSet`. Nothing is drawn."""
        return self._tasks[self.names[index]][1]

    def grade(self, task: Task, shell: Shell, open: Callable[[], Shell]) -> Grade:
        """See `TaskSet`. The tests run in the shell of the episode, as the format requires."""
        path = next(path for path, one in self._tasks.values() if one is task)
        shell.read()  # stops running processes
        folder = path / "tests"
        tests = {f.relative_to(folder).as_posix(): File(f.read_bytes(), f.stat().st_mode & 0o777)
                 for f in sorted(folder.rglob("*")) if f.is_file()}  # fmt: skip
        script = path / "run-tests.sh"
        if script.is_file():
            tests["run-tests.sh"] = File(script.read_bytes(), 0o755)
        shell.run(_CLEAR)
        try:
            shell.write(tests, "/tests")
        except SandboxError:  # the player has prevented it
            return Grade(["the tests could not be put in place"], 1)
        seconds = _seconds(path)
        found = [name for name in tests if re.fullmatch(r"test_\w+\.py", name)]
        if found and not self.run_script:
            result = shell.run(_PYTEST.format(" ".join(f"/tests/{name}" for name in found)), seconds=seconds)
            return _pytest_grade(result.output, result.status)
        name = "test.sh" if "test.sh" in tests else "run-tests.sh"
        status = shell.run(_SCRIPT.format(name), seconds=seconds).status
        reward = shell.run(_REWARD)
        try:
            passed = float(reward.output) >= 1 if reward.status == 0 else status == 0
        except ValueError:
            passed = False
        return Grade([] if passed else [name], 1)


def _pytest_grade(output: str, status: int) -> Grade:
    lines = re.findall(r"^(PASSED|FAILED|ERROR) \S*?([\w.]+(?:::\S+)?)(?: - .*)?$", output, re.MULTILINE)
    failed = [name for verdict, name in lines if verdict != "PASSED"]
    if status and not failed:
        failed = ["the tests did not run to their end"]
    return Grade(failed, max(len(lines), len(failed)))


def _is_task(path: Path) -> bool:
    return (path / "task.yaml").is_file() or (path / "instruction.md").is_file()


def _read(path: Path, files: bool) -> Task:
    """Read a task.

    Raises:
        DataError: The task cannot be played.
    """
    harbor = (path / "instruction.md").is_file()
    if harbor:
        instruction: Any = (path / "instruction.md").read_text(encoding="utf-8")
    else:
        instruction = _yaml(path / "task.yaml").get("instruction")
    if not isinstance(instruction, str) or not instruction.strip():
        raise DataError("it has no instruction")
    if not any((path / "tests").glob("test*")) and not (path / "run-tests.sh").is_file():
        raise DataError("it has no tests")
    image = path / "environment" / "Dockerfile" if harbor else path / "Dockerfile"
    solution = path / "solution" / "solve.sh" if harbor else path / "solution.sh"
    text = solution.read_text(encoding="utf-8") if solution.is_file() else ""
    return Task(instruction.strip(), files_of(image) if files else {}, (), text, ())


def _seconds(path: Path) -> float:
    """Return the time limit of the tests in seconds."""
    if (path / "task.yaml").is_file():
        found = _yaml(path / "task.yaml").get("max_test_timeout_sec")
    else:
        text = (path / "task.toml").read_text(encoding="utf-8") if (path / "task.toml").is_file() else ""
        section = re.search(r"^\[verifier\]$(.*?)(?=^\[|\Z)", text, re.MULTILINE | re.DOTALL)
        match = re.search(r"^timeout_sec\s*=\s*([0-9.]+)", section[1], re.MULTILINE) if section else None
        found = match and match[1]
    try:
        return max(1.0, float(found)) if found else _TEST_SECONDS
    except (TypeError, ValueError):
        return _TEST_SECONDS


def _yaml(path: Path) -> dict[str, Any]:
    try:
        yaml = importlib.import_module("yaml")
    except ModuleNotFoundError as error:
        raise MissingDependency(
            "task.yaml needs the package 'yaml': pip install 'gem-core[terminal]'"
        ) from error
    try:
        found = yaml.safe_load(path.read_text(encoding="utf-8"))
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        raise DataError(f"its task.yaml cannot be read: {' '.join(str(error).split())[:200]}") from None
    return found if isinstance(found, dict) else {}

"""Tasks in the formats of terminal-bench and of Harbor, read from a folder: `read_task`.

| part | terminal-bench | Harbor | step of a Harbor task |
|---|---|---|---|
| settings | ``task.yaml`` | ``task.toml`` | a table of ``[[steps]]`` in ``task.toml`` |
| instruction | ``instruction`` in ``task.yaml`` | ``instruction.md`` | ``steps/NAME/instruction.md`` |
| machine | ``Dockerfile`` | ``environment/Dockerfile`` | the machine that the previous step left behind |
| new files | none | none | ``steps/NAME/workdir/``, where ``setup.sh`` is run |
| tests | ``tests/``, ``run-tests.sh`` | ``tests/``, ``test.sh`` | ``steps/NAME/tests/`` over ``tests/`` |
| solution | ``solution.sh`` | ``solution/solve.sh`` | ``steps/NAME/solution/solve.sh`` |

The settings have the same meaning as in harbor 0.25 (``harbor/models/task/config.py``,
``harbor/trial/multi_step.py``), except that a step that is not reached counts as 0 in the mean.
"""

from __future__ import annotations

import importlib
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from gem_core.errors import DataError, MissingDependency
from gem_envs._links import check_links
from gem_envs._terminal.dockerfile import files_of
from gem_envs._terminal.pytest_verdict import pytest_files, required_tests
from gem_envs._terminal.task import TerminalTask
from gem_envs.sandbox._shell import File, Files

HARBOR_SCRIPT = "test.sh"
_TEST_SECONDS = 180.0
_COMPOSED = ("docker-compose.yaml", "docker-compose.yml")
_MOST = 256 * 2**20


@dataclass(frozen=True)
class Step:
    """An instruction with the tests that grade it.

    Attributes:
        task: Instruction, files to write before the step, and reference solution.
        tests: Files of ``/tests``, by path.
        required: Tests that have to pass; see `gem_envs._terminal.pytest_verdict.required_tests`.
        script: Name of the test script in `tests`.
        seconds: Time limit of the tests.
        env: Environment variables of the test script.
        min_rewards: Smallest reward by name; below any of them the next steps are not played.
    """

    task: TerminalTask
    tests: Files
    required: Mapping[str, int]
    script: str
    seconds: float
    env: Mapping[str, str]
    min_rewards: Mapping[str, float]

    @property
    def has_setup(self) -> bool:
        """Whether the step begins with a script."""
        return "setup.sh" in self.task.files


@dataclass(frozen=True)
class FolderTask:
    """A task: one or more steps on the same machine.

    Attributes:
        steps: Steps in order.
        final: Whether only the reward of the last step counts; otherwise the mean over the steps.
    """

    steps: tuple[Step, ...]
    final: bool = False


def is_task(path: Path) -> bool:
    """Return whether a folder contains a task."""
    names = ("task.yaml", "instruction.md", "steps")
    return any((path / name).exists() for name in names)


def read_task(path: Path, files: bool) -> FolderTask:
    """Read a task.

    Args:
        path: Folder of the task.
        files: Whether to create the files of the image from its Dockerfile, because no image is used.

    Raises:
        DataError: The task cannot be played; the message says why.
        MissingDependency: The package that reads the settings is not installed.
    """
    check_links(path)
    return _terminal_bench(path, files) if (path / "task.yaml").is_file() else _harbor(path, files)


def _terminal_bench(path: Path, files: bool) -> FolderTask:
    settings = _yaml(path / "task.yaml")
    if settings.get("parser_name", "pytest") != "pytest":
        raise DataError(f"its test results are for the parser {settings['parser_name']!r}, expected 'pytest'")
    tests = _folder(path / "tests")
    script = path / "run-tests.sh"
    if script.is_file():
        tests["run-tests.sh"] = File(script.read_bytes(), 0o755)
    initial = files_of(path / "Dockerfile") if files else {}
    task = _task(settings.get("instruction"), initial, path / "solution.sh")
    seconds = _seconds(settings.get("max_test_timeout_sec"))
    return FolderTask((_step(task, tests, "run-tests.sh", seconds, {}, {}),))


def _harbor(path: Path, files: bool) -> FolderTask:
    settings = _toml(path / "task.toml")
    initial = _initial(path / "environment", settings.get("environment", {})) if files else {}
    final = settings.get("multi_step_reward_strategy", "mean") == "final"
    tables = settings.get("steps") or [{}]
    steps = []
    for index, table in enumerate(tables):
        folder = path / "steps" / str(table.get("name")) if "steps" in settings else path
        if folder != path and folder.resolve().parent != (path / "steps").resolve():
            raise DataError(f"the name of step {index + 1} is not the name of a folder")
        instruction = folder / "instruction.md"
        text = instruction.read_text(encoding="utf-8") if instruction.is_file() else None
        new = {**(initial if index == 0 else {}), **(_folder(folder / "workdir") if folder != path else {})}
        verifier = {**settings.get("verifier", {}), **table.get("verifier", {})}
        if verifier.get("environment_mode", "shared") != "shared":
            raise DataError("its tests need a machine of their own")
        env = {**settings.get("verifier", {}).get("env", {}), **table.get("verifier", {}).get("env", {})}
        if any("${" in str(value) for value in env.values()):
            raise DataError("its tests need environment variables of the host")
        min_reward = table.get("min_reward")
        steps.append(
            _step(
                _task(text, new, folder / "solution" / "solve.sh"),
                {**_folder(path / "tests"), **_folder(folder / "tests")},
                HARBOR_SCRIPT,
                _seconds(verifier.get("timeout_sec")),
                env,
                {}
                if min_reward is None
                else min_reward
                if isinstance(min_reward, dict)
                else {"reward": min_reward},
            )
        )
    return FolderTask(tuple(steps), final)


def _initial(folder: Path, settings: Mapping[str, Any]) -> dict[str, File]:
    """Return the files of the image of a Harbor task."""
    if any((folder / name).is_file() for name in _COMPOSED):
        raise DataError("it needs several containers")
    if settings.get("docker_image") and not (folder / "Dockerfile").is_file():
        raise DataError(f"it needs the image {settings['docker_image']}")
    if settings.get("workdir") not in (None, "/app"):
        raise DataError(f"its folder is {settings['workdir']}, but a sandbox supports only /app")
    return files_of(folder / "Dockerfile")


def _task(instruction: Any, files: Files, solution: Path) -> TerminalTask:
    if not isinstance(instruction, str) or not instruction.strip():
        raise DataError("it has no instruction")
    text = solution.read_text(encoding="utf-8") if solution.is_file() else ""
    return TerminalTask(instruction.strip(), files, (), text, ())


def _step(
    task: TerminalTask,
    tests: dict[str, File],
    script: str,
    seconds: float,
    env: Mapping[str, Any],
    min_rewards: Mapping[str, Any],
) -> Step:
    if not any(name.startswith("test") or name == script for name in tests):
        raise DataError("it has no tests")
    required = required_tests(tests)
    if pytest_files(tests) and not required and script not in tests:
        raise DataError("its test files define no test that has to pass")
    return Step(
        task,
        tests,
        required,
        script,
        seconds,
        {name: str(value) for name, value in env.items()},
        {name: float(value) for name, value in min_rewards.items()},
    )


def _folder(path: Path) -> dict[str, File]:
    """Return the files below a folder.

    Raises:
        DataError: They are larger than `_MOST`.
    """
    files = [file for file in sorted(path.rglob("*")) if file.is_file()]
    if sum(file.stat().st_size for file in files) > _MOST:
        raise DataError(f"the files in {path.name} are larger than {_MOST >> 20} MiB")
    return {
        file.relative_to(path).as_posix(): File(file.read_bytes(), file.stat().st_mode & 0o777)
        for file in files
    }


def _seconds(value: Any) -> float:
    try:
        return max(1.0, float(value)) if value else _TEST_SECONDS
    except (TypeError, ValueError):
        return _TEST_SECONDS


def _yaml(path: Path) -> dict[str, Any]:
    yaml = _reader("yaml")
    try:
        settings = yaml.safe_load(path.read_text(encoding="utf-8"))
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        raise DataError(f"its task.yaml cannot be read: {' '.join(str(error).split())[:200]}") from None
    return settings if isinstance(settings, dict) else {}


def _toml(path: Path) -> dict[str, Any]:
    if not path.is_file():
        return {}
    toml = _reader("tomllib" if sys.version_info >= (3, 11) else "tomli")
    try:
        settings: dict[str, Any] = toml.loads(path.read_text(encoding="utf-8"))
    except (toml.TOMLDecodeError, UnicodeDecodeError) as error:
        raise DataError(f"its task.toml cannot be read: {' '.join(str(error).split())[:200]}") from None
    return settings


def _reader(name: str) -> Any:
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError as error:
        raise MissingDependency(
            f"the task's settings need the package {name!r}: pip install 'gem-core[terminal]'"
        ) from error

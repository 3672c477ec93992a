r"""`Terminal`: do a task in a shell; tests of the resulting files grade it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from random import Random
from typing import Any, ClassVar

from gem_core._core import StepResult
from gem_core._util.checks import check_int, check_number
from gem_core.errors import ConfigError, SandboxError
from gem_envs._base import MoveResult, TurnBasedEnv
from gem_envs._terminal.source import Grade, OwnTasks, TaskSet
from gem_envs._terminal.task import TerminalTask
from gem_envs._text import last_code_block
from gem_envs.sandbox._shell import LIMITS, File, Files, Shell, ShellResult, open_shell

SUBMIT = "submit"
_LANGUAGES = ("bash", "sh", "shell")
_LONGEST = 100_000
_RULES = """You have a Linux shell. Its folder is /app and holds the files of the task; there is no network.

{instruction}

Give one command per turn, of one or more lines, in a block such as
```bash
ls -l
```
You see its output. Variables and the working folder persist from turn to turn; a command may take {seconds:g}
seconds and gets no input. When the task is done, give the command {submit} by itself."""


def shell_block(text: str) -> list[str]:
    """Return the last block of shell commands in a response, as a list of at most one.

    Without a block marked as shell, an unmarked block counts, and then the bare word ``submit`` on the last
    line.
    """
    blocks = (last_code_block(text, language) for language in (*_LANGUAGES, ""))
    if marked := [block for block in blocks if block is not None]:
        return marked[:1]
    last = text.rstrip().rpartition("\n")[2].strip("`*. \t")
    return [SUBMIT] if _submits(last) else []


def _submits(line: str) -> bool:
    return line.strip().rstrip(";").rstrip() == SUBMIT


class Terminal(TurnBasedEnv[str]):
    r"""Follow an instruction with shell commands, in a sandbox without network access.

    Action: bash commands in a block that starts with three backticks and ``bash``; the last one counts, or
    else the last block without a language. The command ``submit``, on the last line of the block or by itself
    without one, submits the result.

    Rewards: on submission, 1 if every test of the resulting files passes, else 0. The last turn submits
    automatically. A format error earns -0.1 and uses up the turn; everything else earns 0. The metric
    ``progress`` is the share of passing tests.

    `max_return` is 1, and the oracle, which runs the reference solution, reaches it.

    The seed draws the task and its names and numbers; ``reset(options={"index": i})`` selects task i. A saved
    state holds the commands; restoring it runs them again.
    """

    state_fields = (*TurnBasedEnv.state_fields, "task_index", "task_seed", "commands", "passed")
    format_error_ends: ClassVar[bool] = False
    form: ClassVar[str] = "block of bash commands"
    unreadable: ClassVar[str] = "The block of bash commands is empty."
    blocking = True
    find = staticmethod(shell_block)
    whole_image: ClassVar[bool] = False
    """Whether a container uses its whole image, writable, and not just programs for ``/app``."""

    task_index: int
    """Index of the current task."""
    task_seed: int
    """Seed of its names and numbers."""
    commands: list[str]
    """Commands run in this episode."""
    handed_in: bool = False
    """Whether an agent handed in its folder."""
    _shell: Shell | None = None
    _task: TerminalTask | None = None

    def __init__(
        self,
        tasks: Sequence[str] | str | None = None,
        max_turns: int = 20,
        seconds: float = 10.0,
        max_output: int = 4000,
        level: str | None = None,
        image: str | None = None,
    ) -> None:
        """Choose the tasks.

        Args:
            tasks: Names of groups or tasks; None means all.
            max_turns: Turn limit.
            seconds: Wall-clock limit per command.
            max_output: Maximum number of characters shown of a command's output; the middle of a longer
                output is cut out.
            level: Isolation level, "namespace" or "container"; None means "namespace".
            image: Container image; it needs bash, python3, and the usual programs. None means the environment
                variable GEM_CORE_SANDBOX_IMAGE.

        Raises:
            ConfigError: A name is unknown or a value out of range.
            SandboxError: The level is unavailable on this machine, or too weak.
        """
        self.use(OwnTasks(tasks), max_turns, seconds, max_output)
        self.set_level(level, image)

    def use(self, source: TaskSet, max_turns: int, seconds: float, max_output: int) -> None:
        """Set the tasks and the limits.

        Raises:
            ConfigError: A limit is out of range.
        """
        check_number("seconds", seconds, above=0, high=3600)
        self.source, self.num_items = source, len(source)
        self.max_turns = check_int("max_turns", max_turns, 1)
        self.max_output = check_int("max_output", max_output, 100)
        self.limits = replace(LIMITS, wall_seconds=float(seconds))

    def set_level(self, level: str | None, image: str | None, packages: Sequence[str] = ()) -> None:
        """Set the isolation, and open a shell once so that anything missing is reported here.

        Raises:
            SandboxError: The level is unavailable on this machine, or too weak.
            MissingDependency: One of the `packages` for Python in the shell is not installed.
        """
        self.level, self.image, self.packages = level, image, tuple(packages)
        self._open().close()

    # -- the game -----------------------------------------------------------------------------

    def new_game(self) -> None:
        self.turn_limit = self.max_turns
        self.task_index = self.random.randrange(self.num_items)
        self.task_seed = self.random.getrandbits(48)
        self.commands, self.passed, self.handed_in = [], 0.0, False
        self._drop()

    def take_item(self, index: int) -> None:
        self.task_index, self._task = index, None

    def rules(self) -> str:
        return _RULES.format(
            instruction=self.task.instruction, seconds=self.limits.wall_seconds, submit=SUBMIT
        )  # fmt: skip

    def parse(self, text: str) -> str | None:
        return text or None

    def play(self, move: str) -> MoveResult:
        before, _, last = move.rstrip().rpartition("\n")
        submits = _submits(last)
        if submits:
            move = before.strip()
            if not move:
                return self._hand_in("")
        if len(move) > _LONGEST:
            return f"A command may have {_LONGEST} letters.", 0.0, "illegal"
        result = self._run(move)
        self.commands.append(move)
        text = self._shown(result)
        if submits:
            return self._hand_in(f"{text}\n")
        if self.turn >= self.turn_limit:
            text, reward, verdict = self._hand_in(f"{text}\n")
            return text, reward, "continue" if verdict == "lost" else verdict  # which truncates
        return text, 0.0, "continue"

    def open_folder(self) -> tuple[str, dict[str, File]]:
        """Return the instruction and the files of the task, for an agent that works in a folder of its own.

        Raises:
            ConfigError: The task is more than the files in ``/app``.
        """
        if self.whole_image and self.level == "container":
            raise ConfigError(
                "an agent with a folder of its own gets the files below /app, but at level 'container' a "
                "task is a whole image; play it at level 'namespace', or with Command(..., folder=False)"
            )
        self._run(":")
        assert self._shell is not None
        return self.task.instruction, self._shell.read()

    def hand_in_folder(self, files: Files | None) -> str:
        """Take the files that such an agent left, and return the action that has them graded.

        Args:
            files: The files by path below ``/app``; None if they cannot be read.
        """
        self._drop_shell()
        self._shell = self._open()
        try:
            self._shell.write(files or {})
        except SandboxError:  # names or sizes that no folder of ours can hold
            self._drop_shell()
            self._shell = self._open()
        self.handed_in = True
        return SUBMIT

    def progress(self) -> float:
        return self.passed

    def _end(self, *args: Any, **kwargs: Any) -> StepResult:
        self._drop_shell()
        return super()._end(*args, **kwargs)

    def set_state(self, state: Mapping[str, Any]) -> None:
        super().set_state(state)
        self._drop()
        if self._running and not (0 <= self.task_index < self.num_items):
            raise ConfigError(
                "the state belongs to an environment with other tasks; make the environment with the "
                "arguments "
                "of the saved one"
            )

    def close(self) -> None:
        self._drop_shell()

    # -- players ------------------------------------------------------------------------------

    def sample_random_action(self) -> str:
        self._require_running("sample_random_action")
        return self._written(self.random_move(self.action_random))

    def oracle_action(self) -> str | None:
        self._require_running("oracle_action")
        solution = self.task.solution.strip()
        if not solution:
            return None
        return self._written(SUBMIT if solution in self.commands else solution)

    def random_move(self, random: Random) -> str:
        """Return a command that lists or prints files; one in five submits."""
        if random.random() < 0.2:
            return SUBMIT
        files = [path for path, file in self.task.files.items() if not file.folder and file.target is None]
        look = random.choice(["ls", "cat", "head -n 3", "wc -c"]) if files else "ls"
        return look if look == "ls" else f"{look} '{random.choice(files)}'"

    @staticmethod
    def _written(command: str) -> str:
        fence = "```"
        while fence in command:
            fence += "`"
        return f"{fence}bash\n{command}\n{fence}"

    # -- the shell ----------------------------------------------------------------------------

    @property
    def task(self) -> TerminalTask:
        """The task of this episode."""
        if self._task is None:
            self._task = self.source.task(self.task_index, self.task_seed)
        return self._task

    def _open(self) -> Shell:
        return open_shell(
            self.level,
            image=self.image,
            packages=self.packages,
            limits=self.limits,
            whole_image=self.whole_image,
        )

    def _run(self, command: str) -> ShellResult:
        """Run a command in the shell of this episode, opening the shell if needed."""
        if self._shell is None:
            self._shell = self._open()
            self._replay(self._shell)
        return self._shell.run(command, characters=self.max_output)

    def _replay(self, shell: Shell) -> None:
        """Write the files of the task, and run the past commands of a restored episode."""
        shell.write(self.task.files)
        for past in self.commands:
            shell.run(past)

    def _shown(self, result: ShellResult) -> str:
        parts = [result.output.rstrip("\n")] if result.output.strip() else []
        seconds = f"{self.limits.wall_seconds:g} seconds"
        if self._shell is not None and not self._shell.alive:
            parts.append("(The machine of the shell has ended, and the files with it.)")
        elif result.ending == "timeout":
            parts.append(f"(The command took more than {seconds} and was interrupted.)")
        elif result.ending == "lost":
            parts.append(f"(The command took more than {seconds}. A new shell was started; files are kept.)")
        elif result.ending == "exited":
            parts.append(
                f"(The shell ended with status {result.status}. A new one was started; files are kept.)"
            )
        elif result.status:
            parts.append(f"(exit status {result.status})")
        return "\n".join(parts) or "(no output)"

    def _hand_in(self, before: str) -> MoveResult:
        """Grade the resulting files."""
        if not self.commands and not self.handed_in:  # no task accepts its initial files
            return f"{before}Nothing was done.", 0.0, "lost"
        if self._shell is None:  # the episode was restored
            self._run(":")
        assert self._shell is not None
        return self.graded(before, self.source.grade(self.task, self._shell, self._open))

    def graded(self, before: str, grade: Grade) -> MoveResult:
        """Return the result of a submission."""
        self.passed = 1 - len(grade.failed) / max(1, grade.tests)
        if not grade.failed:
            return f"{before}All tests pass.", 1.0, "solved"
        return f"{before}Tests that fail: {', '.join(grade.failed)[:1000]}.", grade.reward, "lost"

    def _drop(self) -> None:
        self._drop_shell()
        self._task = None

    def _drop_shell(self) -> None:
        if self._shell is not None:
            self._shell.close()
            self._shell = None

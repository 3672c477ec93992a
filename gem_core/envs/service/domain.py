"""What a customer service is made of: `Domain`, `Task` and `Operation`."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeAlias

from gem_core.errors import DataError
from gem_core.tools.base import Tool, ToolResult

Database: TypeAlias = dict[str, Any]
"""JSON-able, and changed by operations only."""

Call: TypeAlias = tuple[str, Mapping[str, Any]]
"""Name and arguments of an operation."""


class Refused(Exception):
    """An operation cannot be carried out; the message goes to the assistant, nothing was changed."""


class Operation(Tool):
    """A tool of the assistant that reads or changes the database.

    Args:
        name: As for every `Tool`.
        description: For the model.
        parameters: JSON schema of the arguments.
        act: Called as ``act(database, **arguments)``; returns what the assistant is told, or raises
            `Refused` before it changed anything.
        ends: Whether the conversation is over after it (a hand-over to a person).
    """

    def __init__(
        self,
        name: str,
        description: str,
        parameters: Mapping[str, Any],
        act: Callable[..., str],
        *,
        ends: bool = False,
    ) -> None:
        self.name = name
        self.description = description
        self.parameters = parameters
        self.ends = ends
        self._act = act

    def apply(self, database: Database, arguments: Mapping[str, Any]) -> ToolResult:
        """Carry it out on `database`; arguments that fit the schema never raise."""
        try:
            return ToolResult(self._act(database, **arguments))
        except Refused as refusal:
            return ToolResult(f"Error: {refusal}", ok=False)


@dataclass(frozen=True)
class Task:
    """What one customer wants, and how it ends well.

    Attributes:
        name: Short and unique.
        instruction: For whoever plays the user: who they are, what they want, what they know.
        request: What the scripted user opens with.
        facts: What the scripted user says when it is asked for it: by "email", "name", "order", ...
        actions: A reference solution: the calls that bring about the goal, those that only read included.
        outputs: Texts that the assistant must have said to the user.
    """

    name: str
    instruction: str
    request: str
    facts: Mapping[str, str]
    actions: Sequence[Call]
    outputs: Sequence[str] = ()


def said_anywhere(said: str, outputs: Sequence[str]) -> bool:
    """Return whether each output stands in what was said, be it within a word: the rule of tau-bench."""
    said = said.lower().replace(",", "")
    return all(output.lower().replace(",", "") in said for output in outputs)


@dataclass(frozen=True)
class Domain:
    """A service.

    Attributes:
        policy: The rules of the assistant, in words.
        operations: Its tools.
        tasks: In order; their number is the option ``index`` of a reset.
        database: Makes the database that every task starts from, new each time.
        said: Called with all that the assistant said and the outputs of the task: whether they are there.
        looked_up: Called with the task and the calls (name and arguments) where the goal changes nothing:
            whether enough was looked up to know that. None asks for nothing.
        eval_only: Whether all tasks are for evaluation only, or none is; None: about one in eight is.
    """

    policy: str
    operations: Sequence[Operation]
    tasks: Sequence[Task]
    database: Callable[[], Database]
    said: Callable[[str, Sequence[str]], bool] = said_anywhere
    looked_up: Callable[[Task, Sequence[Sequence[Any]]], bool] | None = None
    eval_only: bool | None = None
    _goals: dict[int, Database] = field(default_factory=dict)

    def operation(self, name: str) -> Operation:
        """Return the operation of that name."""
        return next(operation for operation in self.operations if operation.name == name)

    def goal(self, index: int) -> Database:
        """Return the database after the reference solution of a task.

        Raises:
            DataError: One of its calls is to no operation of this domain.
        """
        if index not in self._goals:
            database = self.database()
            for name, arguments in self.tasks[index].actions:
                if all(name != operation.name for operation in self.operations):
                    raise DataError(f"task {index} calls {name!r}, which is no operation of this domain")
                self.operation(name).apply(database, arguments)
            self._goals[index] = database
        return self._goals[index]

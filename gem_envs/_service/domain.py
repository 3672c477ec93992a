"""The parts of a customer service: `Domain`, `ServiceTask`, and `Operation`."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeAlias

from gem_chat.tools import Tool, ToolResult
from gem_core.errors import DataError

Database: TypeAlias = dict[str, Any]
"""JSON-serializable; only operations change it."""

Call: TypeAlias = tuple[str, Mapping[str, Any]]
"""Name and arguments of an operation."""


class OperationRefused(Exception):
    """Raised when an operation is rejected. Nothing has changed; the assistant sees the message."""


class Operation(Tool):
    """A tool of the assistant that reads or changes the database.

    Args:
        name: Name of the tool.
        description: Description for the model.
        parameters: JSON schema of the arguments.
        act: Function that is called as ``act(database, **arguments)``; it returns the text for the assistant,
            or raises `OperationRefused` before changing anything.
        ends: Whether it ends the conversation (a handover to a person).
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
        """Carry out the operation on `database`. Arguments that match the schema never raise."""
        try:
            return ToolResult(self._act(database, **arguments))
        except OperationRefused as refusal:
            return ToolResult(f"Error: {refusal}", ok=False)


@dataclass(frozen=True)
class ServiceTask:
    """The request of a customer and its solution.

    Attributes:
        name: Short unique name.
        instruction: Instruction for the player of the user: identity, request, knowledge.
        request: First message of the scripted user.
        facts: Answers of the scripted user, by topic: "email", "name", "order", ...
        actions: Reference solution: all calls, including those that only read.
        outputs: Texts that the assistant must tell the user.
        mentions: Texts whose mention is reported as the metric ``mentioned``, but not rewarded.
        compares_database: Whether the database must equal the goal.
        left_out: Criteria of the source that are not checked here, for ``info["left_out"]``.
    """

    name: str
    instruction: str
    request: str
    facts: Mapping[str, str]
    actions: Sequence[Call]
    outputs: Sequence[str] = ()
    mentions: Sequence[str] = ()
    compares_database: bool = True
    left_out: Sequence[str] = ()


def said_anywhere(messages: str, outputs: Sequence[str]) -> bool:
    """Return whether each output occurs in the messages, even within a word: the rule of tau-bench."""
    messages = messages.lower().replace(",", "")
    return all(output.lower().replace(",", "") in messages for output in outputs)


@dataclass(frozen=True)
class Domain:
    """A service.

    Attributes:
        policy: The rules of the assistant as text.
        operations: Tools of the assistant.
        tasks: Tasks, numbered by the option ``index`` of a reset.
        database: Returns a new copy of the initial database of every task.
        says: Function that takes all messages of the assistant and the outputs of the task, and returns
            whether the outputs occur in the messages.
        looked_up: Function that takes the task and the calls (name and arguments) if the goal changes
            nothing, and returns whether enough was looked up to know that. None requires no look-ups.
        changes: Names of the operations to which the user has to agree first, in the user's last message;
            empty if the policy does not require it.
        agreed: Function that returns whether a message of the user expresses agreement.
        declined: Function that takes the messages of the assistant if nothing had to be changed or said, and
            returns whether they decline the request. None requires no words.
        eval_only: Whether all tasks or no tasks are for evaluation only; None reserves about one in eight.
    """

    policy: str
    operations: Sequence[Operation]
    tasks: Sequence[ServiceTask]
    database: Callable[[], Database]
    says: Callable[[str, Sequence[str]], bool] = said_anywhere
    looked_up: Callable[[ServiceTask, Sequence[Sequence[Any]]], bool] | None = None
    changes: frozenset[str] = frozenset()
    agreed: Callable[[str], bool] = bool
    declined: Callable[[str], bool] | None = None
    eval_only: bool | None = None
    _goals: dict[int, Database] = field(default_factory=dict)

    def operation(self, name: str) -> Operation:
        """Return the operation with a given name."""
        return next(operation for operation in self.operations if operation.name == name)

    def goal(self, index: int) -> Database:
        """Return the database after the reference solution of a task.

        Raises:
            DataError: The solution calls an unknown operation.
        """
        if index not in self._goals:
            database = self.database()
            for name, arguments in self.tasks[index].actions:
                if all(name != operation.name for operation in self.operations):
                    raise DataError(f"task {index} calls {name!r}, which is not an operation of this domain")
                self.operation(name).apply(database, arguments)
            self._goals[index] = database
        return self._goals[index]

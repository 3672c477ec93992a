"""`Service`: an assistant and a customer talk, and the assistant works on a database.

The user speaks first. The assistant responds with a message for the user or with tool calls, whose results it
gets at once. When the user says `END`, or the assistant hands over to a person, the database is compared with
the goal of the task.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from random import Random
from typing import Any, ClassVar

from gem_chat._calls.formats import get_format
from gem_chat._calls.native import native_text
from gem_chat._tools import CallReader
from gem_core._core import Split
from gem_core._util.checks import check_int
from gem_core.errors import ConfigError
from gem_core.multiagent import AgentSelector, MultiAgentEnv
from gem_core.multiagent._multi_agent_env import StepResults
from gem_envs._service.domain import Domain, Operation, ServiceTask
from gem_envs._service.user import END, SMALL_TALK, scripted_message
from gem_envs.data._split import split_by_content, undivided

ASSISTANT, USER = "assistant", "user"

ANYTHING_ELSE = "Is there anything else I can do for you?"


class Service(MultiAgentEnv):
    """A customer service with a policy, tools, and tasks.

    Both agents earn 1 if the conversation ends with the database of the goal and the assistant has told the
    user everything that the task requires, else 0; every earlier turn earns 0. An unreadable call sets
    ``info["invalid"]`` to "format", a rejected one sets ``info["tool_error"]``; both use up a turn and cost
    nothing else. The last info holds what is reported without a reward: the metric ``mentioned`` and the
    criteria ``left_out``. The turn limit truncates. The assistant's oracle is the reference solution; the
    user's oracle follows a script.

    A domain may also require that the user agreed to every change before it was made, that enough was looked
    up if nothing is to be changed, and that a forbidden request is declined in words.

    Args:
        domain: The service.
        task: Index of the only task; None draws one at each reset, unless the option ``index`` selects it.
        max_turns: Limit on the messages and calls of both agents together.

    Raises:
        ConfigError: `task` or `max_turns` is out of range.
    """

    state_fields: ClassVar[tuple[str, ...]] = (
        *MultiAgentEnv.state_fields, "turn", "task_index", "calls", "messages", "news", "acted", "hasty"
    )  # fmt: skip
    indexed = True

    def __init__(self, domain: Domain, *, task: int | None = None, max_turns: int = 40) -> None:
        super().__init__()
        if task is not None:
            check_int("task", task, 0, len(domain.tasks) - 1)
        self.domain = domain
        self.only_task = task
        self.max_turns = check_int("max_turns", max_turns, 2)
        self.possible_agents = [ASSISTANT, USER]
        self.agent_selector = self.selector = AgentSelector(self.possible_agents)
        self.format = get_format("hermes")
        self.instructions: bool | str = True
        self.call_results: list[tuple[str, str]] = []

    @property
    def tools(self) -> Sequence[Operation]:
        """Tools of the assistant."""
        return self.domain.operations

    def native_text(self, message: Mapping[str, Any], readers: Sequence[CallReader]) -> str:
        """Return an assistant's message with ``tool_calls`` as text that `readers` read as the same calls."""
        return native_text(message, readers)

    def readers_of(self, agent: str) -> Sequence[Any]:
        return (self,) if agent == ASSISTANT else ()

    @property
    def task(self) -> ServiceTask:
        """The current task."""
        return self.domain.tasks[self.task_index]

    def items(self, split: Split) -> Sequence[int] | None:
        if self.only_task is not None:
            return None
        if self.domain.eval_only is not None:
            return undivided(len(self.domain.tasks), self.domain.eval_only, split)
        return split_by_content([task.instruction] for task in self.domain.tasks).of(split)

    # -- an episode ---------------------------------------------------------------------------

    def new_episode(self, index: int | None) -> None:
        tasks = len(self.domain.tasks)
        if index is not None and not 0 <= index < tasks:
            raise ConfigError(f"options['index']={index}: expected an index from 0 to {tasks - 1}")
        drawn = self.random.randrange(tasks)  # always, so that the stream does not depend on the options
        self.task_index = next(n for n in (index, self.only_task, drawn) if n is not None)
        self.database = self.domain.database()
        self.calls: list[list[Any]] = []
        """Successful calls: name and arguments."""
        self.messages: list[list[str]] = []
        """Messages so far: speaker and text."""
        self.hasty = False
        """Whether a change was made to which the user had not agreed."""
        self.turn = 0
        self.news: dict[str, str] = {ASSISTANT: "", USER: "You reached the customer service."}
        self.acted: list[str] = []
        self.selector.select(USER)

    def set_state(self, state: Any) -> None:
        super().set_state(state)
        self.database = self.domain.database()
        for name, arguments in self.calls:
            self.domain.operation(name).apply(self.database, arguments)

    def observe(self, agent: str) -> str:
        intro = "" if agent in self.acted else self.brief(agent)
        return "\n\n".join(part for part in (intro, self.news[agent]) if part)

    def brief(self, agent: str) -> str:
        """Return the introduction for an agent: its role, and the policy and tools or the task."""
        if agent == ASSISTANT:
            explained = self.format.instructions(self.tools) if self.instructions else ""
            return f"{self.domain.policy}\n\n{explained}".rstrip()
        return (
            "You are a customer who writes to a customer service. Say only what a customer would say, one "
            "short message at a time. Give details when you are asked for them, never make any up, and agree "
            f"when you are asked to confirm what you want. When all is settled, write {END}.\n\n"
            f"{self.task.instruction}"
        )

    def _process_actions(self, actions: dict[str, str]) -> StepResults:
        ((agent, text),) = actions.items()
        self.turn += 1
        self.news[agent] = ""
        self.call_results = []
        if agent not in self.acted:
            self.acted.append(agent)
        calls = self.format.parse(text, self.domain.operations) if agent == ASSISTANT else []
        info: dict[str, Any] = {"invalid": None}
        over = False
        if calls:
            over = self._carry_out(calls, info)
            self.selector.select(ASSISTANT)
        else:
            over = self._say(agent, text, info)
        cut = not over and self.turn >= self.max_turns
        infos: dict[str, dict[str, Any]] = {name: {} for name in self.agents}
        infos[agent] = info
        solved = over and self.solved()
        if over or cut:
            for name in self.agents:
                infos[name] |= {"success": solved, **self._report()}
        return (
            {name: self.observe(name) for name in self.agents},
            dict.fromkeys(self.agents, float(solved)),
            dict.fromkeys(self.agents, over),
            dict.fromkeys(self.agents, cut),
            infos,
        )

    def _carry_out(self, calls: list[Any], info: dict[str, Any]) -> bool:
        """Carry out the calls of a response; return whether the last one ended the conversation."""
        named, errors = [], []
        info["use_tool"] = True
        over = False
        for call in calls:
            if call.error is not None:
                info["invalid"] = "format"
                named.append((call.name or "the call", f"Error: {call.error}"))
                errors.append(call.error)
                continue
            operation = self.domain.operation(call.name)
            result = operation.apply(self.database, call.arguments)
            self.calls.append([call.name, dict(call.arguments)])
            if result.ok and call.name in self.domain.changes and not self._agreed():
                self.hasty = True
            named.append((call.name, result.text))
            if not result.ok:
                errors.append(result.text)
            if operation.ends:
                over = True
                break
        if errors:
            info["tool_error"] = "; ".join(errors)
        self.call_results = named
        self.news[ASSISTANT] = self.format.results(named)
        return over

    def _say(self, agent: str, text: str, info: dict[str, Any]) -> bool:
        """Deliver a message; return whether it ended the conversation."""
        other = USER if agent == ASSISTANT else ASSISTANT
        if not text.strip():
            info["invalid"] = "format"
        self.messages.append([agent, text])
        self.news[other] = f"{'Customer' if agent == USER else 'Assistant'}: {text.strip() or '(nothing)'}"
        self.selector.select(other)
        return agent == USER and END in text

    def solved(self) -> bool:
        """Return whether the database matches the goal and all required facts were said and looked up."""
        goal = self.domain.goal(self.task_index)
        if self.hasty or not self._said_all():
            return False
        if self.task.compares_database and self.database != goal:
            return False
        return goal != self.domain.database() or (self._looked_up() and self._declined())

    def _report(self) -> dict[str, Any]:
        """Return the entries of the last info about criteria that do not decide."""
        report: dict[str, Any] = {}
        if self.task.mentions:
            mentioned = self.domain.says(self._said(), self.task.mentions)
            report["metrics"] = {"mentioned": float(mentioned)}
        if self.task.left_out:
            report["left_out"] = list(self.task.left_out)
        return report

    def _looked_up(self) -> bool:
        """Return whether the assistant looked up enough to know that nothing must be changed."""
        return self.domain.looked_up is None or self.domain.looked_up(self.task, self.calls)

    def _declined(self) -> bool:
        """Return whether the request was declined in words, if there was nothing to tell the user."""
        return bool(self.task.outputs) or self.domain.declined is None or self.domain.declined(self._said())

    def _agreed(self) -> bool:
        """Return whether the assistant announced something to which the user's last message agrees."""
        asked = any(agent == ASSISTANT for agent, _ in self.messages)
        return asked and self.messages[-1][0] == USER and self.domain.agreed(self.messages[-1][1])

    def _said(self) -> str:
        return "\n".join(text for agent, text in self.messages if agent == ASSISTANT)

    def _said_all(self) -> bool:
        return self.domain.says(self._said(), self.task.outputs)

    # -- players ------------------------------------------------------------------------------

    def random_action(self, agent: str, random: Random) -> str:
        if agent == USER:
            return random.choice([*SMALL_TALK, *self.task.facts.values(), self.task.request])
        if random.random() < 0.5 or not self.task.actions:
            return random.choice(["How can I help you?", "What is your email address?", ANYTHING_ELSE])
        name, arguments = random.choice(self.task.actions)
        return self.format.write(self.domain.operation(name), arguments)

    def best_action(self, agent: str, random: Random) -> str:
        if agent == USER:
            last = next((text for who, text in reversed(self.messages) if who == ASSISTANT), None)
            return scripted_message(self.task, last)
        answers = dict.fromkeys([*self.task.outputs, *self.task.mentions])
        calls = iter(self.calls)
        for name, arguments in self.task.actions:
            if not any([name, dict(arguments)] == call for call in calls):  # made so far, in this order
                if self.domain.operation(name).ends and not self._said_all():
                    break  # the conversation ends there
                if name in self.domain.changes and not self._agreed():
                    return f"I am going to call {name} with {json.dumps(arguments)}. Shall I go ahead?"
                return self.format.write(self.domain.operation(name), arguments)
        else:
            changed = self.domain.goal(self.task_index) != self.domain.database()
            settled = "That is settled." if changed or answers else "I am sorry, I cannot do that."
            return " ".join([settled, *answers, ANYTHING_ELSE])
        return " ".join(["You asked:", *answers])

"""`check_harness`: what an installed agent needs, what it changes, and whether it is recognized.

    report = await check_harness("claude-code", stand_in_tokenizer(CHAT_TEMPLATE))

The command `gem-core harness check` prints the report.
"""

from __future__ import annotations

import asyncio
import importlib.metadata
import re
import shutil
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from gem_agents._api import Request
from gem_agents._gateway import Gateway
from gem_agents._harness import AgentTask, Command, resolve_harness
from gem_agents._run import AGENTS, play_agent
from gem_agents._scripted import ScriptedPolicy
from gem_agents._session import Session, SessionLimits
from gem_agents._steps import Steps
from gem_agents._turns import ModelCall, turns_of
from gem_chat import AppendContext
from gem_core import Env
from gem_core._util.threads import in_thread
from gem_core.rollout import Episode
from gem_core.rollout._calls import EnvCalls
from gem_core.rollout._dialogue import TokenLimits

TASK = "Write the word hello to the file hello.txt with a shell command, look at the file, and finish."
_MOST_CALLS = 30
_MOST_ACTIONS = 10
_MOST_TOKENS = 2_000_000
_SHOWN = 60
"""Number of characters of a message that a report shows."""
_ORDINARY = re.compile(
    r"(accept|content|x-stainless|sec-fetch)(-.*)?|host|connection|authorization|x-api-key|user-agent"
)
"""Headers that say nothing about an agent, or hold its key."""


@dataclass
class HarnessReport:
    """What a check found.

    Attributes:
        name: Name of the harness.
        version: Version of its agent; None if it does not say.
        program: Its program, or its function.
        endpoints: Number of calls by endpoint.
        user_agent: How it names itself.
        headers: Names of its own headers.
        system: Number of characters in the system messages of its first call with tools.
        tools: Names of the tools that it offers.
        unserved: Parameters that have no effect.
        changes: Number of responses by what it changed in them.
        recognized: Number of assistant's messages that continue what was sampled.
        spliced: Number of assistant's messages that were recognized after their past was rewritten.
        foreign: Number of assistant's messages that were not sampled here, by their beginnings.
        rows: Why it began a row, for each row.
        actions: Number of actions that it played in the environment.
        exact: Whether each row holds what the policy saw and sampled.
        error: How it failed; None if it did not.
    """

    name: str
    version: str | None = None
    program: str = ""
    endpoints: dict[str, int] = field(default_factory=dict)
    user_agent: str = ""
    headers: list[str] = field(default_factory=list)
    system: int = 0
    tools: list[str] = field(default_factory=list)
    unserved: list[str] = field(default_factory=list)
    changes: dict[str, int] = field(default_factory=dict)
    recognized: int = 0
    spliced: int = 0
    foreign: dict[str, int] = field(default_factory=dict)
    rows: list[str] = field(default_factory=list)
    actions: int = 0
    exact: bool = False
    error: str | None = None

    @property
    def ok(self) -> bool:
        """Whether the agent played, and all that it sent back was recognized."""
        return self.error is None and bool(self.rows) and self.exact and not self.foreign


class _Room(Env):
    """A room in which nothing happens; each action has a reward, so that those that arrive can be counted.

    It ends at last, because an agent may play until its environment ends.
    """

    played: int

    def new_task(self) -> None:
        self.played = 0

    def prompt(self) -> str:
        return TASK

    def step(self, action: str) -> tuple[str, float, bool, bool, dict[str, Any]]:
        self.played += 1
        return "You look around.", 1.0, self.played == _MOST_ACTIONS, False, {}


class _Watch:
    """Notes what an agent sends.

    Args:
        session: The episode.
        report: Gets what is found.
    """

    def __init__(self, session: Session, report: HarnessReport) -> None:
        self._session, self._report = session, report
        self._changed: set[tuple[int, str]] = set()

    def __call__(self, page: str, headers: Mapping[str, str], request: Request) -> None:
        """Note a request, before it is answered."""
        report, found = self._report, self._session.find(request)
        endpoint = f"{page}, streamed" if request.stream else page
        report.endpoints[endpoint] = report.endpoints.get(endpoint, 0) + 1
        report.user_agent = report.user_agent or headers.get("User-Agent", "")
        own = {name.lower() for name in headers if not _ORDINARY.fullmatch(name.lower())}
        report.headers = sorted(own.union(report.headers))
        names = {schema["function"]["name"] for schema in request.schemas}
        if names and not report.tools:
            report.system = sum(len(one.content) for one in request.messages if one.role == "system")
        report.tools = sorted(names.union(report.tools))
        for index, call in found.known.items():
            self._compare(index, call, request)
        for message in map(request.messages.__getitem__, found.foreign):
            text = message.content[:_SHOWN] or f"calls of {[call.name for call in message.calls]}"
            report.foreign[text] = report.foreign.get(text, 0) + 1

    def _compare(self, index: int, call: ModelCall, request: Request) -> None:
        sent, said = request.messages[index], call.message
        changed = {
            "thoughts dropped": bool(said.thought) and not sent.thought,
            "ids of calls replaced": [c.id for c in said.calls] != [c.id for c in sent.calls],
            "whitespace changed": said.content != sent.content,
        }
        for what, is_so in changed.items():
            if is_so and (id(call), what) not in self._changed:
                self._changed.add((id(call), what))
                self._report.changes[what] = self._report.changes.get(what, 0) + 1


async def check_harness(
    name: str, tokenizer: Any, timeout: float = 300.0, policy: ScriptedPolicy | None = None
) -> HarnessReport:
    """Play a scripted policy through an agent, without a network.

    Args:
        name: The harness; see `resolve_harness`.
        tokenizer: Tokenizer with the chat template of `gem_agents._scripted`.
        timeout: Maximum number of seconds.
        policy: The policy; None for a `ScriptedPolicy`.

    Raises:
        MissingDependency: The agent is not installed; the message says how to install it.
    """
    harness: Any = resolve_harness(name)
    is_command = isinstance(harness, Command)
    program = harness.command[0] if is_command else f"{harness.__module__}:{harness.__name__}"
    report = HarnessReport(name, await in_thread(_version, name, harness), program)
    policy, gateway = policy or ScriptedPolicy(tokenizer), Gateway()
    limits = SessionLimits(_MOST_CALLS, TokenLimits(4096, _MOST_TOKENS))
    session = await gateway.open(policy, AppendContext(tokenizer), limits, "check")
    session.on_request = _Watch(session, report)
    calls = EnvCalls(_Room(), None, None)
    session.steps = Steps(calls, asyncio.get_running_loop(), "invalid")
    try:
        await calls.reset(0, None)
        task = AgentTask(TASK, gateway.address(session), gateway=gateway)
        report.error = await AGENTS.on(play_agent(harness(task), session, timeout))
    finally:
        await gateway.close(session)
        await gateway.stop()
    if report.error is None and session.over is not None and session.started >= _MOST_CALLS:
        report.error = f"it made {_MOST_CALLS} calls and did not end"
    counts = session.counts
    report.recognized, report.spliced = counts.recognized, counts.spliced
    report.unserved, report.actions = sorted(counts.unserved), session.steps.taken
    report.rows = [draft.why.text for draft in session.log.opened if draft.why is not None]
    report.exact = _exact(session, policy)
    return report


def _exact(session: Session, policy: ScriptedPolicy) -> bool:
    """Return whether each turn has a prompt and a response of the policy."""
    turns, mode = turns_of(session.delivered())
    episode = Episode("check", 0, turns, True, False, "terminated", context_mode=mode)
    rows = [([*row.prompt_ids], [*row.response_ids]) for row in episode.rows("turn")]
    return bool(rows) and all(row in policy.samples for row in rows)


def _version(name: str, harness: Any) -> str | None:
    """Return the version of an agent."""
    if not isinstance(harness, Command):
        for package in (name, f"{name}-slim"):
            try:
                return importlib.metadata.version(package)
            except (importlib.metadata.PackageNotFoundError, ValueError):
                continue
        return None
    program = None if harness.level == "container" else shutil.which(harness.command[0])
    if program is None or not harness.install:  # of an unknown program, no argument is harmless
        return None
    try:
        run = subprocess.run(
            [program, "--version"], capture_output=True, text=True, timeout=60, stdin=subprocess.DEVNULL
        )
    except (OSError, subprocess.TimeoutExpired):
        return None
    found = re.search(r"\d+(\.\d+)+", run.stdout + run.stderr)
    return None if found is None else found[0]

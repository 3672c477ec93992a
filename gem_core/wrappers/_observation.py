"""Observation wrappers that show the history of the episode instead of only the newest observation.

Without them, `step` returns the newest observation alone. That suits a rollout in append mode, whose
context keeps the history as tokens. A caller that builds a prompt from each observation needs the history
in the observation.

The history holds what the model saw, including prefix and suffix; both are then removed from the info dict,
so that they are rendered exactly once.
"""

from __future__ import annotations

from typing import Any, ClassVar

from gem_core._core import Env, Info, Observation, ResetResult, StepResult
from gem_core._observations import render_observation
from gem_core._util.checks import check_int
from gem_core._wrapper import Wrapper


class History(Wrapper):
    """Base class of the observation wrappers: collects entries, which `render` turns into an observation.

    Args:
        env: The environment.
        max_history: Keep the first observation (the instructions) and the last `max_history`
            exchanges, where an exchange is an action and the observation that answered it. None keeps
            everything.
    """

    state_fields: ClassVar[tuple[str, ...]] = ("history",)
    keeps_actions: ClassVar[bool] = True
    """Whether the actions are part of the history."""

    history: list[Any]
    """The first observation, then the entries of the exchanges that are kept."""

    def __init__(self, env: Env, *, max_history: int | None = None) -> None:
        super().__init__(env)
        self.max_history = max_history = check_int("max_history", max_history, 1, optional=True)
        self._max_entries = None if max_history is None else 1 + max_history * (1 + self.keeps_actions)
        self.history = []

    def entry(self, role: str, content: Observation) -> Any:
        """Return the history entry for a message; `role` is "user", "assistant", or "tool"."""
        return content

    def opening(self, content: Observation) -> Any:
        """Return the history entry for the first observation."""
        return self.entry("user", content)

    def render(self) -> Observation:
        """Return the observation that shows the history."""
        raise NotImplementedError

    def on_reset(self, observation: Observation, info: Info) -> ResetResult:
        self.history = [self.opening(_take_shown(observation, info))]
        return self.render(), info

    def on_step(self, action: str, result: StepResult) -> StepResult:
        observation, reward, terminated, truncated, info = result
        shown = _take_shown(observation, info)
        history = self.history
        if self.keeps_actions:
            history.append(self.entry("assistant", action))
        history.append(self.entry("tool" if info.get("use_tool") else "user", shown))
        limit = self._max_entries
        if limit is not None and len(history) > limit:
            del history[1 : 1 + len(history) - limit]
        return self.render(), reward, terminated, truncated, info


class Concat(History):
    """Shows all observations so far, separated by line breaks.

    If some observations are lists of content parts, the result is the list of all parts, with text as text
    parts.
    """

    keeps_actions = False

    def __init__(self, env: Env, *, max_history: int | None = None) -> None:
        super().__init__(env, max_history=max_history)
        # Fast path: the usual case only appends text.
        hooks = (type(self).entry, type(self).render)
        self._plain = (
            max_history is None and not self.keeps_actions and hooks == (History.entry, Concat.render)
        )

    def render(self) -> Observation:
        return _joined(self.history)

    def on_step(self, action: str, result: StepResult) -> StepResult:
        if not self._plain:
            return super().on_step(action, result)
        observation, reward, terminated, truncated, info = result
        history = self.history
        history.append(_take_shown(observation, info))
        return _joined(history), reward, terminated, truncated, info


class ConcatWithAction(Concat):
    """Shows all observations and actions in order, separated by line breaks."""

    keeps_actions = True


def _take_shown(observation: Observation, info: Info) -> Observation:
    suffix = info.pop("suffix", "")
    if "prefix" not in info and isinstance(observation, str) and observation:  # nearly always
        return f"{observation}\n{suffix}" if suffix else observation
    return render_observation(observation, {"prefix": info.pop("prefix", ""), "suffix": suffix})


def _joined(history: list[Any]) -> Observation:
    try:
        return "\n".join(history)
    except TypeError:  # some entries are content parts; text alone is the fast path
        return [part for entry in history for part in _parts(entry)]


def _parts(entry: Observation) -> list[dict[str, Any]]:
    return [{"type": "text", "text": entry}] if isinstance(entry, str) else entry

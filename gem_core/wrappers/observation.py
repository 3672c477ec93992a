"""Observation wrappers: show the history of the episode, not only its newest observation.

Without one of these, `step` returns the newest observation alone, which is what a rollout in
append mode wants (its context keeps the history as tokens). A caller that builds a prompt from each
observation, on the other hand, needs the history in the observation.

What enters the history is what the model was shown, prefix and suffix included; both are then taken
out of the info dict, so that they are rendered exactly once.
"""

from __future__ import annotations

from typing import Any, ClassVar

from gem_core.core import Env, Info, Observation, ResetResult, StepResult
from gem_core.errors import ConfigError
from gem_core.observations import render_observation
from gem_core.wrapper import Wrapper


class History(Wrapper):
    """Base of the observation wrappers: collects entries and shows them through `render`.

    Args:
        env: The environment.
        max_history: Keep the first observation (the instructions) and the last `max_history`
            exchanges; an exchange is one action together with the observation that answered it, so
            the newest observation is the end of the last exchange. None keeps everything.
    """

    state_fields = ("history",)
    keeps_actions: ClassVar[bool] = True
    """Whether the actions are part of the history."""

    history: list[Any]
    """Entries so far: the first observation, then those of each exchange that is kept."""

    def __init__(self, env: Env, *, max_history: int | None = None) -> None:
        super().__init__(env)
        if max_history is not None and (not isinstance(max_history, int) or max_history < 1):
            raise ConfigError(
                f"max_history={max_history!r}: expected a positive number of exchanges, or None for all"
            )
        self.max_history = max_history
        self._max_entries = None if max_history is None else 1 + max_history * (1 + self.keeps_actions)
        self.history = []

    def entry(self, role: str, content: Observation) -> Any:
        """What the history keeps of a message; `role` is "user", "assistant" or "tool"."""
        return content

    def opening(self, content: Observation) -> Any:
        """What the history keeps of the first observation."""
        return self.entry("user", content)

    def render(self) -> Observation:
        """The observation that stands for the history."""
        raise NotImplementedError

    def on_reset(self, observation: Observation, info: Info) -> ResetResult:
        self.history = [self.opening(_take_shown(observation, info))]
        return self.render(), info

    def on_step(
        self,
        action: str,
        observation: Observation,
        reward: float,
        terminated: bool,
        truncated: bool,
        info: Info,
    ) -> StepResult:
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
    """Shows all observations so far, a line break between two.

    With content parts among the observations the result is the list of all parts, text as text parts.
    """

    keeps_actions = False

    def __init__(self, env: Env, *, max_history: int | None = None) -> None:
        super().__init__(env, max_history=max_history)
        # Nothing but text to append: the usual case, without the calls of the others.
        hooks = (type(self).entry, type(self).render)
        self._plain = (
            max_history is None and not self.keeps_actions and hooks == (History.entry, Concat.render)
        )

    def render(self) -> Observation:
        return _joined(self.history)

    def on_step(
        self,
        action: str,
        observation: Observation,
        reward: float,
        terminated: bool,
        truncated: bool,
        info: Info,
    ) -> StepResult:
        if not self._plain:
            return super().on_step(action, observation, reward, terminated, truncated, info)
        history = self.history
        history.append(_take_shown(observation, info))
        return _joined(history), reward, terminated, truncated, info


class ConcatWithAction(Concat):
    """Shows observations and actions in the order they came, a line break between two."""

    keeps_actions = True


def _take_shown(observation: Observation, info: Info) -> Observation:
    suffix = info.pop("suffix", "")
    if "prefix" not in info and isinstance(observation, str) and observation:  # nearly always
        return f"{observation}\n{suffix}" if suffix else observation
    return render_observation(observation, {"prefix": info.pop("prefix", ""), "suffix": suffix})


def _joined(history: list[Any]) -> Observation:
    try:
        return "\n".join(history)
    except TypeError:  # content parts among them; text alone is the fast path
        return [part for entry in history for part in _parts(entry)]


def _parts(entry: Observation) -> list[dict[str, Any]]:
    return [{"type": "text", "text": entry}] if isinstance(entry, str) else entry

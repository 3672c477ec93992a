"""`Summarize`: the policy replaces a long history by its own summary."""

from __future__ import annotations

from gem_core._core import Env, Info, Observation, ResetResult, StepResult
from gem_core._observations import readable_text
from gem_core._util.checks import check_int
from gem_core.wrappers._observation import ConcatWithAction


class Summarize(ConcatWithAction):
    """Shows all observations and actions, and asks the policy for a summary once they are long.

    If a step makes the history longer than `max_chars`, the next observation ends with a request. The
    response to it never reaches the environment and earns 0: it takes the place of the history between the
    instructions, which are the first observation, and the newest observation. Its info dict has
    ``side_turn=True``, so a rollout keeps the response in a thread of its own, whose return is that of what
    follows.

    Args:
        env: The environment.
        max_chars: Number of characters of text above which the history is summarized. The instructions and
            one observation should fit several times.
        max_summary: Number of characters of a summary that are kept.
    """

    state_fields = (*ConcatWithAction.state_fields, "asked", "summary")

    asked: bool
    """Whether the next response is a summary."""
    summary: str
    """The last summary of the episode; empty if there is none."""

    def __init__(self, env: Env, *, max_chars: int = 8000, max_summary: int = 2000) -> None:
        super().__init__(env)
        self.max_chars = check_int("max_chars", max_chars, 1)
        self.max_summary = check_int("max_summary", max_summary, 1)
        self.asked, self.summary = False, ""

    def on_reset(self, observation: Observation, info: Info) -> ResetResult:
        self.asked, self.summary = False, ""
        return super().on_reset(observation, info)

    def step(self, action: str) -> StepResult:
        return self._summarized(action) if self.asked else super().step(action)

    async def astep(self, action: str) -> StepResult:
        if self.asked:
            return self._summarized(action)
        return self.on_step(action, await self.env.astep(self.on_action(action)))

    def on_step(self, action: str, result: StepResult) -> StepResult:
        _, reward, terminated, truncated, info = super().on_step(action, result)
        long = sum(len(readable_text(entry)) for entry in self.history) > self.max_chars
        self.asked = long and not (terminated or truncated)
        return self.render(), reward, terminated, truncated, info

    def render(self) -> Observation:
        shown = super().render()
        if not self.asked:
            return shown
        request = (
            f"Your notes are full. Summarize what you need from now on in at most {self.max_summary} "
            "characters: only the instructions, your summary, and the newest observation will remain."
        )
        if isinstance(shown, str):
            return f"{shown}\n{request}"
        return [*shown, {"type": "text", "text": request}]

    def _summarized(self, action: str) -> StepResult:
        if not self._running:
            self.require_reset()
        self.asked, self.summary = False, action[: self.max_summary]
        self.history = [self.history[0], f"Your summary:\n{self.summary}", self.history[-1]]
        return self.render(), 0.0, False, False, {"side_turn": True}

    def sample_random_action(self) -> str:
        """Return one of the observations, or the summary before, as the summary."""
        if not self.asked:
            return super().sample_random_action()
        return self.action_random.choice(self._notes())[: self.max_summary]

    def oracle_action(self) -> str | None:
        """Return as many of the observations as a summary may hold, and the summary before."""
        if not self.asked:
            return super().oracle_action()
        return "\n".join(self._notes())[: self.max_summary]

    def _notes(self) -> list[str]:
        """Return what the history holds besides the instructions and the actions."""
        notes = [readable_text(entry) for entry in self.history[2::2]]
        return [self.summary, *notes] if self.summary else notes

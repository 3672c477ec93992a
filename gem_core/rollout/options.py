"""The options of a rollout that a trainer's config can hold, the same ones in every trainer."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, fields
from types import NoneType, UnionType
from typing import Any, Literal, TypeVar, get_args, get_origin, get_type_hints

from gem_core._util.messages import suggest
from gem_core.errors import ConfigError
from gem_core.rollout.context import AppendContext, Context, RebuildContext
from gem_core.rollout.pool import MAX_ENV_RETRIES, OnEnvError, check_env_retries
from gem_core.rollout.traces import TraceWriter

_EXPECTED: dict[Any, str] = {
    bool: "true or false",
    int: "a whole number",
    float: "a number",
    str: "text",
    NoneType: "none",
}

OptionsType = TypeVar("OptionsType", bound="RolloutOptions")


@dataclass(frozen=True)
class RolloutOptions:
    """How episodes are played.

    A plugin whose trainer needs more options adds them in a subclass; a field whose type is a
    `Literal`, text, a number or a bool is checked against it.

    Attributes:
        max_turns: Most turns of an episode; None leaves it to the environment and the token limits.
        max_tokens_per_turn: Most tokens of one response; None leaves it to the trainer's own limit.
        context: "append" keeps what was sampled and adds the environment's messages; "rebuild" takes
            each observation as a whole new prompt.
        raw: In rebuild contexts: the observation has the chat template already.
        wrappers: Wrappers around every environment, as in `gem_core.make`.
        system_prompt: First message of a conversation; None leaves it to the template.
        on_length_cut: What the environment gets for a response that the length limit cut: nothing
            ("invalid") or the text as it is ("pass").
        step_timeout: Seconds for the constructor, a reset or step of a blocking environment, and close;
            None waits.
        on_env_error: What becomes of an episode whose environment failed: "mask" leaves it out of
            statistics and loss, "retry" first plays it again, with the same seed and a fresh environment.
            Masking alone favors tasks that seldom fail, which are often the short ones.
        max_env_retries: Most attempts of "retry" after the first one.
        traces: Folder for ``train.jsonl`` and ``eval.jsonl``; None writes none.
    """

    max_turns: int | None = None
    max_tokens_per_turn: int | None = None
    context: Literal["append", "rebuild"] = "append"
    raw: bool = False
    wrappers: str = ""
    system_prompt: str | None = None
    on_length_cut: Literal["invalid", "pass"] = "invalid"
    step_timeout: float | None = None
    on_env_error: OnEnvError = "mask"
    max_env_retries: int = MAX_ENV_RETRIES
    traces: str | None = None

    @classmethod
    def read(cls: type[OptionsType], given: Mapping[str, Any], prefix: str = "gem.") -> OptionsType:
        """Take the options from a section of a config.

        Args:
            given: Option to value; those that are not there have their default.
            prefix: What a user writes before the name of an option, for messages.

        Raises:
            ConfigError: An unknown option, or a value that is none of those allowed.
        """
        names = [field.name for field in fields(cls)]
        for name in given:
            if name not in names:
                raise ConfigError(
                    f"{prefix}{name} is no option.{suggest(str(name), names)} There are: {', '.join(names)}"
                )
        options = cls(**given)
        options._check(prefix)
        return options

    def _check(self, prefix: str) -> None:
        for name, kind in get_type_hints(type(self)).items():
            value = getattr(self, name)
            if get_origin(kind) is Literal:
                if value not in get_args(kind):
                    raise ConfigError(
                        f"{prefix}{name}={value!r}: expected one of {', '.join(get_args(kind))}"
                    )
                continue
            kinds = get_args(kind) if get_origin(kind) is UnionType else (kind,)
            if all(one in _EXPECTED for one in kinds) and not any(_is_a(value, one) for one in kinds):
                expected = " or ".join(_EXPECTED[one] for one in kinds)
                raise ConfigError(f"{prefix}{name}={value!r:.200}: expected {expected}")
        for name in ("max_turns", "max_tokens_per_turn"):
            value = getattr(self, name)
            if value is not None and value < 1:
                raise ConfigError(f"{prefix}{name}={value!r}: expected a whole number of at least 1, or none")
        if self.step_timeout is not None and not self.step_timeout > 0:
            raise ConfigError(
                f"{prefix}step_timeout={self.step_timeout!r}: expected seconds above 0, or none"
            )
        check_env_retries(self.on_env_error, self.max_env_retries, prefix)

    def play_kwargs(self) -> dict[str, Any]:
        """The options that go to `EnvPool.play` as they are, the same in every plugin.

            episode = await pool.play(task, policy, context, max_tokens_per_turn=n, **options.play_kwargs())

        A plugin whose trainer runs its own loop of episodes gets the same handling of failures from a
        pool of its own; a pool may be used from one event loop after another (`asyncio.run` per episode).
        """
        return {
            "max_turns": self.max_turns,
            "on_length_cut": self.on_length_cut,
            "step_timeout": self.step_timeout,
            "on_env_error": self.on_env_error,
            "max_env_retries": self.max_env_retries,
        }

    def make_context(self, tokenizer: Any, template_kwargs: Mapping[str, Any] | None = None) -> Context:
        """The context that all episodes share; `template_kwargs` go to the chat template."""
        system, extra = self.system_prompt, dict(template_kwargs or {})
        if self.context == "append":
            return AppendContext(tokenizer, system_prompt=system, template_kwargs=extra)
        return RebuildContext(tokenizer, raw=self.raw, system_prompt=system, template_kwargs=extra)

    def trace_writers(self, tokenizer: Any) -> dict[str, TraceWriter]:
        """Writers by split, "train" and "eval"; empty when no traces are wanted."""
        if self.traces is None:
            return {}
        return {
            split: TraceWriter(os.path.join(self.traces, f"{split}.jsonl"), decode=tokenizer.decode)
            for split in ("train", "eval")
        }


def _is_a(value: Any, kind: Any) -> bool:
    if isinstance(value, bool):
        return kind is bool
    return isinstance(value, int | float if kind is float else kind)

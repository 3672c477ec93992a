"""The rollout options in a trainer's config, the same in every trainer."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from types import NoneType, UnionType
from typing import Annotated, Any, Literal, TypeVar, get_args, get_origin, get_type_hints

from gem_core._util.checks import check_choice, check_int, check_names
from gem_core.errors import ConfigError
from gem_core.rollout.limits import EpisodeLimits
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
class RolloutOptions(EpisodeLimits):
    """The limits of an episode and further options of a rollout.

    A plugin whose trainer needs more options adds them in a subclass. The value of a field is checked against
    its type if that is a `Literal`, a str, a number, or a bool.

    Attributes:
        max_tokens_per_turn: As in `EpisodeLimits`, but None uses the trainer's own limit.
        context: "append" keeps the sampled tokens and adds the environment's messages; "rebuild" takes
            each observation as a whole new prompt.
        raw: For rebuild contexts: whether the chat template is already applied to the observation.
        wrappers: Wrappers around every environment, as in `gem_core.make`.
        system_prompt: First message of each conversation; None leaves it to the template.
        chat_template: File with a chat template, its Jinja text, or the name of one of the tokenizer's
            templates; None for the tokenizer's own.
        date: Day that the chat template takes for today, such as ``"2026-01-31"``; None for the real one.
        parse_special: Whether a special token that the environment spells, such as ``<|im_end|>``, becomes
            that token; see `AppendContext`.
        native_tools: As in `AppendContext`.
        traces: Folder for ``train.jsonl`` and ``eval.jsonl``; None writes no traces.
        max_concurrent_envs: Maximum number of environments that exist at the same time in a worker process;
            further episodes wait. None for no limit.
        env_threads: Number of calls of blocking environments that run at the same time in a worker process,
            see `set_env_threads`; None for 32.
    """

    max_tokens_per_turn: int | None = field(default=None, kw_only=True)
    context: Annotated[
        Literal["append", "rebuild"],
        "keep the sampled tokens and add messages to them, or build each prompt from the latest observation",
    ] = "append"
    raw: Annotated[bool, "in rebuild contexts: the observation already contains the chat template"] = False
    wrappers: Annotated[
        str, "wrappers around every environment, such as 'concat,time_limit(max_turns=5)'"
    ] = ""
    system_prompt: Annotated[
        str | None, "first message of each conversation; if not set, the chat template decides"
    ] = None
    chat_template: Annotated[
        str | None, "file with a chat template, or Jinja text, instead of the tokenizer's own template"
    ] = None
    date: Annotated[
        str | None, "day that the chat template takes for today, such as 2026-01-31; the real one if not set"
    ] = None
    parse_special: Annotated[
        bool, "text of an environment that spells a special token, such as <|im_end|>, becomes that token"
    ] = False
    native_tools: Annotated[
        bool | None, "whether tools are called as the chat template does; if not set, where it has tool turns"
    ] = None
    traces: Annotated[str | None, "folder for train.jsonl and eval.jsonl; none are written if not set"] = None
    max_concurrent_envs: Annotated[
        int | None, "maximum environments at the same time in a worker process; unlimited if not set"
    ] = None
    env_threads: Annotated[
        int | None, "calls of blocking environments at the same time in a worker process; 32 if not set"
    ] = None

    @classmethod
    def read(cls: type[OptionsType], section: Mapping[str, Any], prefix: str = "gem.") -> OptionsType:
        """Read the options from a section of a config.

        Args:
            section: Maps options to values; missing options have their defaults.
            prefix: Text that a user writes before the name of an option, for messages.

        Raises:
            ConfigError: An option is unknown or has an invalid value.
        """
        check_names(section, [item.name for item in fields(cls)], prefix=prefix)
        options = cls(**section)
        options._check(prefix)
        return options

    def _check(self, prefix: str) -> None:
        for name, kind in get_type_hints(type(self)).items():
            value = getattr(self, name)
            if get_origin(kind) is Literal:
                check_choice(f"{prefix}{name}", value, get_args(kind))
                continue
            kinds = get_args(kind) if get_origin(kind) is UnionType else (kind,)
            if all(one in _EXPECTED for one in kinds) and not any(_is_a(value, one) for one in kinds):
                expected = " or ".join(_EXPECTED[one] for one in kinds)
                raise ConfigError(f"{prefix}{name}={value!r:.200}: expected {expected}")
        self.check_limits(prefix)
        check_int(f"{prefix}max_concurrent_envs", self.max_concurrent_envs, 1, optional=True)
        check_int(f"{prefix}env_threads", self.env_threads, 1, optional=True)

    def limits(self, **changes: Any) -> EpisodeLimits:
        """Return the episode limits, with some values changed.

            episode = await pool.play(task, policy, context, options.limits(max_tokens_per_turn=n))

        Args:
            changes: New values by name of the limit.
        """
        chosen = {item.name: getattr(self, item.name) for item in fields(EpisodeLimits)}
        return EpisodeLimits(**chosen | changes)

    def template_variables(self, given: Mapping[str, Any] | None) -> dict[str, Any]:
        """Return the variables for the chat template.

        Args:
            given: Those that the trainer sets; None for none.
        """
        return dict(given or {})

    def trace_writers(self, tokenizer: Any) -> dict[str, TraceWriter]:
        """Return the trace writers of the splits "train" and "eval"; empty if `traces` is None."""
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

"""The rollout options in a trainer's config, the same in every trainer."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from typing import Annotated, Any, ClassVar, Literal, TypeAlias, TypeVar, get_origin

from gem_core._util.checks import check_names
from gem_core._util.foreign_json import read_json
from gem_core._util.options import Bounds, check_options, list_options
from gem_core.errors import ConfigError
from gem_core.rollout._harness import runners
from gem_core.rollout._limits import EpisodeLimits
from gem_core.rollout._traces import TraceWriter

ContextKind: TypeAlias = Literal["append", "template", "rebuild"]

OptionsType = TypeVar("OptionsType", bound="RolloutOptions")


@dataclass(frozen=True, kw_only=True)
class ContextOptions:
    """Options of the prompts of an episode: wrappers around the environment, and how text becomes tokens."""

    title: ClassVar = "prompts"

    context: Annotated[
        ContextKind,
        "append messages to the sampled tokens, render the whole history again with the chat template, as "
        "servers do, or rebuild each prompt from the latest observation, for wrappers that cut the history",
    ] = "append"
    raw: Annotated[
        bool,
        "in rebuilt contexts: the observation already includes the chat template, so no stop token is added",
    ] = False
    wrappers: Annotated[
        str, "wrappers around every environment, such as 'concat_with_action, time_limit(max_turns=5)'"
    ] = ""
    system_prompt: Annotated[
        str | None, "first message of each conversation; if not set, the chat template decides"
    ] = None
    chat_template: Annotated[
        str | None,
        "file with a chat template, its Jinja text, or the name of one of the tokenizer's templates, instead "
        "of the tokenizer's own",
    ] = None
    template_kwargs: Annotated[
        dict[str, Any], "variables for the chat template, such as '{\"enable_thinking\": false}'"
    ] = field(default_factory=dict)
    date: Annotated[
        str | None, "day that the chat template takes for today, such as 2026-01-31; the real one if not set"
    ] = None
    parse_special: Annotated[
        bool, "text of an environment that spells a special token, such as <|im_end|>, becomes that token"
    ] = False
    native_tools: Annotated[
        bool | None,
        "tools are called as the chat template does, or, at an endpoint, by its own tool calls; if not set, "
        "where the template has tool turns",
    ] = None

    def template_variables(self, given: Mapping[str, Any] | None) -> dict[str, Any]:
        """Return the variables of the option `template_kwargs` and those that the trainer sets.

        Args:
            given: Those that the trainer sets; None for none.

        Raises:
            ConfigError: A variable has one value in the option and another one in `given`.
        """
        own, others = self.template_kwargs, given or {}
        for name in own.keys() & others.keys():
            if own[name] != others[name]:
                raise ConfigError(
                    f"template_kwargs: {name}={own[name]!r}, but the trainer's own option for the chat "
                    f"template has {name}={others[name]!r}; set one of the two"
                )
        return {**own, **others}

    def check_harness(self, harness: str | None, prefix: str = "") -> None:
        """Reject an unknown agent that owns its loop, and contexts that cannot hold its history.

        Args:
            harness: The program that owns the loop; None for gem-core's own.
            prefix: Text that a user writes before the name of an option, for messages.
        """
        if harness is not None and self.context != "append":
            raise ConfigError(
                f"{prefix}harness={harness!r} needs {prefix}context='append', not {self.context!r}: the "
                "agent keeps its own history, and each of its requests becomes the prompt of a turn"
            )
        if harness is not None:
            runners.get("resolve_harness")(harness)


@dataclass(frozen=True)
class RolloutOptions(ContextOptions, EpisodeLimits):
    """The limits of an episode and further options of a rollout.

    A plugin whose trainer needs more options adds them in a subclass. Each value is checked against the type
    and the bounds of its field.
    """

    title: ClassVar = "rollouts"

    max_tokens_per_turn: Annotated[
        int | None, "maximum tokens per response; the trainer's own limit if not set"
    ] = field(default=None, kw_only=True)
    traces: Annotated[
        str | None, "folder for train.jsonl and eval.jsonl, to open with `gem-core view`; none if not set"
    ] = None
    max_concurrent_envs: Annotated[
        int | None,
        "maximum environments, such as containers, that exist at the same time in a worker process; further "
        "episodes wait. Unlimited if not set",
        Bounds(1),
    ] = None
    env_threads: Annotated[
        int | None,
        "calls of blocking environments at the same time in a worker process; 32 if not set",
        Bounds(1),
    ] = None

    @classmethod
    def read(cls: type[OptionsType], section: Mapping[str, Any] | None, prefix: str = "gem.") -> OptionsType:
        """Read the options from a section of a config.

        Args:
            section: Maps options to values; missing options have their defaults, and None has no option. An
                option that maps names to values may be a JSON object as text.
            prefix: Text that a user writes before the name of an option, for messages.

        Raises:
            ConfigError: The section is no mapping, or an option is unknown, has an invalid value, or does not
                fit another one.
        """
        values = read_object(section, prefix.removesuffix("."))
        check_names(values, [item.name for item in fields(cls)], prefix=prefix)
        for option in list_options(cls):
            if get_origin(option.kind) is dict and option.name in values:
                values[option.name] = read_object(values[option.name], f"{prefix}{option.name}")
        options = cls(**values)
        options._check(prefix)
        return options

    def _check(self, prefix: str) -> None:
        check_options(self, prefix)
        self.check_harness(self.harness, prefix)

    def limits(self, **changes: Any) -> EpisodeLimits:
        """Return the episode limits, with some values changed.

            episode = await pool.play(task, policy, context, options.limits(max_tokens_per_turn=n))

        Args:
            changes: New values by name of the limit.
        """
        chosen = {item.name: getattr(self, item.name) for item in fields(EpisodeLimits)}
        return EpisodeLimits(**chosen | changes)

    def trace_writers(self, tokenizer: Any) -> dict[str, TraceWriter]:
        """Return the trace writers of the splits "train" and "eval"; empty if `traces` is None."""
        splits, decode = () if self.traces is None else ("train", "eval"), tokenizer.decode
        return {split: TraceWriter(f"{self.traces}/{split}.jsonl", decode=decode) for split in splits}


def read_object(value: str | Mapping[str, Any] | None, option: str) -> dict[str, Any]:
    """Read an option that maps names to values, such as the variables of a chat template.

    Args:
        value: Mapping, or a JSON object as a string. None and the empty string mean an empty mapping.
        option: Name that a user writes for the option, for the message.

    Raises:
        ConfigError: The value is neither a mapping nor a JSON object.
    """
    try:
        result = read_json(value or "{}") if isinstance(value, str) else dict(value or {})
    except (TypeError, ValueError):
        result = None
    if not isinstance(result, dict):
        raise ConfigError(f"{option}={value!r}: expected a JSON object")
    return result

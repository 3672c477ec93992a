"""Options shared by the configs of several trainers."""

from __future__ import annotations

import importlib
import json
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, fields
from typing import Annotated, Any, Literal, NamedTuple, TypeAlias, get_args, get_origin, get_type_hints

from gem_core.errors import ConfigError
from gem_core.rollout import Context, RolloutOptions, RowKind
from gem_core.rollout.options import OptionsType
from gem_core.rollout.trajectory import ContextMode

RowOption: TypeAlias = Literal["auto", "episode", "turn"]
"""Kind of rows of a training batch; "auto" selects episode rows if the context allows it."""


@dataclass(frozen=True)
class PluginOptions(RolloutOptions):
    """The section of GEM in a trainer's config, for options that the trainer's own config lacks.

    Attributes:
        template_kwargs: Variables for the chat template, such as ``{"enable_thinking": False}``.
        modules: Modules to import first, such as modules that register your own environments.
    """

    template_kwargs: dict[str, Any] = field(default_factory=dict)
    modules: tuple[str, ...] = ()

    @classmethod
    def read(cls: type[OptionsType], values: Mapping[str, Any], prefix: str = "gem.") -> OptionsType:
        """Read the section and import its modules.

        Raises:
            ConfigError: An option is unknown or has an invalid value, or a module does not exist.
        """
        values = dict(values)
        for name, kind in get_type_hints(cls).items():
            if get_origin(kind) is dict and name in values:
                values[name] = read_object(values[name], f"{prefix}{name}")
        modules = values.get("modules") or ()
        values["modules"] = (modules,) if isinstance(modules, str) else tuple(modules)
        import_modules(values["modules"], f"{prefix}modules")
        return super().read(values, prefix)

    def make_context(self, tokenizer: Any, template_kwargs: Mapping[str, Any] | None = None) -> Context:
        """Do the same as `RolloutOptions.make_context`, with `template_kwargs` added to the option."""
        return super().make_context(tokenizer, {**self.template_kwargs, **(template_kwargs or {})})


def choose_rows(rows: RowOption, context: ContextMode, *, prefix: str = "gem.") -> RowKind:
    """Return the kind of rows on which a run trains.

    Args:
        rows: Value of the option ``rows``.
        context: Value of the option ``context``.
        prefix: Text that a user writes before the name of an option, for the message.

    Raises:
        ConfigError: Episode rows are requested with a rebuilt context.
    """
    if context == "rebuild" and rows == "episode":
        raise ConfigError(
            f"{prefix}rows=episode needs {prefix}context=append: the turns of a rebuilt context share no "
            "prefix"
        )
    return "turn" if rows == "turn" or context == "rebuild" else "episode"


def option_at(config: Any, path: str, default: Any = None) -> Any:
    """Return the value at a dotted path of a trainer's config, or the default if it is missing or None.

    Args:
        config: Objects with attributes, mappings, or both, such as dataclasses or OmegaConf's sections.
        path: Names joined by dots.
        default: Value to return instead of None or a missing one.
    """
    for name in path.split("."):
        config = config.get(name) if isinstance(config, Mapping) else getattr(config, name, None)
    return default if config is None else config


def reject_changed(
    config: Any,
    settings: Iterable[tuple[str, Any, str]],
    *,
    prefix: str = "",
    written: Callable[[str], str] = str,
) -> None:
    """Reject settings of a trainer that have to keep their neutral value.

        reject_changed(config, [("adv.norm_var", False, "has no effect on rebn; leave it at false")])

    Args:
        config: As in `option_at`.
        settings: Triples of an option's dotted path, its neutral value, and the reason with advice, which
            follows the option and its value in the message. A tuple holds several neutral values. None is
            always neutral.
        prefix: Text that a user writes before the name of an option, for the message.
        written: Converts a path to the name that a user writes.

    Raises:
        ConfigError: An option has another value.
    """
    for path, neutral, reason in settings:
        value = option_at(config, path)
        if value is not None and value not in (neutral if isinstance(neutral, tuple) else (neutral,)):
            raise ConfigError(f"{prefix}{written(path)}={value}: {reason}")


class FlagField(NamedTuple):
    """A field of an options class, as the dataclass of a trainer's command-line parser declares it."""

    name: str
    kind: Any
    """Type of the field; str for an object, written as JSON, and ``list[str] | None`` for a tuple."""
    default: Any
    help: str


def flag_fields(options: type[Any]) -> list[FlagField]:
    """Return the fields of an options class for the parser of a trainer that reads flags into a dataclass.

    Args:
        options: A dataclass such as `PluginOptions`; the help is the text in `Annotated`.
    """
    hints = get_type_hints(options, include_extras=True)
    flags = []
    for item in fields(options):
        kind, text, default = hints[item.name], "", item.default
        if get_origin(kind) is Annotated:
            kind, text = get_args(kind)
        if get_origin(kind) is dict:
            kind, default = str, "{}"
        elif get_origin(kind) is tuple:
            kind, default = list[str] | None, None
        flags.append(FlagField(item.name, kind, default, text))
    return flags


def read_object(value: str | Mapping[str, Any] | None, option: str) -> dict[str, Any]:
    """Read an option that maps names to values, such as the variables of a chat template.

    Args:
        value: Mapping, or a JSON object as a string. None and the empty string mean an empty mapping.
        option: Name that a user writes for the option, for the message.

    Raises:
        ConfigError: The value is neither a mapping nor a JSON object.
    """
    try:
        result = json.loads(value or "{}") if isinstance(value, str) else dict(value or {})
    except (TypeError, ValueError):
        result = None
    if not isinstance(result, dict):
        raise ConfigError(f"{option}={value!r}: expected a JSON object")
    return result


def import_modules(names: Iterable[str], option: str) -> None:
    """Import the user's modules, such as one that registers environments.

    Args:
        names: Names of the modules.
        option: Name that a user writes for the option, for the message.

    Raises:
        ConfigError: A module does not exist.
    """
    for name in names:
        try:
            importlib.import_module(name)
        except ModuleNotFoundError as error:
            raise ConfigError(f"{option} {name}: {error}; is its folder on PYTHONPATH?") from error

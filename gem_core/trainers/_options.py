"""Options shared by the configs of several trainers."""

from __future__ import annotations

import importlib
import json
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from string import Template
from typing import Annotated, Any, ClassVar, NamedTuple, get_origin

from gem_core._util.options import Bounds, list_options
from gem_core.errors import ConfigError
from gem_core.rollout import RolloutOptions
from gem_core.rollout._options import OptionsType, read_object
from gem_core.rollout._rows import RowSplit
from gem_core.trainers._estimators import EstimatorChoice, read_estimator
from gem_core.trainers._plugin import SupportedTrainer


@dataclass(frozen=True)
class RowOptions(RolloutOptions):
    """Options of a rollout of which a trainer takes several rows per episode."""

    rows: Annotated[
        RowSplit,
        "how an episode is split into rows: auto makes as few as the prompts allow, turn one for each turn",
    ] = "auto"

    @property
    def has_several_rows(self) -> bool:
        """Whether an episode may have more than one row."""
        return self.rows == "turn" or self.context != "append" or self.harness is not None


@dataclass(frozen=True)
class PluginOptions(RolloutOptions):
    """GEM's section of a trainer's config, for options that the trainer's own config lacks."""

    modules: Annotated[
        tuple[str, ...], "modules to import in every process, such as one that registers environments"
    ] = ()

    @classmethod
    def read(cls: type[OptionsType], section: Mapping[str, Any] | None, prefix: str = "gem.") -> OptionsType:
        """Read the section and import its modules.

        Raises:
            ConfigError: As in `RolloutOptions.read`, or a module does not exist.
        """
        section = read_object(section, prefix.removesuffix("."))
        modules = section.get("modules") or ()
        modules = (modules,) if isinstance(modules, str) else tuple(modules)
        import_modules(modules, f"{prefix}modules")
        return super().read({**section, "modules": modules}, prefix)


@dataclass(frozen=True, kw_only=True)
class EstimatorOptions:
    """The estimator of a config, in trainers that select it in GEM's section."""

    title: ClassVar = "advantages"

    estimator: Annotated[str, "advantage estimator: rebn, reinforce, grpo, or another registered one"] = (
        "rebn"
    )
    estimator_options: Annotated[
        dict[str, Any],
        "options of the estimator, such as '{\"ddof\": 1}', and truncation: 'mask' gives truncated episodes "
        "no advantage; for estimators with statistics also scope: 'trained' leaves out turns that are "
        "dropped before training",
    ] = field(default_factory=dict)

    def read_estimator(self, prefix: str = "", **arguments: Any) -> EstimatorChoice:
        """Return the estimator with its options.

        Args:
            prefix: Text that a user writes before the name of an option, for messages.
            arguments: Further arguments of `gem_core.trainers.read_estimator`, such as ``gamma``.

        Raises:
            GemError: As in that function.
        """
        return read_estimator(
            self.estimator,
            self.estimator_options,
            prefix=f"{prefix}estimator_options.",
            option=f"{prefix}estimator",
            **arguments,
        )


@dataclass(frozen=True, kw_only=True)
class AdvantageOptions(EstimatorOptions):
    """The estimator and the discount, in trainers that have no option of their own for either."""

    gamma: Annotated[float, "discount factor per turn", Bounds(0, 1)] = 1.0

    def read_estimator(self, prefix: str = "", **arguments: Any) -> EstimatorChoice:
        """Return the estimator with its options and the discount, as in `EstimatorOptions`."""
        own = {"gamma": self.gamma, "gamma_option": f"{prefix}gamma"}
        return super().read_estimator(prefix, **own | arguments)


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
    """Reject settings of a trainer that must keep their neutral values.

        reject_changed(config, [("adv.norm_var", False, "has no effect on rebn; leave it at false")])

    Args:
        config: As in `option_at`.
        settings: Triples of an option's dotted path, its neutral value, and the reason with advice, which
            follows the option and its value in the message. A tuple holds several neutral values. None is
            always neutral. A value that is a tuple is compared as a list.
        prefix: Text that a user writes before the name of an option, for the message.
        written: Converts a path to the name that a user writes.

    Raises:
        ConfigError: An option has another value.
    """
    for path, neutral, reason in settings:
        value = option_at(config, path)
        value = list(value) if isinstance(value, tuple) else value
        if value is not None and value not in (neutral if isinstance(neutral, tuple) else (neutral,)):
            raise ConfigError(f"{prefix}{written(path)}={value}: {reason}")


def reject_listed(
    trainer: SupportedTrainer, config: Any, sections: Mapping[str, Any], *, prefix: str = "", **texts: str
) -> None:
    """Reject settings that the plugin's ``unsupported.json`` lists, as `reject_changed` does.

        {"several updates": {"adv.norm": [false, "has no effect on $estimator; leave it at false"]}}

    The file, in the folder of the plugin's package, maps sections to settings: the option's path, and a list
    of its neutral value and the reason. A list holds several neutral values, an empty list none except None.

    Args:
        trainer: Trainer of the plugin.
        config: As in `option_at`.
        sections: Maps sections to whether they apply to the run.
        prefix: As in `reject_changed`.
        texts: Texts that replace ``$name`` in the reasons.

    Raises:
        ConfigError: An option has another value.
        KeyError: The file has no such section, or a ``$name`` has no text.
    """
    for section in (name for name, applies in sections.items() if applies):
        for option, (neutral, reason) in trainer.read_table("unsupported.json", section).items():
            values = tuple(neutral) if isinstance(neutral, list) else neutral
            reject_changed(config, [(option, values, Template(reason).substitute(texts))], prefix=prefix)


class FlagField(NamedTuple):
    """A field of an options class, as the dataclass of a trainer's command-line parser declares it."""

    name: str
    kind: Any
    """Type of the field; str for an object, written as JSON, and ``list[str] | None`` for a tuple."""
    default: Any
    help: str


def flag_fields(options: type[Any]) -> list[FlagField]:
    """Return the fields of an options class, for a trainer whose parser reads flags into a dataclass."""
    flags = []
    for option in list_options(options):
        kind, default = option.kind | None if option.optional else option.kind, option.default
        if get_origin(option.kind) is dict:
            kind, default = str, json.dumps(default)
        elif get_origin(option.kind) is tuple:
            kind, default = list[str] | None, None
        flags.append(FlagField(option.name, kind, default, option.help))
    return flags


def compose_config(folder: str | Path, name: str, overrides: Iterable[str] = ()) -> Any:
    """Return the config that a trainer's command composes with hydra, with interpolations resolved.

    Args:
        folder: Folder of the trainer's YAML files.
        name: Name of the main file, without ``.yaml``.
        overrides: Arguments of the command, such as ``algorithm.gamma=0.9``.

    Raises:
        hydra.errors.HydraException: An override names an unknown option or cannot be parsed.
    """
    from hydra import compose, initialize_config_dir
    from omegaconf import OmegaConf

    with initialize_config_dir(str(Path(folder).resolve()), version_base=None):
        config = compose(name, list(overrides))
    OmegaConf.resolve(config)
    return config


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

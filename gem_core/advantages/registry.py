"""Estimators by name, for the configs of trainers.

    estimator = get_estimator("grpo")
    estimator.needs                       # ("group_ids",)
    result = estimator.tensors()(token_rewards, response_mask, group_ids=groups, gamma=0.9)

Register your own with `register_estimator`. An installed package registers estimators through the
entry-point group ``gem_core.advantages``, where each entry names a module to import or a function to call.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, TypeAlias, get_args

from gem_core._util.checks import check_names
from gem_core._util.entry_points import check_entry_point, load_attribute
from gem_core._util.registry import Registry
from gem_core.advantages.critic import LEARNS, Learns
from gem_core.errors import ConfigError, MissingDependency

ENTRY_POINT_GROUP = "gem_core.advantages"

PREFIX = "gem_"
"""Prefix of an estimator's name in the config of a trainer that has an estimator of that name."""

Scope: TypeAlias = Literal["collected", "trained"]
"""Turns whose returns normalize the advantages: all turns collected for an update, or only the turns that are
left for training after the trainer has dropped some."""
SCOPES: tuple[Scope, ...] = get_args(Scope)

Truncation: TypeAlias = Literal["keep", "mask"]
"""What happens to truncated episodes: keep them as if they had terminated, or mask them."""
TRUNCATIONS: tuple[Truncation, ...] = get_args(Truncation)

EstimatorFunction: TypeAlias = Callable[..., Any]
Need: TypeAlias = Literal[
    "group_ids",
    "env_ids",
    "agent_ids",
    "baselines",
    "values",
    "lengths",
    "state_keys",
    "reward_components",
]
NEEDS: dict[Need, str] = {
    "group_ids": "the group of each episode; the episodes of a group share task and seed",
    "env_ids": "the environment of each episode",
    "agent_ids": "the agent of each episode",
    "baselines": "the return of a greedy episode for each episode",
    "values": "a critic's value of each turn",
    "lengths": "the number of response tokens of each turn",
    "state_keys": "a key of the state in which each turn began",
    "reward_components": "the components of the reward of each turn",
}
"""What an estimator may need besides rewards and mask, with a description for messages."""
Supply: TypeAlias = Need | Literal["truncated"]
"""What a trainer may supply: a need, or which episodes were truncated, for the option "truncation"."""


@dataclass(frozen=True)
class Estimator:
    """An estimator in its two forms, which are imported on first use.

    Attributes:
        name: Name in configs.
        reference_function: The numpy form, as ``module:attribute`` or a callable. It takes a list of turn
            rewards per episode, and as keyword arguments `gamma` and the arguments in `needs`; it returns one
            array per episode.
        tensor_function: The torch form, as ``module:attribute`` or a callable. It takes (rows, tokens)
            tensors of rewards and mask, and as keyword arguments `gamma`, `turn_ids`, and the arguments in
            `needs`; it returns `tensors.Advantages`. None creates it from the numpy form
            (`tensors.of_lists`).
        needs: Required arguments besides rewards and mask; see `NEEDS`. The torch form derives "lengths" from
            the mask.
        option_needs: Further needs, by option and its value.
        uses_stats: Whether it normalizes by the statistics of the batch. It then also takes `stats` and
            `process_group`, because ranks must merge their statistics.
        collected_stats: Whether these are statistics of returns over turns, so that `stats` may include turns
            that a sampler dropped.
        options: Keyword arguments besides gamma that a config may set.
        description: One-line description for listings.
        critic_learns: With the need "values", what the critic learns: "advantage" for the advantage plus the
            critic's value, as in GAE, or "return". None without that need.
        common: Whether trainers have estimators of this name. In the config of a trainer that has estimators
            of its own, the name is then ``gem_NAME`` only.

    Raises:
        ConfigError: A function is not of the form ``module:attribute`` or does not take an argument that
            `needs`, `options`, or the other attributes promise; a need is unknown; or `critic_learns` is
            missing.
    """

    name: str
    reference_function: str | EstimatorFunction
    tensor_function: str | EstimatorFunction | None = None
    needs: tuple[Need, ...] = ()
    option_needs: Mapping[str, Mapping[Any, Need]] = field(default_factory=dict)
    uses_stats: bool = False
    collected_stats: bool = False
    options: tuple[str, ...] = ()
    description: str = ""
    critic_learns: Learns | None = None
    common: bool = False

    def __post_init__(self) -> None:
        owner = f"estimator {self.name!r}"
        further = [need for needs in self.option_needs.values() for need in needs.values()]
        check_names([*self.needs, *further], NEEDS, kind="need", owner=owner)
        if self.critic_learns not in (LEARNS if "values" in self.needs else (None,)):
            wanted = f"{' or '.join(LEARNS)} with" if "values" in self.needs else "None without"
            raise ConfigError(
                f"{owner}: critic_learns={self.critic_learns!r}: expected {wanted} the need 'values'"
            )
        if self.tensor_function is None and self.uses_stats:
            raise ConfigError(f"{owner} uses statistics of the batch, so it needs its own tensor_function")
        self._check_form(self.reference_function, self._arguments)
        if self.tensor_function is not None:
            self._check_form(self.tensor_function, self._of_tensors)

    @property
    def trainer_name(self) -> str:
        """Name in the config of a trainer that has estimators of its own."""
        return f"{PREFIX}{self.name}" if self.common else self.name

    def needs_with(self, options: Mapping[str, Any]) -> tuple[Need, ...]:
        """Return everything the estimator needs with these options."""
        further = (needs.get(options.get(option)) for option, needs in self.option_needs.items())
        return (*self.needs, *(need for need in further if need is not None))

    def missing(self, options: Mapping[str, Any], supplied: Collection[str]) -> str | None:
        """Return the first need, with its description, that is not in `supplied`; None if all are."""
        absent = (need for need in self.needs_with(options) if need not in supplied)
        return next((f"{need} ({NEEDS[need]})" for need in absent), None)

    def check_options(self, options: Iterable[str], *, prefix: str = "") -> None:
        """Check that all names are in `self.options`.

        Args:
            options: Names of the options that a config sets.
            prefix: Text that a user writes before each name, for the message.

        Raises:
            ConfigError: A name is unknown; the message lists the known ones.
        """
        check_names(options, self.options, owner=self.name, prefix=prefix)

    def default(self, option: str) -> Any:
        """Return the default of an option; None if the numpy form does not declare the option by name."""
        parameter = inspect.signature(self.reference()).parameters.get(option)
        return None if parameter is None else parameter.default

    def reference(self) -> EstimatorFunction:
        """Return the numpy form.

        Raises:
            ConfigError: It does not exist, or does not take an argument of the estimator.
        """
        return self._load(self.reference_function, self._arguments)

    def tensors(self) -> EstimatorFunction:
        """Return the torch form.

        Raises:
            MissingDependency: torch is not installed.
            ConfigError: It does not exist, or does not take an argument of the estimator.
        """
        try:
            if self.tensor_function is not None:
                return self._load(self.tensor_function, self._of_tensors)
            from gem_core.advantages.tensors import of_lists
        except ModuleNotFoundError as error:
            if error.name != "torch":
                raise
            raise MissingDependency(
                f"estimator {self.name!r} on tensors needs the package 'torch': pip install 'gem-core[train]'"
            ) from error
        return of_lists(self.reference(), critic_learns=self.critic_learns)

    @property
    def _arguments(self) -> list[str]:
        """Keyword arguments that the numpy form takes."""
        return ["gamma", *self.needs, *self.options, *(["stats"] if self.uses_stats else [])]

    @property
    def _of_tensors(self) -> list[str]:
        """Keyword arguments that the torch form takes."""
        further = ["turn_ids", *(["process_group"] if self.uses_stats else [])]
        return [name for name in [*self._arguments, *further] if name != "lengths"]

    def _load(self, function: str | EstimatorFunction, taken: Iterable[str]) -> EstimatorFunction:
        if not isinstance(function, str):
            return function
        loaded: EstimatorFunction = load_attribute(f"estimator {self.name!r}", function)
        self._check_form(loaded, taken)
        return loaded

    def _check_form(self, function: str | EstimatorFunction, taken: Iterable[str]) -> None:
        """Check that a form is callable with the arguments that trainers pass, or the text that names it."""
        if isinstance(function, str):
            check_entry_point(f"estimator {self.name!r}", function)
            return
        if not callable(function):
            raise ConfigError(f"estimator {self.name!r}: {function!r} is not a function")
        try:
            parameters = inspect.signature(function).parameters
        except ValueError:  # a function of an extension module without a signature
            return
        if any(parameter.kind is parameter.VAR_KEYWORD for parameter in parameters.values()):
            return
        absent = [name for name in taken if name not in parameters]
        if absent:
            name = getattr(function, "__name__", repr(function))
            raise ConfigError(
                f"estimator {self.name!r}: {name} takes no argument {absent[0]!r}; its arguments are "
                f"{', '.join(parameters) or 'none'}"
            )


_estimators: Registry[Estimator] = Registry("estimator", group=ENTRY_POINT_GROUP)


def register_estimator(estimator: Estimator) -> None:
    """Make an estimator available by its name.

    Raises:
        ConfigError: Another estimator has this name.
    """
    _estimators.register(estimator.name, estimator)


def get_estimator(name: str) -> Estimator:
    """Look up an estimator.

    Raises:
        UnknownName: No estimator has this name; the message suggests the closest names.
    """
    return _estimators.get(name)


def list_estimators() -> list[str]:
    """Return the names of all registered estimators, sorted."""
    return _estimators.names()


def names_in_trainer(own: Collection[str] = ()) -> dict[str, str]:
    """Map the names that a trainer's config accepts to the names of the estimators.

    Args:
        own: Names of the trainer's own estimators that the same option selects.

    Returns:
        For every estimator ``gem_NAME``, and NAME unless it is one of `own`. A `common` name is left out as
        well if the trainer has estimators of its own.
    """
    names = {}
    for name in list_estimators():
        if name not in own and not (own and get_estimator(name).common):
            names[name] = name
        names[f"{PREFIX}{name}"] = name
    return names


def _register_builtin() -> None:
    scale = ("ddof", "eps", "min_std")
    group: tuple[Need, ...] = ("group_ids",)
    builtin: dict[str, tuple[str, tuple[Need, ...], tuple[str, ...], str]] = {
        "rebn": (
            "returns",
            (),
            ("statistics", "weight", *scale),
            "returns of all turns, normalized over the batch",
        ),
        "reinforce": ("returns", (), (), "returns without normalization"),
        "reinforce_plus_plus": (
            "returns",
            ("lengths",),
            scale,
            "returns of all turns, normalized over the response tokens of the batch",
        ),
        "reinforce_plus_plus_baseline": (
            "groups",
            (*group, "lengths"),
            scale,
            "episode returns minus the mean of their group, normalized over the tokens of the batch",
        ),
        "grpo": ("groups", group, scale, "episode returns, normalized in their group"),
        "dr_grpo": ("groups", group, (), "episode returns minus the mean of their group"),
        "rloo": ("groups", group, (), "episode returns minus the mean of the others in their group"),
        "opo": (
            "groups",
            (*group, "lengths"),
            (),
            "episode returns minus the mean of their group, weighted by response tokens",
        ),
        "maxrl": ("groups", group, (), "episode returns divided by the mean of their group, minus 1"),
        "gdpo": (
            "groups",
            (*group, "reward_components"),
            ("component_weights", *scale),
            "components of the reward, each normalized in its group, then summed and normalized",
        ),
        "mt_grpo": (
            "turn_groups",
            group,
            ("compared", *scale),
            "rewards normalized in their group by turn index, then summed",
        ),
        "gigpo": (
            "turn_groups",
            (*group, "state_keys"),
            ("normalization", "step_weight", *scale),
            "episode returns and returns from the same state, normalized in their group",
        ),
        "remax": ("baselines", ("baselines",), (), "returns minus the return of a greedy episode"),
        "rae": ("baselines", ("agent_ids",), (), "episode returns minus the baseline of the agent"),
        "gae": (
            "critic",
            ("values",),
            ("lam",),
            "generalized advantage estimation, with a critic",
        ),
    }
    with_stats = ("rebn", "reinforce_plus_plus", "reinforce_plus_plus_baseline", "gdpo")
    for name, (module, needs, options, description) in builtin.items():
        register_estimator(
            Estimator(
                name,
                f"gem_core.advantages.{module}:{name}",
                f"gem_core.advantages.tensors:{name}",
                needs,
                {"statistics": {"env": "env_ids", "group": "group_ids"}} if name == "rebn" else {},
                uses_stats=name in with_stats,
                collected_stats=name == "rebn",
                options=options,
                description=description,
                critic_learns="advantage" if name == "gae" else None,
                common=name not in ("rebn", "mt_grpo", "rae"),
            )
        )


_register_builtin()

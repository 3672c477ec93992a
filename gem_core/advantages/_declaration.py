"""What an estimator is: a numpy function, and what its signature says about it."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from types import MappingProxyType
from typing import Any, Concatenate, Generic, Literal, ParamSpec, TypeAlias, TypeVar, get_args

from numpy.typing import ArrayLike

from gem_core._util.checks import check_names
from gem_core.advantages._batch import TurnRewards
from gem_core.errors import ConfigError

P = ParamSpec("P")
R = TypeVar("R", bound=Sequence[ArrayLike], covariant=True)

Learns: TypeAlias = Literal["advantage", "return"]
"""What a critic learns: the advantage plus the critic's own value, as in GAE, or the return."""
LEARNS: tuple[Learns, ...] = get_args(Learns)

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
NOT_OPTIONS = ("gamma", "stats", "truncated", "bootstrap", "role_baselines")
"""Arguments that no config sets: trainers have options of their own for them, or compute them."""


class Declaration(Generic[P, R]):
    """An estimator's numpy form, which it calls, and what a trainer has to know about it.

    Args:
        function: The numpy form. It takes the turn rewards of each episode, and as keyword arguments `gamma`,
            its needs, which have the names in `NEEDS`, and its options, which are all others; they have
            defaults. It returns one sequence of advantages per episode. If its first parameter is annotated
            as `gem_core.advantages._batch.TurnRewards`, it is called with `Turns` where they exist, else with
            lists. With an argument `stats`, it normalizes by the statistics of the batch.
        name: Name in configs; None means that of the function.
        description: One line for listings.
        option_needs: Needs that only a value of an option causes, by option and value.
        collected_stats: Whether its statistics are those of returns over turns, so that `stats` may include
            turns that a sampler dropped.
        critic_learns: With the need "values", what the critic learns: "advantage" for the advantage plus the
            critic's value, as in GAE, or "return". None without that need.
        common: Whether trainers have estimators of this name. In the config of a trainer that has estimators
            of its own, the name is then ``gem_NAME`` only.

    Attributes:
        needs: Required arguments besides rewards and mask; see `NEEDS`. The form for tensors derives
            "lengths" from the mask.
        options: Keyword arguments that a config may set, besides gamma.
        uses_stats: Whether it takes `stats`, so that ranks must merge their statistics.
        takes_turns: Whether it takes `Turns`.

    Raises:
        ConfigError: `function` is not a function, takes no turn rewards or no `gamma`, or has a required
            argument that is not a keyword in `NEEDS`; a need of `option_needs` is unknown; or `critic_learns`
            is missing.
    """

    def __init__(
        self,
        function: Callable[Concatenate[Any, P], R],
        *,
        name: str | None = None,
        description: str = "",
        option_needs: Mapping[str, Mapping[Any, Need]] = MappingProxyType({}),
        collected_stats: bool = False,
        critic_learns: Learns | None = None,
        common: bool = False,
    ) -> None:
        if not callable(function):
            raise ConfigError(f"estimator {name!r}: {function!r} is not a function")
        functools.update_wrapper(self, function)
        self.name = str(name or getattr(function, "__name__", type(function).__name__))
        self.function = function
        self.description = description
        self.option_needs = option_needs
        self.collected_stats = collected_stats
        self.critic_learns = critic_learns
        self.common = common
        self._read_signature()

    def _read_signature(self) -> None:
        owner = f"estimator {self.name!r}"
        try:
            first, *rest = inspect.signature(self.function).parameters.values()
        except ValueError as error:  # no signature, as of functions in C, or an empty one
            raise ConfigError(
                f"{owner}: the signature of {self.function!r} cannot be read ({error}): expected a Python "
                "function that takes the turn rewards and gamma"
            ) from error
        parameters = {p.name: p for p in rest if p.kind in (p.POSITIONAL_OR_KEYWORD, p.KEYWORD_ONLY)}
        if first.kind not in (first.POSITIONAL_ONLY, first.POSITIONAL_OR_KEYWORD):
            raise ConfigError(f"{owner}: expected the turn rewards as its first argument, not '{first}'")
        if "gamma" not in parameters:
            listed = ", ".join([first.name, *parameters])
            raise ConfigError(f"{owner} takes no argument 'gamma'; its arguments are {listed}")
        further = {need for needs in self.option_needs.values() for need in needs.values()}
        check_names(further, NEEDS, kind="need", owner=owner)
        check_names(self.option_needs, parameters, kind="option", owner=owner)
        check_names(further, parameters, kind="argument", owner=owner)
        self.needs: tuple[Need, ...] = tuple(n for n in NEEDS if n in parameters and n not in further)
        for p in (one for one in rest if one.default is one.empty and str(one)[0] != "*"):
            if p.name not in parameters.keys() & {*NEEDS, "gamma"}:
                raise ConfigError(
                    f"{owner} requires {p.name!r}, which no trainer supplies: expected a default, or a "
                    f"keyword argument among {', '.join(NEEDS)}"
                )
        self.options = tuple(name for name in parameters if name not in (*NEEDS, *NOT_OPTIONS))
        self.uses_stats = "stats" in parameters
        names = getattr(self.function, "__globals__", {})
        self.takes_turns = names.get(str(first.annotation), first.annotation) is TurnRewards
        self._defaults = {name: p.default for name, p in parameters.items()}
        if self.critic_learns not in (LEARNS if "values" in self.needs else (None,)):
            wanted = f"{' or '.join(LEARNS)} with" if "values" in self.needs else "None without"
            raise ConfigError(
                f"{owner}: critic_learns={self.critic_learns!r}: expected {wanted} the need 'values'"
            )

    def __call__(self, turn_rewards: TurnRewards, *args: P.args, **kwargs: P.kwargs) -> R:
        """Compute the advantages of a batch.

        Args:
            turn_rewards: One sequence of floats per episode, one reward per turn.
            args: None; all further arguments have names.
            kwargs: Needs and options.

        Returns:
            One sequence of advantages per episode, of shape (turns,); float64 arrays from the estimators of
            this package.
        """
        return self.function(turn_rewards, *args, **kwargs)

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
        """Return the default of an option; None if the estimator has no such option."""
        return self._defaults.get(option)

"""Estimators by name, for the configs of trainers.

    estimator = get_estimator("grpo")
    estimator.needs                       # ("group_ids",)
    result = estimator.tensors()(token_rewards, response_mask, group_ids=groups, gamma=0.9)

Register your own with `register_estimator`. An installed package registers estimators through the
entry-point group ``gem_core.advantages``, where each entry names a module to import or a function to call.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias, get_args

from gem_core._util.checks import check_names
from gem_core._util.entry_points import check_entry_point
from gem_core._util.registry import Registry
from gem_core.errors import MissingDependency

ENTRY_POINT_GROUP = "gem_core.advantages"

TRAINER_NAMES = {"rebn": "rebn", "gem_reinforce": "reinforce", "gem_grpo": "grpo", "gem_rloo": "rloo"}
"""Estimator names by the names in trainer configs, with a prefix where a trainer has its own estimator."""

Scope: TypeAlias = Literal["collected", "trained"]
"""Turns whose returns normalize the advantages: all turns collected for an update, or only the turns that
remain for training after the trainer dropped some."""
SCOPES: tuple[Scope, ...] = get_args(Scope)

EstimatorFunction: TypeAlias = Callable[..., Any]
Need: TypeAlias = Literal["group_ids", "values"]


@dataclass(frozen=True)
class Estimator:
    """An estimator in its two forms, which are imported on first use.

    Attributes:
        name: Name in configs.
        reference_function: The numpy form, as ``module:attribute`` or a callable. It takes a list of turn
            rewards per episode, and as keyword arguments `gamma` and the arguments in `needs`; it returns one
            array per episode.
        tensor_function: The torch form, as ``module:attribute`` or a callable. It takes (rows, tokens)
            tensors of rewards and mask, and as keyword arguments `gamma`, `turn_ids` and the arguments in
            `needs`; it returns `tensors.Advantages`.
        needs: Required arguments besides rewards and mask: "group_ids" (one per episode; the episodes of a
            group share the seed) or "values" (from a critic).
        uses_stats: Whether it normalizes by the statistics of the batch. It then also takes `stats` and
            `process_group`, because ranks must merge their statistics.
        options: Keyword arguments besides gamma that a config may set.
        description: One line for listings.
    """

    name: str
    reference_function: str | EstimatorFunction
    tensor_function: str | EstimatorFunction
    needs: tuple[Need, ...] = ()
    uses_stats: bool = False
    options: tuple[str, ...] = ()
    description: str = ""

    def check_options(self, options: Iterable[str], *, prefix: str = "") -> None:
        """Check that all names are in `self.options`.

        Args:
            options: Names that a config sets.
            prefix: What users write before each name, for the message.

        Raises:
            ConfigError: A name is unknown; the message lists the known ones.
        """
        check_names(options, self.options, owner=self.name, prefix=prefix)

    def reference(self) -> EstimatorFunction:
        """Return the numpy form."""
        return _load(self.name, self.reference_function)

    def tensors(self) -> EstimatorFunction:
        """Return the torch form.

        Raises:
            MissingDependency: torch is not installed.
        """
        return _load(self.name, self.tensor_function)


_estimators: Registry[Estimator] = Registry("estimator", group=ENTRY_POINT_GROUP)


def register_estimator(estimator: Estimator) -> None:
    """Make an estimator available by its name.

    Raises:
        ConfigError: Another estimator has this name, or a function is not of the form ``module:attribute``.
    """
    for function in (estimator.reference_function, estimator.tensor_function):
        check_entry_point(f"estimator {estimator.name!r}", function)
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


def _load(name: str, function: str | EstimatorFunction) -> EstimatorFunction:
    if not isinstance(function, str):
        return function
    module, _, attribute = function.partition(":")
    try:
        loaded: EstimatorFunction = getattr(importlib.import_module(module), attribute)
    except ModuleNotFoundError as error:
        if error.name != "torch":
            raise
        raise MissingDependency(
            f"estimator {name!r} on tensors needs the package 'torch': pip install 'gem-core[train]'"
        ) from error
    return loaded


def _register_builtin() -> None:
    scale = ("ddof", "eps", "min_std")
    builtin: dict[str, tuple[tuple[Need, ...], tuple[str, ...], str]] = {
        "rebn": ((), scale, "returns of all turns, normalized over the batch"),
        "reinforce": ((), (), "returns as they are"),
        "grpo": (("group_ids",), scale, "episode returns, normalized in their group"),
        "rloo": (("group_ids",), (), "episode returns minus the mean of the others in their group"),
        "gae": (("values",), ("lam",), "generalized advantage estimation over turns, with a critic"),
    }
    for name, (needed, options, description) in builtin.items():
        register_estimator(
            Estimator(
                name,
                f"gem_core.advantages.reference:{name}",
                f"gem_core.advantages.tensors:{name}",
                needed,
                uses_stats=name == "rebn",
                options=options,
                description=description,
            )
        )


_register_builtin()

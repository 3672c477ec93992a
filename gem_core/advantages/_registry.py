"""Estimators: numpy functions with a name, a form for tensors, and what they need, read from their signature.

    @estimator("episode returns minus the best of their group")
    def against_the_best(turn_rewards, *, group_ids, gamma=1.0, scale=1.0): ...

    against_the_best.needs, against_the_best.options            # ("group_ids",), ("scale",)
    against_the_best(turn_rewards, group_ids=groups, gamma=0.9)  # lists of episodes
    against_the_best.tensors(token_rewards, response_mask, group_ids=groups, gamma=0.9)
    get_estimator("against_the_best")                           # for the configs of trainers

An installed package registers estimators through the entry-point group ``gem_core.advantages``, where each
entry names a module to import or a function to call.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Concatenate, Literal, TypeAlias, get_args

from gem_core._util.registry import Registry
from gem_core.advantages._declaration import Declaration, Learns, Need, P, R
from gem_core.errors import ConfigError, MissingDependency

if TYPE_CHECKING:
    import torch
    from torch.distributed import ProcessGroup

    from gem_core.advantages._tensors import Advantages

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

Supply: TypeAlias = Need | Literal["truncated"]
"""What a trainer may supply: a need, or which episodes were truncated, for the option "truncation"."""


class Estimator(Declaration[P, R]):
    """An advantage estimator: its numpy form, which it calls, and its form for tensors.

    `Declaration` describes the arguments and the attributes; `estimator` makes one that has a name.
    """

    def tensors(
        self,
        token_rewards: torch.Tensor,
        response_mask: torch.Tensor,
        turn_ids: torch.Tensor | None = None,
        process_group: ProcessGroup | None = None,
        *args: P.args,
        **kwargs: P.kwargs,
    ) -> Advantages:
        """Compute the advantages of the (rows, tokens) tensors of a trainer's batch.

        A row is an episode. A row whose mask is 0 everywhere is padding or an episode that is not trainable:
        it is excluded from statistics, and its advantages are zero. `gem_core.advantages._tensors` describes
        the further arguments.

        Args:
            token_rewards: (rows, tokens), any float dtype, on the device of the mask.
            response_mask: (rows, tokens), bool or a number: 1 on response tokens, 0 elsewhere.
            turn_ids: (rows, tokens), integers: the index of the turn within its row, counted from 0, without
                gaps; -1 elsewhere. None treats every run of ones in the mask as a turn.
            process_group: Group of `torch.distributed` whose ranks hold the batch together; all of them must
                call this method, and ids mean the same on each. None uses the rows of this process.
            args: None; all further arguments have names.
            kwargs: Needs and options.

        Returns:
            Advantages and returns as (rows, tokens) tensors, and the statistics of the returns.

        Raises:
            ConfigError: An argument is not a tensor, shapes or devices differ, the mask holds values other
                than 0 and 1, turn ids have a gap, or an argument of the estimator is wrong.
            NonFiniteReward: The reward of a turn is NaN or infinite, or a return overflows; the message names
                the row and the turn. On the other ranks of the process group, the message names the rank that
                failed.
            MissingDependency: torch is not installed.
        """
        try:
            from gem_core.advantages._tensors import compute
        except ModuleNotFoundError as error:
            if error.name != "torch":
                raise
            raise MissingDependency(
                f"estimator {self.name!r} on tensors needs the package 'torch': pip install 'gem-core[train]'"
            ) from error
        if args:
            raise ConfigError(f"{self.name}.tensors takes further arguments by name only, not {args!r:.80}")
        return compute(self, token_rewards, response_mask, turn_ids, process_group, kwargs)

    def __repr__(self) -> str:
        return f"<estimator {self.name}>"

    def __reduce__(self) -> str:
        return str(self.function.__qualname__)  # pickled as a name in its module, like a function

    @property
    def trainer_name(self) -> str:
        """Name in the config of a trainer that has estimators of its own."""
        return f"{PREFIX}{self.name}" if self.common else self.name


_estimators: Registry[Estimator[..., Any]] = Registry("estimator", group=ENTRY_POINT_GROUP)


def estimator(
    description: str = "",
    *,
    name: str | None = None,
    option_needs: Mapping[str, Mapping[Any, Need]] = MappingProxyType({}),
    collected_stats: bool = False,
    critic_learns: Learns | None = None,
    common: bool = False,
) -> Callable[[Callable[Concatenate[Any, P], R]], Estimator[P, R]]:
    """Declare the decorated function as an estimator, and make it available by its name.

    See `Estimator` for the arguments.

    Raises:
        ConfigError: See `Estimator`; or another estimator has this name, or one with `PREFIX` might have it.
    """
    if not isinstance(description, str):  # the function, without parentheses after the decorator
        raise ConfigError(f'estimator({description!r}): write @estimator("what it computes")')

    def declare(function: Callable[Concatenate[Any, P], R]) -> Estimator[P, R]:
        declared = Estimator(
            function,
            name=name,
            description=description,
            option_needs=option_needs,
            collected_stats=collected_stats,
            critic_learns=critic_learns,
            common=common,
        )
        if declared.name.startswith(PREFIX):
            raise ConfigError(f"estimator {declared.name!r}: configs write {PREFIX!r} before names; omit it")
        before = _estimators.registered().get(declared.name)
        again = before is not None and _source(before) == _source(declared)  # a module loaded again
        _estimators.register(declared.name, declared, replace=again)
        return declared

    return declare


def _source(estimator: Estimator[..., Any]) -> tuple[str, str]:
    function = estimator.function
    return getattr(function, "__module__", ""), getattr(function, "__qualname__", repr(function))


def get_estimator(name: str) -> Estimator[..., Any]:
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
    names = list_estimators()
    plain = [name for name in names if name not in own and not (own and get_estimator(name).common)]
    return {name: name for name in plain} | {f"{PREFIX}{name}": name for name in names}

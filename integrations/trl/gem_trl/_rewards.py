"""Reward functions of a run: the return of an episode, and the user's own on the user's own rows."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from gem_core._util.checks import expected
from gem_trl._dataset import is_task


def episode_return(gem_return: Sequence[float | None], **unused: Any) -> list[float | None]:
    """Return the return of each episode, as a reward function of TRL; None for a failed episode.

    Args:
        gem_return: The column that the rollout adds.
        unused: The other columns.
    """
    return list(gem_return)


def reward_funcs_of(arguments: Mapping[str, Any]) -> list[Any]:
    """Return the reward functions in the arguments of `GRPOTrainer`; empty without any.

    Raises:
        ConfigError: One is neither a function nor a reward model.
    """
    given = arguments.get("reward_funcs")
    funcs = given if isinstance(given, list) else [] if given is None else [given]
    if not all(isinstance(func, str) or callable(func) for func in funcs):
        raise expected("reward_funcs", given, "a function, a reward model, or a list of them", optional=True)
    return funcs


def on_own_rows(reward_func: Any) -> Any:
    """Return a reward function that is called with the user's own rows only, and gives tasks None.

    Args:
        reward_func: Function, also an asynchronous one. A reward model is returned unchanged.
    """
    inner = _inner(reward_func)
    if isinstance(reward_func, str) or hasattr(reward_func, "forward"):
        return reward_func
    if inspect.iscoroutinefunction(inner) or inspect.iscoroutinefunction(inner.__call__):

        async def scored(prompts: list[Any], **columns: Any) -> list[float | None]:
            own, spread, chosen = _select(prompts, columns)
            return spread(await reward_func(**chosen)) if own else [None] * len(prompts)
    else:

        def scored(prompts: list[Any], **columns: Any) -> list[float | None]:  # type: ignore[misc]
            own, spread, chosen = _select(prompts, columns)
            return spread(reward_func(**chosen)) if own else [None] * len(prompts)

    scored.__name__ = func_name(reward_func)
    return scored


def func_name(reward_func: Any) -> str:
    """Return the name of a reward function, or the model of a reward model, as TRL logs it."""
    if isinstance(reward_func, str):
        return reward_func.split("/")[-1]
    inner = _inner(reward_func)
    return str(getattr(inner, "__name__", type(inner).__name__))


def _inner(reward_func: Any) -> Any:
    """Return the function in nested `functools.partial` objects."""
    while isinstance(reward_func, functools.partial):
        reward_func = reward_func.func
    return reward_func


def _select(
    prompts: list[Any], columns: dict[str, Any]
) -> tuple[list[int], Callable[[Sequence[Any]], list[Any]], dict[str, Any]]:
    """Return the indices of the user's rows, a function that spreads values over all rows, and columns."""
    own = [index for index, prompt in enumerate(prompts) if not is_task(prompt)]

    def spread(values: Sequence[Any]) -> list[Any]:
        if len(values) != len(own):
            raise ValueError(f"the reward function returned {len(values)} rewards for {len(own)} rows")
        by_row = dict(zip(own, values, strict=True))
        return [by_row.get(index) for index in range(len(prompts))]

    chosen = {"prompts": prompts, **columns}
    for name, values in chosen.items():
        if isinstance(values, list):
            chosen[name] = [values[index] for index in own]
    if "log_extra" in columns:  # the table of completions has all rows
        chosen["log_extra"] = lambda column, values: columns["log_extra"](column, spread(values))
    return own, spread, chosen

"""Checks that tell tensors, arrays of tokens, and lists of episodes apart. Requires numpy only."""

from __future__ import annotations

import sys
from collections.abc import Sequence

import numpy as np
from numpy.typing import ArrayLike, NDArray

from gem_core.errors import ConfigError

FOR_TOKENS = (
    "Tensors of shape (rows, tokens) go to gem_core.advantages.tensors, for example "
    "tensors.rebn(token_rewards, response_mask)."
)


def episode_arrays(name: str, episodes: Sequence[ArrayLike]) -> list[NDArray[np.float64]]:
    """Convert a list with one sequence of numbers per episode to float64 arrays.

    Args:
        name: Name of the argument, for the message.
        episodes: One sequence of floats per episode, one number per turn.

    Raises:
        ConfigError: `episodes` is a tensor, an array, or anything else that is not a list, or an episode is
            a tensor or not a one-dimensional sequence of numbers.
    """
    if not isinstance(episodes, Sequence) or isinstance(episodes, str | bytes):
        raise ConfigError(
            f"{name} is {describe(episodes)}: expected a list with one sequence of numbers per episode, one "
            f"number per turn. {FOR_TOKENS}"
        )
    arrays = []
    for number, episode in enumerate(episodes):
        if is_tensor(episode):
            raise ConfigError(
                f"{name}: episode {number} is {describe(episode)}: expected a list or numpy array with one "
                f"number per turn, such as tensor.tolist(). {FOR_TOKENS}"
            )
        try:
            array = np.asarray(episode, dtype=np.float64)
        except (TypeError, ValueError) as error:
            raise ConfigError(
                f"{name}: episode {number} is {describe(episode)}: expected one number per turn ({error})"
            ) from error
        if array.ndim != 1:
            raise ConfigError(
                f"{name}: episode {number} has shape {array.shape}: expected one number per turn. "
                f"{FOR_TOKENS}"
            )
        arrays.append(array)
    return arrays


def is_tensor(value: object) -> bool:
    """Return whether `value` is a torch tensor, without importing torch."""
    torch = sys.modules.get("torch")
    return torch is not None and isinstance(value, torch.Tensor)


def describe(value: object) -> str:
    """Describe the type of a value and, if it has one, its shape."""
    kind = f"a {type(value).__module__}.{type(value).__qualname__}".replace("builtins.", "")
    shape = getattr(value, "shape", None)
    return kind if shape is None else f"{kind} of shape {tuple(shape)}"

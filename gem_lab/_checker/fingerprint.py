"""Fingerprints of environments, which show whether a recorded result still describes the environment."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from gem_core import Env, render_observation
from gem_lab._checker.null_policies import visible_text

SEEDS = 20
"""Number of seeds in the fingerprint of a record."""
WIDTH = 6
"""Number of hexadecimal digits per seed."""
_MOST_TURNS = 8


def fingerprint(env: Env, seeds: Iterable[int] = range(SEEDS)) -> str:
    """Return `WIDTH` hexadecimal digits per seed, which depend on the prompt and on the rewards.

    The rewards are those of the oracle and of the random player in the first turns of an episode, so that
    changes to the prompt, the items, the grading, or the players are detected. Later observations and images
    do not count, because they can depend on the versions of other programs.

    Args:
        env: Environment, which is reset and left in an arbitrary state.
        seeds: Random seeds of the episodes.
    """
    return "".join(_digest(env, seed) for seed in seeds)


def _digest(env: Env, seed: int) -> str:
    import hashlib  # loads OpenSSL

    players: tuple[Callable[[], str | None], ...] = (env.oracle_action, env.sample_random_action)
    parts = []
    for choose in players:
        observation, info = env.reset(seed=seed)
        parts.append(visible_text(render_observation(observation, info)))
        for _ in range(_MOST_TURNS):
            action = choose()
            if action is None:
                break
            _, reward, terminated, truncated, _ = env.step(action)
            parts.append(f"{reward:.6g} {bool(terminated):d} {bool(truncated):d}")
            if terminated or truncated:
                break
    return hashlib.sha256("\0".join(parts).encode("utf-8", "replace")).hexdigest()[:WIDTH]

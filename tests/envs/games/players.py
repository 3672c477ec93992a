"""Helpers that play games in tests."""

from __future__ import annotations

from gem_envs import TurnBasedEnv


def oracle_return(env: TurnBasedEnv, seed: int) -> float:
    """Return the oracle's return in the episode of `seed`."""
    env.reset(seed=seed)
    total = 0.0
    while True:
        action = env.oracle_action()
        assert action is not None
        _, reward, terminated, truncated, info = env.step(action)
        assert info["invalid"] is None
        total += reward
        if terminated or truncated:
            return total


def say(move: object) -> str:
    """Return a response with the move in a box."""
    return f"I think \\boxed{{{move}}} is best."

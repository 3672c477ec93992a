r"""`GemEnv`: one of our environments as a `gymnasium.Env` of texts.

from gem_bridges.gymnasium import register_envs

register_envs("game:*")
env = gymnasium.make("gem/game.GuessTheNumber-v0-easy")
text, info = env.reset(seed=0)
text, reward, terminated, truncated, info = env.step(r"\boxed{5}")
"""

from __future__ import annotations

from typing import Any

import gymnasium

from gem_bridges.gymnasium._spaces import TextSpace
from gem_core import Env, EnvSpec, _registration, render_observation
from gem_core._core import ResetResult, require_one_agent
from gem_core._observations import observation_text
from gem_core.errors import ConfigError


class GemEnv(gymnasium.Env[str, str]):
    """One of our environments, whose observations and actions are text.

    An observation holds the prefix and suffix of the info, as a model sees it. `render` returns it with
    ``render_mode="ansi"``. Samples of the action space are random legal responses while an episode runs; they
    follow the seed of the environment.

    Args:
        env_id: Id, spec, or instance; an instance is closed with this one.
        render_mode: None or "ansi".
        **kwargs: Keyword arguments of `gem_core.make`.

    Raises:
        ConfigError: The environment has several agents, or shows images.
    """

    metadata = {"render_modes": ["ansi"]}  # noqa: RUF012  # declared so by Gymnasium

    def __init__(self, env_id: str | EnvSpec | Env, render_mode: str | None = None, **kwargs: Any) -> None:
        self.env = env_id if isinstance(env_id, Env) else _registration.make(env_id, **kwargs)
        require_one_agent(self.env, "Gymnasium")
        if self.env.shows_images:
            raise ConfigError(f"{self.env!r} shows images, which a text space cannot hold")
        self.render_mode = render_mode
        self.observation_space = TextSpace()
        self.action_space = TextSpace(self._random_response)
        self._shown = ""

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[str, dict[str, Any]]:
        """Start an episode; the options are those of `gem_core.Env.reset`."""
        super().reset(seed=seed)
        result: ResetResult = self.env.reset(seed, options=options or None)  # type: ignore[arg-type]
        return self._show(*result)

    def step(self, action: str) -> tuple[str, float, bool, bool, dict[str, Any]]:
        """Take one whole response."""
        observation, reward, terminated, truncated, info = self.env.step(str(action))
        return self._show(observation, info)[0], reward, terminated, truncated, dict(info)

    def render(self) -> str | None:
        """Return the last observation; None without ``render_mode="ansi"``."""
        return self._shown if self.render_mode == "ansi" else None

    def close(self) -> None:
        """Close the environment."""
        self.env.close()

    def _show(self, observation: Any, info: Any) -> tuple[str, dict[str, Any]]:
        self._shown = observation_text(render_observation(observation, info))
        return self._shown, dict(info)

    def _random_response(self) -> str:
        return self.env.sample_random_action() if self.env._running else ""


def register_envs(pattern: str = "*") -> list[str]:
    """Register our single-agent ids with Gymnasium, as ``gem/`` and the id with a dot in place of the colon.

    Gymnasium would import the text before a colon as a module.

    Args:
        pattern: Shell-style pattern of our ids.

    Returns:
        Gymnasium's ids.
    """
    names = []
    for id in _registration.list_envs(pattern):
        name = "gem/" + id.replace(":", ".")
        if name not in gymnasium.registry:
            gymnasium.register(
                name, "gem_bridges.gymnasium:GemEnv", kwargs={"env_id": id}, disable_env_checker=True
            )
        names.append(name)
    return names

"""GEM's environments under gem-llm's `gem.make`, where ROLL looks for them.

    register("game:GuessTheNumber-v0-easy")
    env = gem.make("gem_core:game:GuessTheNumber-v0-easy", max_number=20)

gem-llm has environments with the same names, so ours have a prefix there. ROLL's own env managers step the
adapter; the managers in `gem_roll.managers` play the environment inside it. Needs no ROLL.
"""

from __future__ import annotations

import re
import threading
from collections.abc import Mapping, Sequence
from typing import Any

from gem_core.core import Env, Observation, ResetOptions, Split
from gem_core.data import Order
from gem_core.errors import ConfigError, UnsupportedTrainer
from gem_core.observations import observation_text, render_observation
from gem_core.registration import spec
from gem_core.tasks import EnvChoice

PREFIX = "gem_core:"
NO_IMAGES = "ROLL's env managers support text only; train on it with verl, OpenRLHF or `gem-core train`"

_END = re.compile(r"(\s*(<\|[^<>|]*\|>|</?s>|<eos>|<pad>|<end_of_turn>))+\s*$")
"""Special tokens at the end of a response, which ROLL decodes along with it."""

_registering = threading.Lock()
"""Lock, because ROLL creates the env managers of a worker in threads and gem-llm rejects a repeated name."""


class GemEnv:
    """One of our environments with the methods that ROLL's env managers call.

    The environment is built on first use. The first observation is the ``env_instruction`` of the reset,
    which every manager of ROLL shows. An episode that a limit truncates is reported as terminated, because
    ROLL would otherwise keep stepping. The info contains ``metrics`` and no key that ROLL's history uses.

    Args:
        gem_core_id: Registered id.
        wrappers: Wrappers around the environment, as in `gem_core.make`.
        kwargs: Arguments of the environment.

    Attributes:
        split: Split of the items that `reset` plays, set by a manager.
    """

    split: Split = "train"

    def __init__(self, gem_core_id: str, wrappers: str = "", **kwargs: Any) -> None:
        self.source = EnvChoice(gem_core_id, plain(kwargs))
        self.wrappers = wrappers
        self._env: Env | None = None

    def build(self) -> Env:
        """Return the wrapped environment, built on the first call.

        Raises:
            GemError: The environment cannot be built, or shows images.
        """
        if self._env is None:
            env = self.source.make(self.wrappers)
            if env.shows_images:
                env.close()
                raise ConfigError(f"{self.source.label} shows images, but {NO_IMAGES}")
            self._env = env
        return self._env

    def reset(self, seed: int | None = None) -> tuple[str, dict[str, Any]]:
        """Return an empty observation, with the first one of the episode as ``env_instruction``.

        Consecutive seeds play different items of `split`, in the same order for every environment.
        """
        env = self.build()
        items = env.items(self.split)
        options: ResetOptions | None = None
        if items is not None and seed is not None:
            options = {"index": items[Order(len(items), 0)[seed % len(items)]]}
        observation, info = env.reset(seed=seed, options=options)
        return "", {"env_instruction": _shown(observation, info), "metrics": {}}

    def step(self, action: str) -> tuple[str, float, bool, bool, dict[str, Any]]:
        """Step with a response, without the special tokens at its end."""
        observation, reward, terminated, truncated, info = self.build().step(_END.sub("", action))
        invalid = info.get("invalid")
        metrics = {"action_is_valid": float(invalid is None), "format_error": float(invalid == "format")}
        if "success" in info:
            metrics["success"] = float(info["success"])
        own = {name: float(value) for name, value in (info.get("metrics") or {}).items() if value is not None}
        cleaned = {
            "metrics": own | metrics,
            "metrics_agg_mode": dict.fromkeys([*own, "success"], "last"),
        }
        shown = _shown(observation, info)
        return shown, float(reward), bool(terminated or truncated), bool(truncated), cleaned

    def close(self) -> None:
        """Close the environment, if it was built."""
        if self._env is not None:
            self._env.close()


def register(env_id: str) -> str:
    """Register one of our environments with `gem.make`, unless it is registered already.

    Returns:
        The name in `gem.make`: `PREFIX` and the id.

    Raises:
        UnknownEnv: There is no such environment; the message holds the closest ones.
        UnsupportedTrainer: gem-llm is missing, or lacks the expected registry.
    """
    spec(env_id)
    try:
        import gem
        from gem.envs.registration import ENV_REGISTRY
    except ImportError as error:
        raise UnsupportedTrainer(f"gem_roll: ROLL's environments need gem-llm: {error}") from error
    name = PREFIX + env_id
    with _registering:
        if name not in ENV_REGISTRY:
            gem.register(name, entry_point="gem_roll.env:GemEnv", gem_core_id=env_id)
    return name


def read_env_type(env_type: object, where: str) -> str:
    """Return the environment id in an ``env_type`` of a YAML.

    Raises:
        ConfigError: The ``env_type`` names an environment of gem-llm or ROLL.
    """
    text = str(env_type)
    if not text.startswith(PREFIX):
        raise ConfigError(
            f"{where}={text} is not an environment of gem-core; write {PREFIX}<id>, such as "
            f"{PREFIX}game:GuessTheNumber-v0-easy"
        )
    return text.removeprefix(PREFIX)


def _shown(observation: Observation, info: Any) -> str:
    return observation_text(render_observation(observation, info))


def plain(value: Any) -> Any:
    """Convert OmegaConf containers in a value of a YAML to plain ones."""
    if isinstance(value, Mapping):
        return {str(key): plain(item) for key, item in value.items()}
    if isinstance(value, Sequence) and not isinstance(value, str):
        return [plain(item) for item in value]
    return value

"""The ``env_type`` of a tag, and the object that ROLL's constructor creates for it.

ROLL's env managers create their environment with gem-llm's `gem.make`. The managers in `gem_roll._managers`
play an environment of gem-core instead, so `gem.make` only creates a placeholder. Does not need ROLL.
"""

from __future__ import annotations

from types import SimpleNamespace

from gem_core.errors import ConfigError, UnsupportedTrainer

PREFIX = "gem_core:"
NO_IMAGES = "ROLL's env managers support text only; train on it with verl, OpenRLHF, or `gem-core train`"


def register_placeholder() -> str:
    """Register an object without methods with `gem.make`, and return its name.

    Raises:
        UnsupportedTrainer: gem-llm is missing, or lacks the expected registry.
    """
    try:
        from gem.envs.registration import ENV_REGISTRY, EnvSpec
    except ImportError as error:
        raise UnsupportedTrainer(f"gem_roll: ROLL's environments need gem-llm: {error}") from error
    name = f"{PREFIX}placeholder"
    # Not `gem.register`, which rejects a repeated name: ROLL creates the env managers of a worker in threads.
    ENV_REGISTRY[name] = EnvSpec(name, SimpleNamespace)
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

"""Composes RL2's own config with overrides, like its command line."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from gem_rl2 import _ENV_PATH
from gem_rl2._upstream import Upstream, find
from hydra import compose, initialize_config_dir


def folder() -> Path:
    """Return the config folder of the imported RL2."""
    import RL2.datasets

    return Path(RL2.datasets.__file__).parents[1] / "trainer" / "config"


def compose_config(*overrides: str, place: Path | None = None) -> Any:
    with initialize_config_dir(str(place or folder()), version_base=None):
        return compose("ppo", list(overrides))


def gem_config(*overrides: str) -> tuple[Any, Upstream]:
    """Return a config for the imported version that passes every check, with overrides."""
    upstream = find()
    words = ["adv.estimator=rebn", "adv.gamma=0.9", f"rollout.env_path={_ENV_PATH}", "actor.model_name=model"]
    words += ["actor.max_length_per_device=1024"]
    if upstream.is_index:
        words += [
            "train_data.path=org/tasks",
            "test_data.path=org/tasks",
            "train_data.prompts_per_rollout=8",
            "rollout.max_turns=8",
            "+rollout.train_sampling_params.skip_special_tokens=false",
            "+rollout.test_sampling_params.skip_special_tokens=false",
        ]
    else:
        words += [
            "rollout.train.path=org/tasks",
            "rollout.train.prompts_per_rollout=8",
            "trainer.total_steps=3",
        ]
    own = {word.lstrip("+").split("=", 1)[0] for word in overrides}
    return compose_config(*[w for w in words if w.lstrip("+").split("=")[0] not in own], *overrides), upstream

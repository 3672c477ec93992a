"""The env managers that a ROLL config names, and whether their episodes have several rows."""

from __future__ import annotations

import importlib
from typing import Any

from gem_core._util.messages import error_line, unknown
from gem_core.errors import ConfigError

SECTION = "gem"
"""The key of ``custom_envs`` with GEM's options; all other keys are tags of environments."""

OURS = TRAJECTORY, STEP = "gem_roll.GemTrajEnvManager", "gem_roll.GemStepEnvManager"
_ROLL = "roll.pipeline.agentic.env_manager"
_DEFAULT = f"{_ROLL}.traj_env_manager.TrajEnvManager"
_PROXIES = ("openai", "random")
"""ROLL's LLM proxies that do not sample from the model that is trained."""


def managers_of(config: Any) -> dict[str, type]:
    """Return the env managers of all tags by their dotted paths.

    Raises:
        ConfigError: A manager cannot be imported, which ROLL would report without the cause; or it samples
            from another model.
    """
    managers = {}
    for name in ("train_env_manager", "val_env_manager"):
        section = getattr(config, name)
        for tag in section.tags:
            path = tag_section(config, tag)["env_manager_cls"]
            managers[path] = load_class(path, f"custom_envs.{tag}.env_manager_cls")
            if path in OURS and section.llm_proxy.proxy_type in _PROXIES:
                raise ConfigError(
                    f"{name}.llm_proxy.proxy_type={section.llm_proxy.proxy_type}: {path} needs the tokens "
                    "and log-probs of ROLL's own engine; leave it at policy"
                )
    return managers


def has_several_rows(manager: type) -> bool | None:
    """Return whether an episode of an env manager may have several rows.

    Returns:
        None if the manager is neither ours nor ROLL's for text: ROLL's subclasses for other kinds of episodes
        may return either.
    """
    several: bool | None = getattr(manager, "several_rows", None)
    if several is not None:
        return several
    step = load_class(f"{_ROLL}.step_env_manager.StepEnvManager", "ROLL")
    if issubclass(manager, step):
        return True
    pack = "formulate_rollouts"
    return False if getattr(manager, pack, None) is getattr(load_class(_DEFAULT, "ROLL"), pack) else None


def tag_section(config: Any, tag: str) -> dict[str, Any]:
    """Return ``custom_envs.<tag>`` with its env manager, without OmegaConf's containers.

    Raises:
        ConfigError: There is no such tag.
    """
    from omegaconf import OmegaConf

    known = [name for name in config.custom_envs if name != SECTION]
    if tag not in known:
        raise ConfigError(unknown("tag", tag, known, owner="custom_envs"))
    section: Any = OmegaConf.to_container(config.custom_envs[tag])
    return {"env_manager_cls": _DEFAULT, **section}


def load_class(path: str, where: str) -> Any:
    """Return the class with a dotted path.

    Raises:
        ConfigError: It cannot be imported; the message begins with `where`.
    """
    module, _, name = path.rpartition(".")
    try:
        return getattr(importlib.import_module(module), name)
    except Exception as error:  # importing a module can raise anything
        raise ConfigError(f"{where}: cannot import {path}: {error_line(error)}") from error

"""Installs gem_core's estimators in OpenRLHF's trainer process, as Ray's ``worker_process_setup_hook``.

    ray job submit --runtime-env-json='{"worker_process_setup_hook": "gem_openrlhf.hooks.setup",
        "env_vars": {"GEM_OPENRLHF": "{\\"estimator\\": \\"rebn\\"}"}}' \\
        -- python -m openrlhf.cli.train_ppo_ray ...

`gem_openrlhf.train_ppo_ray` does this automatically. The hook replaces a few functions of OpenRLHF in the
processes that import them.
"""

from __future__ import annotations

import importlib
from collections.abc import Iterator
from types import ModuleType
from typing import Any

from gem_core._util.entry_points import load_attribute
from gem_core.trainers import after_import
from gem_core.trainers._interface import expect_same, find
from gem_openrlhf import _SUPPORTED

WRAPPERS = {
    "openrlhf.trainer.ppo_trainer": {
        "RemoteExperienceMaker": "gem_openrlhf._experience_maker:GemExperienceMaker",
        "compute_eval_metrics": "gem_openrlhf._failures:eval_metrics",
        "prepare_datasets": "gem_openrlhf._dataset:prepare_datasets",
        "BasePPOTrainer._compute_rollout_stats": "gem_openrlhf._failures:rollout_stats",
    },
    "openrlhf.trainer.ppo_utils.samples_generator": {
        "SamplesGenerator._generate_vllm": "gem_openrlhf._failures:generate",
        "SamplesGenerator._process_response_into_experience": "gem_openrlhf._failures:process_response",
    },
    "openrlhf.trainer.ray.ppo_actor": {
        "ActorPPOTrainer.ppo_train": "gem_openrlhf._rows:actor_updates",
        "ActorPPOTrainer.training_step": "gem_openrlhf._failures:actor_step",
    },
    "openrlhf.trainer.ray.ppo_critic": {
        "CriticPPOTrainer.training_step": "gem_openrlhf._failures:critic_step"
    },
}
"""Replacements in each module of OpenRLHF: for a class, a subclass from this package; for a function, the
result of a function of this package that takes the original."""


_set_up = False


def is_set_up() -> bool:
    """Return whether `setup` ran in this process, as it does in all processes of a run or in none."""
    return _set_up


def setup() -> None:
    """Replace functions in OpenRLHF's modules as soon as the modules are imported."""
    global _set_up
    _set_up = True
    for name in WRAPPERS:
        after_import(name, install)


def check_interface() -> None:
    """Check, before any model is loaded, all functions that will be replaced in Ray's workers.

    Raises:
        UnsupportedTrainer: A function is missing or has other parameters.
    """
    for name in WRAPPERS:
        list(_replacements(importlib.import_module(name)))


def install(module: ModuleType) -> None:
    """Replace the functions of one of OpenRLHF's modules.

    Raises:
        UnsupportedTrainer: This version of OpenRLHF has another interface.
    """
    _SUPPORTED.require()
    for path, replacement in [*_replacements(module)]:
        owner, _, name = path.rpartition(".")
        setattr(find(module, owner) if owner else module, name, replacement)


def _replacements(module: ModuleType) -> Iterator[tuple[str, Any]]:
    """Yield the path and the replacement of each function, after checking its parameters."""
    for path, wrapper in WRAPPERS[module.__name__].items():
        loaded = load_attribute("gem_openrlhf", wrapper)
        replacement = loaded if isinstance(loaded, type) else loaded(find(module, path))
        expect_same(_SUPPORTED, module, path, replacement)
        yield path, replacement

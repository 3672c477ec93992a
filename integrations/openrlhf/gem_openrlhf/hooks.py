"""Gets gem_core's estimators into OpenRLHF's trainer process, as Ray's ``worker_process_setup_hook``.

    ray job submit --runtime-env-json='{"worker_process_setup_hook": "gem_openrlhf.hooks.setup",
        "env_vars": {"GEM_OPENRLHF": "{\\"estimator\\": \\"rebn\\"}"}}' \\
        -- python -m openrlhf.cli.train_ppo_ray ...

`gem_openrlhf.train_ppo_ray` does that automatically. The hook replaces a few functions of OpenRLHF in the
processes that import them.
"""

from __future__ import annotations

import functools
import importlib
from collections import defaultdict
from types import ModuleType
from typing import Any

from gem_core.eval.summary import evaluation_metrics
from gem_core.rollout import Episode
from gem_core.trainers.imports import after_import
from gem_core.trainers.interface import expect
from gem_openrlhf import SUPPORTED
from gem_openrlhf.labels import played_of

MODULE = "openrlhf.trainer.ppo_trainer"
GENERATOR = "openrlhf.trainer.ppo_utils.samples_generator"
ACTOR = "openrlhf.trainer.ray.ppo_actor"
CRITIC = "openrlhf.trainer.ray.ppo_critic"

INTERFACE: dict[str, dict[str, tuple[str, ...]]] = {
    MODULE: {
        "RemoteExperienceMaker.compute_advantages_and_returns": ("self", "experiences"),
        "compute_eval_metrics": ("eval_dataloader", "samples_list", "n_samples_per_prompt"),
        "BasePPOTrainer._compute_rollout_stats": ("self", "experiences"),
    },
    GENERATOR: {
        "SamplesGenerator._generate_vllm": (
            "self",
            "dataloader_iter",
            "num_prompts",
            "dynamic_filtering",
            "generate_kwargs",
        ),
        "SamplesGenerator._process_response_into_experience": ("self", "response", "generate_kwargs"),
    },
    ACTOR: {"ActorPPOTrainer.training_step": ("self", "experience", "kl_ctl", "step", "loss_batch_info")},
    CRITIC: {"CriticPPOTrainer.training_step": ("self", "experience", "step", "loss_batch_info")},
}
"""The replaced functions of OpenRLHF and their parameters, by module."""


def setup() -> None:
    """Replace functions in OpenRLHF's modules as soon as these are imported."""
    after_import(MODULE, install)
    after_import(GENERATOR, install_generator)
    after_import(ACTOR, install_actor)
    after_import(CRITIC, install_critic)


def check_interface() -> None:
    """Check, before any model is loaded, all functions that will be replaced in Ray's workers.

    Raises:
        UnsupportedTrainer: A function is missing or has other parameters.
    """
    for name in INTERFACE:
        _check(importlib.import_module(name), name)


def install(module: ModuleType) -> None:
    """Replace the experience maker and the metrics of rollouts and evaluations in OpenRLHF's `module`.

    Raises:
        UnsupportedTrainer: This version of OpenRLHF has another interface.
    """
    SUPPORTED.require()
    _check(module, MODULE)
    from gem_openrlhf.experience_maker import GemExperienceMaker
    from gem_openrlhf.failures import rollout_stats

    changed: Any = module
    changed.RemoteExperienceMaker = GemExperienceMaker
    changed.compute_eval_metrics = functools.partial(_eval_metrics, changed.compute_eval_metrics)
    trainer = changed.BasePPOTrainer
    trainer._compute_rollout_stats = rollout_stats(trainer._compute_rollout_stats)


def install_generator(module: ModuleType) -> None:
    """Keep failed episodes out of the dynamic filtering of OpenRLHF's `module`.

    Raises:
        UnsupportedTrainer: As `install`.
    """
    _check(module, GENERATOR)
    from gem_openrlhf.failures import generate, process_response

    kind: Any = module.SamplesGenerator
    kind._generate_vllm = generate(kind._generate_vllm)
    kind._process_response_into_experience = process_response(kind._process_response_into_experience)


def install_actor(module: ModuleType) -> None:
    """Keep failed episodes out of the updates of the actor in OpenRLHF's `module`.

    Raises:
        UnsupportedTrainer: As `install`.
    """
    _check(module, ACTOR)
    from gem_openrlhf.failures import actor_step

    module.ActorPPOTrainer.training_step = actor_step(module.ActorPPOTrainer.training_step)


def install_critic(module: ModuleType) -> None:
    """Keep failed episodes out of the updates of the critic in OpenRLHF's `module`.

    Raises:
        UnsupportedTrainer: As `install`.
    """
    _check(module, CRITIC)
    from gem_openrlhf.failures import critic_step

    module.CriticPPOTrainer.training_step = critic_step(module.CriticPPOTrainer.training_step)


def _check(module: ModuleType, name: str) -> None:
    for path, parameters in INTERFACE[name].items():
        expect(SUPPORTED, module, path, *parameters)


def _eval_metrics(
    original: Any, eval_dataloader: Any, samples_list: Any, n_samples_per_prompt: int
) -> dict[str, Any]:
    """Add metrics of each environment's episodes to OpenRLHF's, ``eval_<environment>_gem/success``."""
    from gem_openrlhf.failures import eval_samples

    scored = eval_samples(samples_list, n_samples_per_prompt)
    logs = dict(original(eval_dataloader, scored, n_samples_per_prompt))
    episodes: defaultdict[str, list[Episode]] = defaultdict(list)
    for played in (played_of(label) for sample in samples_list for label in sample.labels):
        if played is not None:
            episodes[played.source].append(played.episode)
    for source, of_source in episodes.items():
        logs |= {f"eval_{source}_{name}": value for name, value in evaluation_metrics(of_source).items()}
    return logs

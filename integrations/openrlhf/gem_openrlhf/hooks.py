"""Gets gem_core's estimators into OpenRLHF's trainer process, as Ray's ``worker_process_setup_hook``.

    ray job submit --runtime-env-json='{"worker_process_setup_hook": "gem_openrlhf.hooks.setup",
        "env_vars": {"GEM_OPENRLHF": "{\\"estimator\\": \\"rebn\\"}"}}' \\
        -- python -m openrlhf.cli.train_ppo_ray ...

`gem_openrlhf.train_ppo_ray` does that by itself. A few functions of OpenRLHF are replaced, in those
processes that import them; everything else stays what it is.
"""

from __future__ import annotations

import functools
import inspect
from collections import defaultdict
from types import ModuleType
from typing import Any

from gem_core.errors import UnsupportedTrainer
from gem_core.eval.summary import evaluation_metrics
from gem_core.rollout import Episode
from gem_core.trainers.imports import after_import
from gem_openrlhf import SUPPORTED
from gem_openrlhf.labels import played_of

MODULE = "openrlhf.trainer.ppo_trainer"


def setup() -> None:
    """Replace what GEM needs in OpenRLHF's modules, once they are imported."""
    after_import(MODULE, install)
    after_import("openrlhf.trainer.ppo_utils.samples_generator", install_generator)
    after_import("openrlhf.trainer.ray.ppo_actor", install_actor)
    after_import("openrlhf.trainer.ray.ppo_critic", install_critic)


def install(module: ModuleType) -> None:
    """Replace the experience maker and the metrics of rollouts and evaluations in OpenRLHF's `module`.

    Raises:
        UnsupportedTrainer: This version of OpenRLHF has another interface; names the supported ones.
    """
    SUPPORTED.require()
    expected = {
        "RemoteExperienceMaker.compute_advantages_and_returns": ("self", "experiences"),
        "compute_eval_metrics": ("eval_dataloader", "samples_list", "n_samples_per_prompt"),
        "BasePPOTrainer._compute_rollout_stats": ("self", "experiences"),
    }
    for path, parameters in expected.items():
        _expect(module, path, parameters)
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
    arguments = ("self", "dataloader_iter", "num_prompts", "dynamic_filtering", "generate_kwargs")
    _expect(module, "SamplesGenerator._generate_vllm", arguments)
    processing = "SamplesGenerator._process_response_into_experience"
    _expect(module, processing, ("self", "response", "generate_kwargs"))
    from gem_openrlhf.failures import generate, process_response

    kind: Any = module.SamplesGenerator
    kind._generate_vllm = generate(kind._generate_vllm)
    kind._process_response_into_experience = process_response(kind._process_response_into_experience)


def install_actor(module: ModuleType) -> None:
    """Keep failed episodes out of the updates of the actor in OpenRLHF's `module`.

    Raises:
        UnsupportedTrainer: As `install`.
    """
    arguments = ("self", "experience", "kl_ctl", "step", "loss_batch_info")
    step = _expect(module, "ActorPPOTrainer.training_step", arguments)
    from gem_openrlhf.failures import actor_step

    module.ActorPPOTrainer.training_step = actor_step(step)


def install_critic(module: ModuleType) -> None:
    """Keep failed episodes out of the updates of the critic in OpenRLHF's `module`.

    Raises:
        UnsupportedTrainer: As `install`.
    """
    arguments = ("self", "experience", "step", "loss_batch_info")
    step = _expect(module, "CriticPPOTrainer.training_step", arguments)
    from gem_openrlhf.failures import critic_step

    module.CriticPPOTrainer.training_step = critic_step(step)


def _expect(module: ModuleType, path: str, parameters: tuple[str, ...]) -> Any:
    """The function behind a dotted path, if it has these parameters.

    Raises:
        UnsupportedTrainer: It is missing or has others; names the supported versions of OpenRLHF.
    """
    function: Any = module
    for name in path.split("."):
        function = getattr(function, name, None)
    found = () if function is None else inspect.signature(function).parameters
    if tuple(name for name in found if name != "_ray_trace_ctx") != parameters:  # Ray adds that one
        raise UnsupportedTrainer(
            f"{module.__name__}.{path} is not the function with the "
            f"arguments ({', '.join(parameters)}) that gem_openrlhf replaces; supported versions of "
            f"OpenRLHF: {SUPPORTED.versions}"
        )
    return function


def _eval_metrics(
    original: Any, eval_dataloader: Any, samples_list: Any, n_samples_per_prompt: int
) -> dict[str, Any]:
    """OpenRLHF's metrics and those of each environment's episodes, ``eval_<environment>_gem/success``."""
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

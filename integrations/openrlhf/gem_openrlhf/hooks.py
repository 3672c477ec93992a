"""Gets gem_core's estimators into OpenRLHF's trainer process, as Ray's ``worker_process_setup_hook``.

    ray job submit --runtime-env-json='{"worker_process_setup_hook": "gem_openrlhf.hooks.setup",
        "env_vars": {"GEM_OPENRLHF": "{\\"estimator\\": \\"rebn\\"}"}}' \\
        -- python -m openrlhf.cli.train_ppo_ray ...

`gem_openrlhf.train_ppo_ray` does that by itself. Two names of one module of OpenRLHF are replaced, in
those processes that import it; everything else stays what it is.
"""

from __future__ import annotations

import functools
import inspect
from collections import defaultdict
from types import ModuleType
from typing import Any

from gem_core.errors import UnsupportedTrainer
from gem_core.eval.summary import evaluation_metrics
from gem_core.integration import after_import
from gem_core.rollout import Episode
from gem_openrlhf import SUPPORTED
from gem_openrlhf.labels import played_of

MODULE = "openrlhf.trainer.ppo_trainer"


def setup() -> None:
    """Replace the two names once the module is imported."""
    after_import(MODULE, install)


def install(module: ModuleType) -> None:
    """Replace the experience maker and the evaluation's metrics in OpenRLHF's `module`.

    Raises:
        UnsupportedTrainer: This version of OpenRLHF has another interface; names the supported ones.
    """
    SUPPORTED.require()
    expected = {
        "RemoteExperienceMaker.make_experience_batch": ("self", "rollout_samples"),
        "RemoteExperienceMaker.compute_advantages_and_returns": ("self", "experiences"),
        "compute_eval_metrics": ("eval_dataloader", "samples_list", "n_samples_per_prompt"),
    }
    for path, parameters in expected.items():
        found: Any = module
        for name in path.split("."):
            found = getattr(found, name, None)
        if found is None or tuple(inspect.signature(found).parameters) != parameters:
            raise UnsupportedTrainer(
                f"{MODULE}.{path} is not the function with the arguments ({', '.join(parameters)}) that "
                f"gem_openrlhf replaces; supported versions of OpenRLHF: {SUPPORTED.versions}"
            )
    from gem_openrlhf.experience_maker import GemExperienceMaker

    changed: Any = module
    changed.RemoteExperienceMaker = GemExperienceMaker
    changed.compute_eval_metrics = functools.partial(_eval_metrics, changed.compute_eval_metrics)


def _eval_metrics(original: Any, eval_dataloader: Any, samples_list: Any, *args: Any, **kwargs: Any) -> Any:
    """OpenRLHF's metrics and those of each environment's episodes, ``eval_<environment>_gem/success``."""
    logs = original(eval_dataloader, samples_list, *args, **kwargs)
    episodes: defaultdict[str, list[Episode]] = defaultdict(list)
    for played in (played_of(label) for sample in samples_list for label in sample.labels):
        if played is not None:
            episodes[played.source].append(played.episode)
    for source, of_source in episodes.items():
        logs |= {f"eval_{source}_{name}": value for name, value in evaluation_metrics(of_source).items()}
    return logs

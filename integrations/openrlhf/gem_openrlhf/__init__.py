"""GEM environments and ReBN inside an unmodified OpenRLHF.

    python -m gem_openrlhf.train_ppo_ray <OpenRLHF's flags> --algo.advantage.estimator rebn \\
        --train.agent_func_path $(gem-core path openrlhf-agent) ...

An agent file of your own may subclass `GemExecutor`; this module needs no OpenRLHF until then.
"""

from __future__ import annotations

import importlib

from gem_core.trainers.plugin import SupportedTrainer, TrainerPlugin

SUPPORTED = SupportedTrainer(
    name="OpenRLHF",
    package="gem_openrlhf",
    distribution="openrlhf",
    minimum="0.11.0",
    below="0.12",
    hook=(
        "python -m gem_openrlhf.train_ppo_ray, or gem_openrlhf.hooks.setup as Ray's worker_process_setup_hook"
    ),
    hook_modules=("gem_openrlhf.train_ppo_ray", "gem_openrlhf.hooks", "gem_openrlhf.agent"),
)
TRAINER = TrainerPlugin(
    SUPPORTED,
    exporter="gem_openrlhf.export:write",
    recipe_writer="gem_openrlhf.repro:write",
    files={"agent": "gem_openrlhf.agent"},
)

_HOMES = {"GemExecutor": "executor", "GemExperienceMaker": "experience_maker"}


def __getattr__(name: str) -> object:
    if name.startswith("__"):
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    SUPPORTED.require()
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}; it has {', '.join(_HOMES)}")
    return getattr(importlib.import_module(f"{__name__}.{_HOMES[name]}"), name)

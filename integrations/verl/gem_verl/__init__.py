"""GEM environments and ReBN inside an unmodified verl.

    python -m verl.trainer.main_ppo <your config> algorithm.adv_estimator=rebn \\
        +actor_rollout_ref.rollout.agent.agent_loop_manager_class=gem_verl.GemAgentLoopManager ...

The classes that a config names are imported when verl asks for them; this module needs no verl.
"""

from __future__ import annotations

import importlib

from gem_core.trainers.plugin import SupportedTrainer, TrainerPlugin

SUPPORTED = SupportedTrainer(
    name="verl",
    package="gem_verl",
    distribution="verl",
    minimum="0.9",
    below="0.10",
    hook='the "verl.plugins" entry point, and class names in the config',
    hook_modules=("gem_verl.plugin", "gem_verl.dataset"),
    entry_point=("verl.plugins", "gem_core"),
    brought=(
        ("0.7", "rollout.agent.agent_loop_manager_class"),
        ("0.8", "reward per token in the output of an agent loop"),
        ("0.9", "v1 trainer to register a mode with"),
    ),
)
TRAINER = TrainerPlugin(SUPPORTED, exporter="gem_verl.export:write", recipe_writer="gem_verl.repro:write")

_HOMES = {
    "GemAgentLoop": "loop",
    "GemAgentLoopManager": "manager",
    "GemDataset": "dataset",
    "GemTrainerSync": "trainer",
}


def __getattr__(name: str) -> object:
    if name.startswith("__"):
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    SUPPORTED.require()
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}; it has {', '.join(_HOMES)}")
    return getattr(importlib.import_module(f"{__name__}.{_HOMES[name]}"), name)

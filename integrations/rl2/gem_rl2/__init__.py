"""GEM environments and ReBN inside an unmodified RL2.

    torchrun --nproc_per_node=8 -m gem_rl2.train <your config> adv.estimator=rebn adv.gamma=0.9

Two versions of RL2 are in use, both numbered 0.0.2: the version on the package index, whose environments have
``reset`` and ``step``, and the newer source tree, whose environments have ``generate``. `gem_rl2._upstream`
distinguishes them.
"""

from __future__ import annotations

from pathlib import Path

from gem_core.trainers import SupportedTrainer, TrainerPlugin

__all__ = [
    "TRAINER",
]

_ENV_PATH = str(Path(__file__).with_name("env.py"))
"""Value of ``rollout.env_path``, which `gem_rl2.train` sets."""

_SUPPORTED = SupportedTrainer(
    name="RL2",
    package="gem_rl2",
    distribution="rl-square",
    versions=">=0.0.2,<0.0.3",
    hook="python -m gem_rl2.train under torchrun",
    home_variable="RL2_HOME",
    hook_modules=("gem_rl2.train", "gem_rl2.env"),
    own_estimators=("gae", "reinforce"),
    supplies=("group_ids", "lengths"),
)
TRAINER = TrainerPlugin(
    _SUPPORTED,
    exporter="gem_rl2._rows:write",
    recipe_writer="gem_rl2._repro:write",
    preflight="gem_rl2._train:check",
    conform="gem_rl2._conform:estimators",
)

"""GEM environments and ReBN inside an unmodified RL2.

    torchrun --nproc_per_node=8 -m gem_rl2.train <your config> adv.estimator=rebn adv.gamma=0.9

With RL2's own command, set ``rollout.env_path`` to the file `ENV_PATH`, which also installs the estimators.
Two versions of RL2 are in use, both numbered 0.0.2: the version on the package index, whose environments have
``reset`` and ``step``, and the newer source tree, whose environments have ``generate``. `gem_rl2.upstream`
distinguishes them.
"""

from __future__ import annotations

from pathlib import Path

from gem_core.trainers.exports import lazy_exports
from gem_core.trainers.plugin import SupportedTrainer, TrainerPlugin

ENV_PATH = str(Path(__file__).with_name("env.py"))
"""Value for ``rollout.env_path``; `gem-core path rl2-env` prints it."""

SUPPORTED = SupportedTrainer(
    name="RL2",
    package="gem_rl2",
    distribution="rl-square",
    minimum="0.0.2",
    below="0.0.3",
    hook="python -m gem_rl2.train under torchrun, or rollout.env_path=$(gem-core path rl2-env)",
    home_variable="RL2_HOME",
    hook_modules=("gem_rl2.train", "gem_rl2.env"),
)
TRAINER = TrainerPlugin(
    SUPPORTED,
    exporter="gem_rl2.export:write",
    recipe_writer="gem_rl2.repro:write",
    files={"env": "gem_rl2.env"},
    preflight="gem_rl2.train:check",
)

__getattr__, __dir__ = lazy_exports(SUPPORTED, {})

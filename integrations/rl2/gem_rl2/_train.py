"""RL2's own trainer with GEM activated.

    torchrun --nproc_per_node=8 -m gem_rl2.train <RL2's overrides> adv.estimator=rebn adv.gamma=0.9

The config is RL2's, with ``rollout.env_path`` set to `gem_rl2._ENV_PATH` unless you set it. An unsupported
setting is reported in one line before a model is loaded.
"""

from __future__ import annotations

import importlib
from pathlib import Path
from typing import Any

from gem_core._util.checks import expected
from gem_core.trainers import Plan
from gem_core.trainers._plugin import errors_in_one_line
from gem_lab._hydra import compose_job, read_flags
from gem_rl2 import _SUPPORTED
from gem_rl2._activation import activate
from gem_rl2._options import check_added, check_config, prepare
from gem_rl2._plan import plan_of
from gem_rl2._upstream import find


def check(arguments: list[str]) -> Plan:
    """Check the arguments of this command without starting a run, and return what the run would do.

    Raises:
        Exception: A run would reject them.
    """
    from omegaconf import OmegaConf

    upstream = find()
    folder = Path(upstream.algorithms.__file__ or "").parents[1] / "trainer" / "config"
    flags = read_flags(arguments)
    if "://" not in (place := flags.config_path or str(folder)) and not Path(place).is_absolute():
        raise expected("--config-path", place, "a whole path, because hydra looks for others beside gem_rl2")
    config, base = (compose_job(folder, "ppo", flags, words)[0] for words in (flags.overrides, ()))
    check_added(flags.overrides, config, base, upstream)
    OmegaConf.resolve(config)
    prepare(config, upstream)
    check_config(config, upstream)
    return plan_of(config, upstream)


def main() -> None:
    """Check the config and run RL2's `main` with it."""
    with errors_in_one_line(_SUPPORTED):
        upstream = find()
    import hydra
    from hydra.core.hydra_config import HydraConfig

    ppo: Any = importlib.import_module("RL2.trainer.ppo")

    def run(config: Any) -> None:
        with errors_in_one_line(_SUPPORTED):
            chosen = HydraConfig.get()
            check_added(chosen.overrides.task, config, hydra.compose(chosen.job.config_name), upstream)
            prepare(config, upstream)
            activate(config, upstream)
        ppo.main.__wrapped__(config)  # the function inside hydra's decorator

    folder = str(Path(ppo.__file__).parent / "config")
    hydra.main(config_path=folder, config_name="ppo", version_base=None)(run)()

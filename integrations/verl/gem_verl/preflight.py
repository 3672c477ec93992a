"""Checks of a verl command for ``gem-core doctor --trainer verl -- OVERRIDES``, without Ray or a model."""

from __future__ import annotations

from pathlib import Path

import verl.trainer
from verl.trainer.ppo.utils import create_rl_dataset, need_critic, need_reference_policy
from verl.trainer.ppo.v1 import get_trainer_cls
from verl.utils.config import validate_config
from verl.utils.import_utils import load_class_from_fqn

from gem_core.trainers.options import compose_config, option_at
from gem_verl.dataset import check_dataset
from gem_verl.options import MANAGER, check_config


def check(overrides: list[str]) -> None:
    """Check the overrides of ``python -m verl.trainer.main_ppo``, and the rows of its data.

    Raises:
        Exception: A run would reject them.
    """
    config = compose_config(Path(verl.trainer.__file__).parent / "config", "ppo_trainer", overrides)
    validate_config(config, need_reference_policy(config), need_critic(config))
    get_trainer_cls(config.trainer.v1.trainer_mode)
    if manager := option_at(config, MANAGER):
        load_class_from_fqn(manager, "AgentLoopManager")
    check_config(config)
    data = config.data
    data.filter_overlong_prompts = False  # filtering would need the tokenizer
    for split in ("train", "val"):
        limit = data.get(f"{split}_max_samples", -1)
        dataset = create_rl_dataset(data[f"{split}_files"], data, None, None, split == "train", limit)
        check_dataset(config, dataset, for_training=split == "train")

"""Checks of a verl command for ``gem-core doctor --trainer verl -- ARGUMENTS``, without Ray or a model."""

from __future__ import annotations

import copy
import os
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import verl.trainer
from hydra.core.utils import env_override
from omegaconf import OmegaConf
from omegaconf.errors import OmegaConfBaseException, UnsupportedInterpolationType
from verl.trainer.ppo.utils import create_rl_dataset, need_critic, need_reference_policy
from verl.trainer.ppo.v1 import get_trainer_cls
from verl.utils import hf_processor, hf_tokenizer
from verl.utils.config import validate_config
from verl.utils.import_utils import load_class_from_fqn, load_extern_type

from gem_core._util.messages import error_line, error_text
from gem_core.errors import ConfigError
from gem_core.trainers import Plan
from gem_core.trainers._options import option_at
from gem_lab._hydra import compose_job, read_flags
from gem_verl._dataset import explained
from gem_verl._options import check_chat, check_config
from gem_verl._plan import make_plan
from gem_verl._rows import AGENT_NAME


def check(arguments: list[str]) -> Plan:
    """Check the arguments of ``python -m verl.trainer.main_ppo``, and the rows of its data.

    Raises:
        Exception: A run would reject them, or lose rows.
    """
    files = Path(verl.trainer.__file__).parent / "config"
    flags = read_flags(arguments)
    config, job = compose_job(files, "ppo_trainer", flags, flags.overrides)
    _resolve(config, job.env_set)
    if not job.chdir:
        return check_composed(config)
    here = Path.cwd()
    with tempfile.TemporaryDirectory() as empty:
        os.chdir(empty)
        try:
            return check_composed(config)
        except Exception as error:
            where = "with hydra.job.chdir=True the run starts in a new folder, so write absolute paths"
            raise ConfigError(f"{error_text(error)}; {where}") from error
        finally:
            os.chdir(here)


def _resolve(config: Any, variables: Mapping[str, str]) -> None:
    """Resolve interpolations as verl's task runner does, another process than that of the command.

    It knows the environment variables that hydra sets, but none of hydra's resolvers.
    """
    for resolver in ("hydra", "now", "python_version"):
        OmegaConf.clear_resolver(resolver)  # hydra registers them again
    try:
        with env_override(dict(variables)):
            OmegaConf.to_container(config, resolve=True)  # its errors name the option
            OmegaConf.resolve(config)
    except OmegaConfBaseException as error:
        what = f"{error.full_key}: {error_line(error).partition(' full_key: ')[0]}"
        if isinstance(error, UnsupportedInterpolationType):
            what += (
                "; the process of the run that reads it knows no resolver of hydra, so let the shell insert "
                "such a value, as in trainer.experiment_name=$(date +%F)"
            )
        raise ConfigError(what) from error


def check_composed(config: Any) -> Plan:
    """Check a whole verl config without interpolations, as `check` does."""
    trainer = get_trainer_cls(config.trainer.v1.trainer_mode)
    check_config(config)
    validate_config(config, need_reference_policy(config), need_critic(config))
    sampler = option_at(config, "trainer.v1.sampler.custom_sampler", {})
    callback = config.trainer.get("checkpoint_callback_class")
    if callback:
        load_class_from_fqn(callback, "CheckpointCallback")
    if sampler.get("path") and sampler.get("name"):
        load_extern_type(sampler.path, sampler.name)
    elif not callback:  # the user's own classes may need Ray
        trainer(copy.deepcopy(config))  # it checks more of its options, and changes some
    data = config.data
    filters, data.filter_overlong_prompts = data.filter_overlong_prompts, False  # it would need the tokenizer
    with explained():
        train, val = (
            create_rl_dataset(
                data[f"{split}_files"],
                data,
                None,
                None,
                split == "train",
                data.get(f"{split}_max_samples", -1),
            )
            for split in ("train", "val")
        )
    data.filter_overlong_prompts = filters
    plan = make_plan(config, train, val)
    model = config.actor_rollout_ref.model
    if model.path.startswith(("/", "./", "../")) and not Path(model.path).exists():
        raise ConfigError(f"actor_rollout_ref.model.path={model.path}: there is no such folder")
    if Path(model.path).is_dir() and any(source.player == AGENT_NAME for source in plan.sources):
        trust = bool(model.get("trust_remote_code"))
        check_chat(
            config, *(load(model.path, trust_remote_code=trust) for load in (hf_tokenizer, hf_processor))
        )
    return plan

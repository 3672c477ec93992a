"""`gem-core repro --to roll`: a recipe as a YAML of ROLL's agentic pipeline, and the table of tasks."""

from __future__ import annotations

import os
from collections.abc import Sequence
from math import gcd
from pathlib import Path
from typing import Any

from gem_core._util.files import write_atomically
from gem_core.repro import ADAM_BETAS, Recipe, Verbatim, reject_unsupported, write_script
from gem_core.tasks import EnvChoice, make_tasks, write_tasks
from gem_roll.env import NO_IMAGES
from gem_roll.export import tag_names, tag_section, to_yaml
from gem_roll.options import ADV_ESTIMATOR, SECTION, STEP, TRAJECTORY

HERE = "${oc.env:GEM_REPRO,.}"
"""The folder of the recipe, as referred to in the YAML."""
BEFORE = """\
export GEM_REPRO="$PWD" ROLL_HOME="${ROLL_HOME:?set it to the checkout of ROLL}"
export PYTHONPATH="$ROLL_HOME:${PYTHONPATH:-}"
place=$(realpath --relative-to="$ROLL_HOME/examples" .)
cd "$ROLL_HOME\""""


def write(recipe: Recipe, folder: str | Path) -> list[str]:
    """Write ``run.yaml``, ``run.sh`` and ``tasks.jsonl``.

    Returns:
        The differences from the other trainers: with several environments, how they are mixed.

    Raises:
        ConfigError: ROLL has no equivalent of an option.
    """
    reject_unsupported("ROLL", recipe.images(NO_IMAGES))
    folder = Path(folder)
    sources = recipe.sources
    groups = _groups(recipe, sources)
    notes = ["Each step has the same number of tasks of each environment."] if len(sources) > 1 else []
    rows = [
        task
        for source, count in zip(sources, groups, strict=True)
        for task in make_tasks([source], recipe.steps * count, seed=recipe.seed)
    ]
    write_tasks(rows, folder / "tasks.jsonl")
    write_atomically(folder / "run.yaml", [to_yaml(_config(recipe, sources, groups))])
    lines = [["--config_path", Verbatim('"$place"')], ["--config_name", "run"]]
    command = "python examples/start_agentic_pipeline.py"
    write_script(folder / "run.sh", command, lines, notes=notes, before=BEFORE)
    return notes


def _groups(recipe: Recipe, sources: Sequence[EnvChoice]) -> list[int]:
    """Return the tasks per step of each environment; ROLL assigns each a fixed number of groups."""
    total = sum(source.weight for source in sources)
    shares = [recipe.tasks_per_step * source.weight / total for source in sources]
    if any(abs(share - round(share)) > 1e-9 or round(share) < 1 for share in shares):
        shown = ", ".join(f"{share:g}" for share in shares)
        why = f"ROLL gives each environment a whole number of the tasks of a step, not {shown}"
        reject_unsupported("ROLL", {"env": why})
    return [round(share) for share in shares]


def _config(recipe: Recipe, sources: Sequence[EnvChoice], groups: Sequence[int]) -> dict[str, Any]:
    per_gpu = recipe.episodes_per_update // recipe.gpus
    micro = gcd(per_gpu, 4)
    devices = f"list(range(0,{recipe.gpus}))"
    dtype, attention = "bf16", {"attn_implementation": "fa2"}
    tags = tag_names([source.label for source in sources])
    return {
        "hydra": {"run": {"dir": "."}, "output_subdir": None},
        "pipeline_cls": "gem_roll.ReBNAgenticPipeline",
        "adv_estimator": ADV_ESTIMATOR,
        "gamma": recipe.gamma,
        "exp_name": "gem_repro",
        "seed": recipe.seed,
        "logging_dir": f"{HERE}/logs",
        "output_dir": f"{HERE}/model",
        "track_with": "tensorboard",
        "tracker_kwargs": {"log_dir": f"{HERE}/tensorboard"},
        "num_gpus_per_node": recipe.gpus,
        "max_steps": recipe.steps,
        "save_steps": recipe.steps,
        "logging_steps": 1,
        "eval_steps": -1,
        "rollout_batch_size": recipe.episodes_per_step,
        "val_batch_size": len(tags),
        "sequence_length": recipe.max_tokens,
        "ppo_epochs": 1,
        "pg_clip": 0.2,
        "loss_agg_mode": "token-mean",
        "max_grad_norm": 1.0,
        "init_kl_coef": 0.0,
        "whiten_advantages": False,
        "entropy_loss_coef": 0,
        "pretrain": recipe.model,
        "reward_pretrain": recipe.model,
        "actor_train": {
            "model_args": {**attention, "disable_gradient_checkpointing": False, "dtype": dtype},
            "training_args": {
                "learning_rate": recipe.learning_rate,
                "weight_decay": 0,
                "adam_beta1": ADAM_BETAS[0],
                "adam_beta2": ADAM_BETAS[1],
                "per_device_train_batch_size": micro,
                "gradient_accumulation_steps": per_gpu // micro,
                "warmup_steps": 0,
                "lr_scheduler_type": "constant",
            },
            "strategy_args": {
                "strategy_name": "fsdp2_train",
                "strategy_config": {
                    "fsdp_size": recipe.gpus,
                    "param_dtype": dtype,
                    "reduce_dtype": "float32",
                },
            },
            "device_mapping": devices,
            "infer_batch_size": micro,
        },
        "actor_infer": {
            "model_args": {"disable_gradient_checkpointing": True, "dtype": dtype},
            "generating_args": {
                "max_new_tokens": recipe.max_tokens_per_turn,
                "top_p": 1.0,
                "top_k": -1,
                "num_beams": 1,
                "temperature": recipe.temperature,
                "logprobs": 0,
            },
            "strategy_args": {
                "strategy_name": "vllm",
                "strategy_config": {"gpu_memory_utilization": 0.6, "block_size": 16, "load_format": "auto"},
            },
            "device_mapping": devices,
        },
        "reference": {
            "model_args": {**attention, "disable_gradient_checkpointing": True, "dtype": dtype},
            "strategy_args": {"strategy_name": "hf_infer"},
        },
        "train_env_manager": _manager(tags, groups, recipe.samples_per_task),
        "val_env_manager": _manager(tags, [1] * len(tags), 1),
        "custom_envs": {
            SECTION: _options(recipe),
            **{tag: _section(recipe, source) for tag, source in zip(tags, sources, strict=True)},
        },
    }


def _manager(tags: Sequence[str], groups: Sequence[int], samples: int) -> dict[str, Any]:
    return {
        "max_env_num_per_worker": 16,
        "num_env_groups": sum(groups),
        "group_size": samples,
        "tags": list(tags),
        "num_groups_partition": list(groups),
    }


def _options(recipe: Recipe) -> dict[str, Any]:
    """Return ``custom_envs.gem``: the options that have no place in ROLL's own config."""
    roll_options = ("max_turns", "system_prompt", "wrappers")
    options = {name: v for name, v in recipe.rollout_options().items() if name not in roll_options}
    if recipe.traces:
        options["traces"] = os.path.join(HERE, recipe.traces)  # ROLL runs in its own checkout
    return {
        "estimator": recipe.trainer_estimator,
        "estimator_options": recipe.changed_estimator_options,
        "template_kwargs": recipe.template_kwargs,
        "tasks": f"{HERE}/tasks.jsonl",
        **options,
    }


def _section(recipe: Recipe, source: EnvChoice) -> dict[str, Any]:
    return tag_section(
        source,
        env_manager_cls=STEP if recipe.context == "rebuild" else TRAJECTORY,
        max_steps=recipe.max_turns,
        max_tokens_per_step=recipe.max_tokens_per_turn,
        agent_system_template=recipe.system_prompt,
        env_config=source.env_kwargs | ({"wrappers": recipe.wrappers} if recipe.wrappers else {}),
    )

"""`gem-core repro --to openrlhf`: a recipe as flags of OpenRLHF, and the file of tasks."""

from __future__ import annotations

import json
from math import gcd
from pathlib import Path

from gem_core.repro import ADAM_BETAS, Recipe, Verbatim, reject_unsupported, write_script
from gem_openrlhf.export import write as write_rows

COMMAND = "python -m gem_openrlhf.train_ppo_ray"
NOTES = ("OpenRLHF shuffles the tasks: the steps have the same ones in another order.",)


def write(recipe: Recipe, folder: str | Path) -> list[str]:
    """Write ``run.sh`` and ``train.jsonl``.

    Returns:
        The differences from the other trainers, one line each.

    Raises:
        ConfigError: OpenRLHF has no equivalent of an option.
    """
    one_row = "OpenRLHF trains on episode rows, and the turns of a rebuilt context share no prefix"
    images = recipe.images(
        "a recipe does not say how many an episode has, which OpenRLHF's --data.max_images_per_prompt wants"
    )
    reject_unsupported("OpenRLHF", dict.fromkeys(recipe.changed("context", "raw"), one_row) | images)
    write_rows(recipe.tasks(), Path(folder) / "train.jsonl")
    per_gpu = recipe.episodes_per_update // recipe.gpus
    options = recipe.rollout_options() | recipe.changed_estimator_options
    if recipe.template_kwargs:
        options["template_kwargs"] = json.dumps(recipe.template_kwargs)
    flags: dict[str, object] = {
        "algo.advantage.estimator": recipe.trainer_estimator,
        "algo.advantage.gamma": recipe.gamma,
        "algo.advantage.is_correction_level": "off",
        "algo.kl.init_coef": 0,
        "train.agent_func_path": Verbatim('"$(gem-core path openrlhf-agent)"'),
        "data.prompt_dataset": Verbatim('"$PWD/train.jsonl"'),
        "data.input_key": "input",
        "data.label_key": "label",
        "data.max_len": recipe.max_tokens,
        "rollout.max_new_tokens": recipe.max_tokens_per_turn,
        "rollout.temperature": recipe.temperature,
        "rollout.batch_size": recipe.tasks_per_step,
        "rollout.n_samples_per_prompt": recipe.samples_per_task,
        "rollout.micro_batch_size": gcd(per_gpu, 8),
        "train.batch_size": recipe.episodes_per_update,
        "train.micro_batch_size": gcd(per_gpu, 4),
        "train.num_episodes": 1,
        "train.max_epochs": 1,
        "train.seed": recipe.seed,
        "actor.model_name_or_path": recipe.model,
        "actor.adam.lr": recipe.learning_rate,
        "actor.adam.weight_decay": 0,
        "actor.adam.betas": ADAM_BETAS,
        "actor.lr_scheduler": "constant",
        "actor.max_norm": 1,
        "actor.eps_clip": 0.2,
        "actor.num_gpus_per_node": recipe.gpus,
        "ref.num_gpus_per_node": recipe.gpus,
        "vllm.num_engines": recipe.gpus,
        "vllm.gpu_memory_utilization": 0.5,
        "ckpt.output_dir": Verbatim('"$PWD/model"'),
        **{f"gem.{name}": value for name, value in options.items()},
    }
    switches = ("actor.gradient_checkpointing_enable", "train.colocate_all", "vllm.enable_sleep")
    lines = [[f"--{name}"] for name in (*switches, "ds.enable_sleep", "ds.packing_samples")]
    for name, value in flags.items():
        values = value if isinstance(value, tuple) else (value,)
        lines.append([f"--{name}", *(v if isinstance(v, Verbatim) else str(v) for v in values)])
    write_script(Path(folder) / "run.sh", COMMAND, lines, notes=NOTES)
    return list(NOTES)

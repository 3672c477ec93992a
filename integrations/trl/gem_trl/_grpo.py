"""TRL's own GRPO script with GEM's flags: ``accelerate launch -m gem_trl.grpo <TRL's flags> --gem_*``.

GEM's flags are the fields of `GemConfig` and `TaskFlags`, each with the prefix ``gem_``. A YAML file for
``--config`` may contain them beside TRL's own.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, fields, make_dataclass, replace
from typing import Annotated, Any

from gem_core._util.checks import check_int
from gem_core.errors import ConfigError
from gem_core.trainers import Plan
from gem_core.trainers._imports import replaced, until_call
from gem_core.trainers._options import flag_fields, reject_changed
from gem_core.trainers._plugin import errors_in_one_line
from gem_trl import _SUPPORTED
from gem_trl._config import GemConfig

PREFIX = "gem_"
OF_DATASET = ("dataset_config", "dataset_train_split", "dataset_test_split", "dataset_streaming")
NO_DATASET = f"belongs to a dataset, but --{PREFIX}env alone makes all tasks; omit it, or add --dataset_name"


@dataclass(frozen=True)
class TaskFlags:
    """The tasks of a run, instead of TRL's datasets."""

    env: Annotated[
        list[str] | None,
        "environments to train on: ID or 'ID(key=value)', each with =WEIGHT; beside --dataset_name, the "
        "weight is the number of tasks per row of the dataset",
    ] = None
    num_tasks: Annotated[int, "training tasks, without a dataset"] = 10_000
    eval_env: Annotated[list[str] | None, "environments to evaluate on (default: the training ones)"] = None
    num_eval_tasks: Annotated[
        int, "evaluation tasks, without a dataset, shared evenly by the environments"
    ] = 256


def flags() -> type[Any]:
    """Return a dataclass with the flags of GEM, for TRL's parser. Objects are written as JSON."""
    entries = [
        (PREFIX + flag.name, flag.kind, field(default=flag.default, metadata={"help": flag.help}))
        for options in (TaskFlags, GemConfig)
        for flag in flag_fields(options)
    ]
    return make_dataclass("GemFlags", entries)


def main(argv: Sequence[str] | None = None) -> None:
    """Run TRL's script.

    Args:
        argv: Flags; None means the flags of the command.

    Raises:
        SystemExit: A `GemError`, which is printed as one line, with code 2.
    """
    with errors_in_one_line(_SUPPORTED):
        _SUPPORTED.require()
        _run(argv)


def check(arguments: list[str]) -> Plan:
    """Check the flags of this command and create its tasks, as a run does before TRL loads the model.

    Returns:
        What the run would do.

    Raises:
        Exception: A run would reject them.
    """
    _SUPPORTED.require()
    from trl import GRPOTrainer

    from gem_trl._plan import plan_of

    with until_call(GRPOTrainer, "__init__") as calls:
        _run(arguments)
    ((trainer,), given) = calls[0]
    return plan_of(trainer, given)


def _run(argv: Sequence[str] | None) -> None:
    import datasets
    import trl
    from trl.scripts import grpo

    from gem_trl._trainer import GemGRPOTrainer

    parsers = (grpo.GRPOScriptArguments, trl.GRPOConfig, trl.ModelConfig, trl.DatasetMixtureConfig, flags())
    parser = trl.TrlParser(parsers, allow_abbrev=False)
    script, training, model, mixture, gem_flags = parser.parse_args_and_config(args=argv)
    values = {item.name.removeprefix(PREFIX): getattr(gem_flags, item.name) for item in fields(gem_flags)}
    chosen = TaskFlags(**{item.name: values.pop(item.name) for item in fields(TaskFlags)})
    for name in ("num_tasks", "num_eval_tasks"):
        check_int(f"--{PREFIX}{name}", getattr(chosen, name), 1)
    config = GemConfig.read(values, f"--{PREFIX}").checked(f"--{PREFIX}")
    if training.eval_strategy == "no" and chosen != replace(
        chosen, eval_env=None, num_eval_tasks=TaskFlags.num_eval_tasks
    ):
        raise ConfigError(
            f"--{PREFIX}eval_env, --{PREFIX}num_eval_tasks: TRL evaluates nothing without --eval_strategy "
            "steps or epoch; add it, or omit them"
        )
    trainer, load = functools.partial(GemGRPOTrainer, gem=config), datasets.load_dataset
    get = trl.get_dataset
    if mixture.datasets:
        get = _with_envs(get, chosen, script, training)
    elif script.dataset_name:
        load = _with_envs(load, chosen, script, training)
    elif chosen.env is not None:
        reject_changed(
            script, [(name, getattr(type(script), name), NO_DATASET) for name in OF_DATASET], prefix="--"
        )
        script.dataset_name, splits = "gem", _splits(chosen, script, training)
        load = lambda *args, **kwargs: splits  # noqa: E731
    else:
        raise ConfigError(f"there are no tasks: name environments with --{PREFIX}env, or a --dataset_name")
    with (
        replaced(trl, "GRPOTrainer", trainer),
        replaced(trl, "get_dataset", get),
        replaced(datasets, "load_dataset", load),
    ):
        grpo.main(script, training, model, mixture)


def _with_envs(load: Callable[..., Any], chosen: TaskFlags, script: Any, training: Any) -> Callable[..., Any]:
    """Return a function that loads the user's datasets and adds the environments to each; see `mix`.

    Raises:
        ConfigError: A number of tasks is given, but there are no tasks, or the weights of the environments
            determine it; or evaluation has the split of training, but other tasks.
    """
    mixed = (chosen.env, chosen.eval_env) != (None, None)
    for name in ("num_tasks", "num_eval_tasks"):
        if getattr(chosen, name) != getattr(TaskFlags, name):
            raise ConfigError(
                f"--{PREFIX}{name}: beside a dataset, the weight of an environment is its number of tasks "
                f"per row of the dataset; omit it, and write --{PREFIX}env ID=WEIGHT"
            )
    wanted = {"dataset_train_split": chosen.env}
    if training.eval_strategy != "no":
        wanted["dataset_test_split"] = chosen.env if chosen.eval_env is None else chosen.eval_env
    if mixed and len({getattr(script, flag) for flag in wanted}) < len(wanted):
        raise ConfigError(
            f"--dataset_test_split={script.dataset_test_split}: training has this split as well, but beside "
            "environments each needs its own, because they never share a task"
        )

    def loaded(*args: Any, **kwargs: Any) -> dict[str, Any]:
        splits, made = load(*args, **kwargs), {}
        for flag, envs in wanted.items():
            name = getattr(script, flag)
            if name not in splits:
                raise ConfigError(f"--{flag}={name}: the dataset has no such split, only {', '.join(splits)}")
            made[name] = [splits[name], *(envs or ())] if mixed else splits[name]
        return made

    return loaded


def _splits(chosen: TaskFlags, script: Any, training: Any) -> Mapping[str, Any]:
    from gem_trl._dataset import tasks

    envs = chosen.env or []
    splits = {script.dataset_train_split: tasks(envs, chosen.num_tasks, seed=training.seed)}
    if training.eval_strategy != "no":
        eval_tasks = tasks(chosen.eval_env or envs, chosen.num_eval_tasks, split="eval")
        splits[script.dataset_test_split] = eval_tasks
    return splits

"""OpenRLHF's own command with GEM's estimators and options among its flags.

    python -m gem_openrlhf.train_ppo_ray <OpenRLHF's flags> --algo.advantage.estimator rebn --gem.max_turns 8

OpenRLHF's parser exists only while its command runs, so this module runs the command and adds its flags when
the parser is used. Help and errors come from OpenRLHF's parser. Then the flags are checked, and Ray's workers
are configured to call `hooks.setup`.
"""

from __future__ import annotations

import argparse
import json
import os
import runpy
import sys
from contextlib import AbstractContextManager
from dataclasses import fields
from pathlib import Path
from types import NoneType
from typing import Any, get_args, get_type_hints

from gem_core.errors import ConfigError, GemError, UnsupportedTrainer
from gem_core.rollout.vision import processor_or_tokenizer
from gem_core.trainers.imports import replaced
from gem_core.trainers.tasks import check_tasks, read_tasks
from gem_openrlhf import SUPPORTED, TRAINER
from gem_openrlhf.hooks import check_interface
from gem_openrlhf.labels import task_of
from gem_openrlhf.options import ESTIMATORS, VARIABLE, GemOptions, check_args

COMMAND = "openrlhf.cli.train_ppo_ray"
ESTIMATOR = "algo.advantage.estimator"
HOOK = "gem_openrlhf.hooks.setup"
RAY_JOB = "RAY_JOB_CONFIG_JSON_ENV_VAR"
"""Environment variable in which Ray finds the runtime environment of a submitted driver."""


def main() -> None:
    """Run OpenRLHF's command.

    An unsupported flag prints one line to standard error and exits with code 2.
    """
    try:
        SUPPORTED.require()
        with _flags_added():
            runpy.run_module(COMMAND, run_name="__main__", alter_sys=True)
    except GemError as error:
        sys.stderr.write(f"gem_openrlhf: error: {error}\n")
        sys.exit(2)


def _flags_added() -> AbstractContextManager[None]:
    """Add GEM's flags to OpenRLHF's parser when it is about to parse."""
    parse_args = argparse.ArgumentParser.parse_args

    def parse(parser: argparse.ArgumentParser, *args: Any, **kwargs: Any) -> Any:
        actions = {action.dest: action for action in parser._actions}
        if ESTIMATOR not in actions:  # another library's parser
            return parse_args(parser, *args, **kwargs)
        add_flags(parser, actions[ESTIMATOR])
        parsed = parse_args(parser, *args, **kwargs)
        prepare(parsed)
        return parsed

    return replaced(argparse.ArgumentParser, "parse_args", parse)


def add_flags(parser: argparse.ArgumentParser, estimator: argparse.Action) -> None:
    """Add ``--gem.*`` and the estimators to OpenRLHF's parser.

    Raises:
        UnsupportedTrainer: The flag of the estimator has no list of choices.
    """
    if not estimator.choices:
        raise UnsupportedTrainer(
            f"--{ESTIMATOR} of OpenRLHF {SUPPORTED.installed_version()} has no list of choices to extend; "
            f"supported versions: {SUPPORTED.versions}"
        )
    estimator.choices = [*estimator.choices, *ESTIMATORS]
    group = parser.add_argument_group("GEM", "see the documentation of gem_openrlhf")
    hints = get_type_hints(GemOptions)
    for field in fields(GemOptions):
        if field.name == "estimator":
            continue
        flag, kind = f"--gem.{field.name}", hints[field.name]
        values = [part for part in get_args(kind) or (kind,) if part is not NoneType]  # int | None: [int]
        if kind is bool:
            group.add_argument(flag, action="store_true")
        elif isinstance(values[0], type):
            group.add_argument(flag, type=values[0], default=field.default)
        else:  # a Literal
            group.add_argument(flag, choices=values, default=field.default)


def prepare(parsed: argparse.Namespace) -> None:
    """Check OpenRLHF's interface and all flags, and pass GEM's options to Ray's workers.

    Raises:
        GemError: A flag or a row of the data is not supported.
    """
    from openrlhf.utils.config import hierarchize

    check_interface()
    args = hierarchize(parsed)
    flags = vars(args.gem)
    if args.algo.advantage.estimator in ESTIMATORS:
        flags = {**flags, "estimator": args.algo.advantage.estimator}
    options = GemOptions.load(flags)
    check_args(args, options)
    agent = args.train.agent_func_path
    if agent and Path(agent).resolve() == TRAINER.file_path("agent").resolve():
        check_data(args, options.wrappers)
    os.environ[RAY_JOB] = json.dumps(with_runtime_env(json.loads(os.environ.get(RAY_JOB) or "{}"), options))


def check_data(args: Any, wrappers: str = "") -> None:
    """Build every environment of local data files once, so that errors in a row are reported before the run.

    Args:
        args: OpenRLHF's flags.
        wrappers: Wrappers around every environment.

    Raises:
        ConfigError: A row names no task, its environment cannot be built, or a training row selects an
            evaluation item. The message names the file and the line.
    """
    key = args.data.label_key
    if not key:
        raise ConfigError("the GEM agent needs the label of each row: --data.label_key label")
    for paths, for_training in ((args.data.prompt_dataset, True), (args.eval.dataset, False)):
        for path in map(str.strip, str(paths or "").split(",")):
            if path.endswith(".jsonl") and Path(path).is_file():  # rollout workers check other formats
                check_tasks(
                    read_tasks(path, lambda row: task_of(row.get(key))),
                    wrappers,
                    no_images=lambda: images_unsupported(args),
                    for_training=for_training,
                )


def images_unsupported(args: Any) -> str | None:
    """Return why OpenRLHF's model cannot take images; None if it can.

    Args:
        args: OpenRLHF's flags.
    """
    if getattr(args.data, "max_images_per_prompt", 0) < 1:
        return (
            "OpenRLHF's engines accept none without --data.max_images_per_prompt N; set N to the maximum "
            "number of images in an episode"
        )
    from openrlhf.utils.utils import get_tokenizer

    model = args.actor.model_name_or_path
    try:
        processor = get_tokenizer(model, None)
    except (ImportError, OSError, ValueError) as error:
        return f"cannot load the processor of {model}: {' '.join(str(error).split())}"
    if processor_or_tokenizer(processor, None) is None:
        return f"{model} has no processor of the Qwen2-VL family"
    return None


def with_runtime_env(job: dict[str, Any], options: GemOptions) -> dict[str, Any]:
    """Return a Ray job's configuration with GEM's hook and options in its runtime environment.

    Raises:
        ConfigError: Ray is already connected, or another hook is set.
    """
    import ray

    if ray.is_initialized():
        raise ConfigError(
            "Ray is connected already, so its workers cannot load GEM; let OpenRLHF's command connect, or "
            "start it directly with gem_openrlhf.hooks.setup as worker_process_setup_hook"
        )
    runtime_env = dict(job.get("runtime_env") or {})
    if runtime_env.setdefault("worker_process_setup_hook", HOOK) != HOOK:
        raise ConfigError(
            f"the runtime environment of this job has worker_process_setup_hook="
            f"{runtime_env['worker_process_setup_hook']!r}; let that call {HOOK}() and leave it out"
        )
    runtime_env["env_vars"] = {**(runtime_env.get("env_vars") or {}), VARIABLE: options.to_text()}
    return {**job, "runtime_env": runtime_env}


if __name__ == "__main__":
    main()

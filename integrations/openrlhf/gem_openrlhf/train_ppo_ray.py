"""OpenRLHF's own command with GEM's estimators and options among its flags.

    python -m gem_openrlhf.train_ppo_ray <OpenRLHF's flags> --algo.advantage.estimator rebn --gem.max_turns 8

OpenRLHF's parser exists only while its command runs, so this module runs that command and adds GEM's flags
when the parser is used. Help and errors come from OpenRLHF's parser. Then the flags are checked, and Ray's
workers are configured to call `hooks.setup`.
"""

from __future__ import annotations

import argparse
import json
import os
import runpy
import sys
from collections.abc import Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from types import NoneType
from typing import Any, get_args, get_origin

from gem_core.errors import ConfigError
from gem_core.rollout.vision import processor_problem
from gem_core.trainers.imports import replaced, until_call
from gem_core.trainers.interface import unsupported
from gem_core.trainers.options import flag_fields, import_modules, reject_changed
from gem_core.trainers.plugin import errors_in_one_line
from gem_core.trainers.tasks import check_tasks, local_tasks
from gem_openrlhf import SUPPORTED, TRAINER
from gem_openrlhf.hooks import check_interface
from gem_openrlhf.labels import task_of
from gem_openrlhf.options import VARIABLE, GemOptions, check_args, estimator_names

COMMAND = "openrlhf.cli.train_ppo_ray"
ESTIMATOR = "algo.advantage.estimator"
HOOK = "gem_openrlhf.hooks.setup"
RAY_JOB = "RAY_JOB_CONFIG_JSON_ENV_VAR"
"""Environment variable from which Ray reads the runtime environment of a submitted driver."""


def main() -> None:
    """Run OpenRLHF's command.

    An unsupported flag prints one line to standard error and exits with code 2.
    """
    with errors_in_one_line(SUPPORTED):
        _run()


def _run() -> None:
    SUPPORTED.require()
    with _flags_added():
        runpy.run_module(COMMAND, run_name="__main__", alter_sys=True)


def check(arguments: list[str]) -> None:
    """Check the flags of this command up to the point at which OpenRLHF would start Ray.

    Raises:
        Exception: A run would reject them.
    """
    import ray

    with replaced(sys, "argv", [COMMAND, *arguments]), until_call(ray, "init"):
        _run()


def _flags_added() -> AbstractContextManager[None]:
    """Add GEM's flags to OpenRLHF's parser when it is about to parse."""
    parse_args = argparse.ArgumentParser.parse_args

    def parse(parser: argparse.ArgumentParser, *args: Any, **kwargs: Any) -> Any:
        actions = {action.dest: action for action in parser._actions}
        if ESTIMATOR not in actions:  # another library's parser
            return parse_args(parser, *args, **kwargs)
        import_named_modules(args[0] if args else kwargs.get("args"))
        add_flags(parser, actions[ESTIMATOR])
        parsed = parse_args(parser, *args, **kwargs)
        prepare(parsed)
        return parsed

    return replaced(argparse.ArgumentParser, "parse_args", parse)


def import_named_modules(arguments: Sequence[str] | None) -> None:
    """Import ``--gem.modules`` before the arguments are parsed, because one may register the estimator.

    Args:
        arguments: Arguments of the command; None means those of this process.
    """
    parser = argparse.ArgumentParser(add_help=False, allow_abbrev=False)
    parser.add_argument("--gem.modules", dest="modules", nargs="+", default=())
    import_modules(parser.parse_known_args(arguments)[0].modules, "--gem.modules")


def add_flags(parser: argparse.ArgumentParser, estimator: argparse.Action) -> None:
    """Add ``--gem.*`` and the estimators to OpenRLHF's parser.

    Raises:
        UnsupportedTrainer: The flag of the estimator has no list of choices.
    """
    if not estimator.choices:
        raise unsupported(SUPPORTED, f"--{ESTIMATOR} has no list of choices to extend")
    estimator.choices = [*estimator.choices, *estimator_names()]
    group = parser.add_argument_group("gem-core", "see the documentation of gem_openrlhf")
    for flag in flag_fields(GemOptions):
        if flag.name == "estimator":
            continue
        name, kind, values = f"--gem.{flag.name}", flag.kind, get_args(flag.kind)
        if NoneType in values:  # int | None
            kind, values = values[0], get_args(values[0])
        if kind is bool:
            group.add_argument(name, action="store_true", help=flag.help)
        elif get_origin(kind) is list:
            group.add_argument(name, nargs="+", default=flag.default, help=flag.help)
        else:
            kind = str if values else kind  # a Literal has values
            group.add_argument(name, type=kind, choices=values or None, default=flag.default, help=flag.help)


def prepare(parsed: argparse.Namespace) -> None:
    """Check OpenRLHF's interface and all flags, and pass GEM's options to Ray's workers.

    Raises:
        GemError: A flag or a row of the data is not supported.
    """
    from openrlhf.utils.config import hierarchize

    check_interface()
    args = hierarchize(parsed)
    name = args.algo.advantage.estimator
    options = GemOptions.load({**vars(args.gem), "estimator": name if name in estimator_names() else None})
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
        raise ConfigError("the agent of gem_openrlhf needs the label of each row: --data.label_key label")
    for paths, for_training in ((args.data.prompt_dataset, True), (args.eval.dataset, False)):
        for path in map(str.strip, str(paths or "").split(",")):
            # Rollout workers check files in other formats.
            tasks = local_tasks(path, lambda row: task_of(row.get(key)))
            check_tasks(
                tasks, wrappers, no_images=lambda: images_unsupported(args), for_training=for_training
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
    return processor_problem(model, lambda: get_tokenizer(model, None))


def with_runtime_env(job: dict[str, Any], options: GemOptions) -> dict[str, Any]:
    """Return a Ray job's configuration with GEM's hook and options in its runtime environment.

    Raises:
        ConfigError: Ray is already connected, or another hook is set.
    """
    import ray

    if ray.is_initialized():
        raise ConfigError(
            "Ray is connected already, so its workers cannot load gem_openrlhf; let OpenRLHF's command "
            f"connect, or start it directly with {HOOK} as worker_process_setup_hook"
        )
    runtime_env = {"worker_process_setup_hook": HOOK, **(job.get("runtime_env") or {})}
    hook = ("worker_process_setup_hook", HOOK, f"let that function call {HOOK}() and omit it")
    reject_changed(runtime_env, [hook], prefix="the runtime environment of this job: ")
    runtime_env["env_vars"] = {**(runtime_env.get("env_vars") or {}), VARIABLE: options.to_text()}
    return {**job, "runtime_env": runtime_env}


if __name__ == "__main__":
    main()

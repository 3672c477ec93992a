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
from collections.abc import Collection, Iterable, Sequence
from contextlib import AbstractContextManager
from types import NoneType
from typing import Any, get_args, get_origin

from gem_core._util.messages import join_or
from gem_core.errors import ConfigError
from gem_core.trainers import Plan
from gem_core.trainers._imports import replaced, until_call
from gem_core.trainers._interface import unsupported
from gem_core.trainers._options import flag_fields, import_modules, reject_changed
from gem_core.trainers._plugin import errors_in_one_line
from gem_openrlhf import _SUPPORTED, TRAINER
from gem_openrlhf._dataset import NO_LABELS, join_words, split_words
from gem_openrlhf._hooks import check_interface
from gem_openrlhf._options import OPENRLHF_FLAGS, VARIABLE, GemOptions, check_args, estimator_names
from gem_openrlhf._preview import preview

COMMAND = "openrlhf.cli.train_ppo_ray"
ESTIMATOR = "algo.advantage.estimator"
HOOK = "gem_openrlhf.hooks.setup"
RAY_JOB = "RAY_JOB_CONFIG_JSON_ENV_VAR"
"""Environment variable from which Ray reads the runtime environment of a submitted driver."""


def main() -> None:
    """Run OpenRLHF's command.

    An unsupported flag prints one line to standard error and exits with code 2.
    """
    with errors_in_one_line(_SUPPORTED):
        _run([])


def _run(plans: list[Plan]) -> None:
    _SUPPORTED.require()
    with _flags_added(plans):
        runpy.run_module(COMMAND, run_name="__main__", alter_sys=True)


def check(arguments: list[str]) -> Plan:
    """Check the flags of this command up to the point at which OpenRLHF would start Ray.

    Returns:
        What the run would do.

    Raises:
        Exception: A run would reject them.
    """
    import ray

    plans: list[Plan] = []
    with replaced(sys, "argv", [COMMAND, *arguments]), until_call(ray, "init"):
        _run(plans)
    (plan,) = plans
    return plan


def _flags_added(plans: list[Plan]) -> AbstractContextManager[None]:
    """Add GEM's flags to OpenRLHF's parser when it is about to parse, and append the plan of its flags."""
    parse_args = argparse.ArgumentParser.parse_args

    def parse(parser: argparse.ArgumentParser, *args: Any, **kwargs: Any) -> Any:
        actions = {action.dest: action for action in parser._actions}
        if ESTIMATOR not in actions:  # another library's parser
            return parse_args(parser, *args, **kwargs)
        import_named_modules(args[0] if args else kwargs.get("args"))
        add_flags(parser, actions[ESTIMATOR])
        parser.allow_abbrev = False
        reject_abbreviations(sys.argv[1:], parser._option_string_actions)
        parsed = parse_args(parser, *args, **kwargs)
        plans.append(prepare(parsed))
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


def reject_abbreviations(words: Iterable[str], known: Collection[str]) -> None:
    """Reject the beginning of a flag, which argparse would take for the flag, perhaps one of another meaning.

    Args:
        words: Words of the command line.
        known: All flags.

    Raises:
        ConfigError: A word is an abbreviation; the message names the flags.
    """
    names = {word.partition("=")[0] for word in words if word.startswith("--") and word != "--"}
    for name in sorted(names.difference(known)):
        if meant := [flag for flag in known if flag.startswith(name)]:
            raise ConfigError(f"{name}: flags cannot be abbreviated; write {join_or(meant)}")


def add_flags(parser: argparse.ArgumentParser, estimator: argparse.Action) -> None:
    """Add ``--gem.*`` and the estimators to OpenRLHF's parser.

    Raises:
        UnsupportedTrainer: The flag of the estimator has no list of choices.
    """
    if not estimator.choices:
        raise unsupported(_SUPPORTED, f"--{ESTIMATOR} has no list of choices to extend")
    estimator.choices = [*estimator.choices, *estimator_names()]
    group = parser.add_argument_group("gem-core", "see the documentation of gem_openrlhf")
    for flag in flag_fields(GemOptions):
        if flag.name in OPENRLHF_FLAGS:
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


def prepare(parsed: argparse.Namespace) -> Plan:
    """Check OpenRLHF's interface and all flags, and pass GEM's options to Ray's workers.

    Args:
        parsed: OpenRLHF's flags, completed by `add_environments`.

    Returns:
        What the run would do.

    Raises:
        GemError: A flag or a row of the data is not supported.
    """
    from openrlhf.utils.config import hierarchize

    check_interface()
    add_environments(parsed)
    args = hierarchize(parsed)
    name = args.algo.advantage.estimator
    openrlhf_values = (name if name in estimator_names() else None, args.reward.remote_url)
    options = GemOptions.load({**vars(args.gem), **dict(zip(OPENRLHF_FLAGS, openrlhf_values, strict=True))})
    check_args(args, options)
    plan = preview(args, options)
    os.environ[RAY_JOB] = json.dumps(with_runtime_env(json.loads(os.environ.get(RAY_JOB) or "{}"), options))
    return plan


def add_environments(parsed: argparse.Namespace) -> None:
    """Complete the flags of a run whose lists of data contain environments.

    Their ids get absolute paths, gem_core's agent plays them, and their tasks need a column for the label,
    also if the files have none.
    """
    lists = {name: split_words(getattr(parsed, name)) for name in ("data.prompt_dataset", "eval.dataset")}
    if not any(envs for _, envs in lists.values()):
        return
    for name, (files, envs) in lists.items():
        if envs:
            setattr(parsed, name, join_words(files, envs))
    if not getattr(parsed, "train.agent_func_path"):
        setattr(parsed, "train.agent_func_path", str(TRAINER.file_path("agent")))
    if getattr(parsed, "data.label_key") is None:
        has_files = any(files for files, _ in lists.values())
        setattr(parsed, "data.label_key", NO_LABELS if has_files else "label")


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

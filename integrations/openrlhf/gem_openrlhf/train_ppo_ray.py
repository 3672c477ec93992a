"""OpenRLHF's own command with GEM's estimators and options among its flags.

    python -m gem_openrlhf.train_ppo_ray <OpenRLHF's flags> --algo.advantage.estimator rebn --gem.max_turns 8

OpenRLHF's parser exists only while its command runs, so this module runs the command and adds to the
parser what is missing at the moment when it is used. Help and errors are those of OpenRLHF's parser.
After that the flags are checked, and Ray's workers are told to call `hooks.setup`.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import runpy
import sys
from collections.abc import Iterator
from dataclasses import fields
from pathlib import Path
from typing import Any, get_args, get_origin, get_type_hints

from gem_core.errors import ConfigError, GemError, UnsupportedTrainer
from gem_core.rollout.vision import processor_or_tokenizer
from gem_core.tasks import EnvChoice, check_train_row
from gem_openrlhf import SUPPORTED
from gem_openrlhf.labels import task_of
from gem_openrlhf.options import ESTIMATORS, VARIABLE, GemOptions, check_args

COMMAND = "openrlhf.cli.train_ppo_ray"
ESTIMATOR = "algo.advantage.estimator"
HOOK = "gem_openrlhf.hooks.setup"
RAY_JOB = "RAY_JOB_CONFIG_JSON_ENV_VAR"
"""Where Ray looks for the runtime environment that a driver was submitted with."""


def main() -> None:
    """Run OpenRLHF's command.

    A flag that cannot be honoured is one line on standard error and exit code 2.
    """
    try:
        SUPPORTED.require()
        with _flags_added():
            runpy.run_module(COMMAND, run_name="__main__", alter_sys=True)
    except GemError as error:
        sys.stderr.write(f"gem_openrlhf: error: {error}\n")
        sys.exit(2)


@contextlib.contextmanager
def _flags_added() -> Iterator[None]:
    """Add our flags to the parser that has OpenRLHF's, when it is about to parse."""
    parse_args = argparse.ArgumentParser.parse_args

    def parse(parser: argparse.ArgumentParser, *args: Any, **kwargs: Any) -> Any:
        actions = {action.dest: action for action in parser._actions}
        if ESTIMATOR not in actions:  # of some other library
            return parse_args(parser, *args, **kwargs)
        add_flags(parser, actions[ESTIMATOR])
        parsed = parse_args(parser, *args, **kwargs)
        prepare(parsed)
        return parsed

    argparse.ArgumentParser.parse_args = parse  # type: ignore[assignment, method-assign]
    try:
        yield
    finally:
        argparse.ArgumentParser.parse_args = parse_args  # type: ignore[method-assign]


def add_flags(parser: argparse.ArgumentParser, estimator: argparse.Action) -> None:
    """Add ``--gem.*`` and the estimators to OpenRLHF's parser."""
    if not estimator.choices:
        raise UnsupportedTrainer(
            f"--{ESTIMATOR} of this OpenRLHF has no choices to add to; supported versions: "
            f"{SUPPORTED.versions}"
        )
    estimator.choices = [*estimator.choices, *ESTIMATORS]
    group = parser.add_argument_group("GEM", "see the documentation of gem_openrlhf")
    hints = get_type_hints(GemOptions)
    for field in fields(GemOptions):
        if field.name == "estimator":
            continue
        flag, kind = f"--gem.{field.name}", hints[field.name]
        if kind is bool:
            group.add_argument(flag, action="store_true")
        elif get_origin(kind) is not None and not _types(kind):
            group.add_argument(flag, choices=get_args(kind), default=field.default)
        else:
            (value_type,) = _types(kind) or (kind,)
            group.add_argument(flag, type=value_type, default=field.default)


def _types(kind: Any) -> list[type]:
    """``int`` of ``int | None``; nothing for a `Literal`."""
    return [part for part in get_args(kind) if isinstance(part, type) and part is not type(None)]


def prepare(parsed: argparse.Namespace) -> None:
    """Check all flags and hand ours to Ray's workers.

    Raises:
        GemError: A flag, or a row of the data, that cannot be honoured.
    """
    from openrlhf.utils.config import hierarchize

    args = hierarchize(parsed)
    given = vars(args.gem)
    if args.algo.advantage.estimator in ESTIMATORS:
        given = {**given, "estimator": args.algo.advantage.estimator}
    options = GemOptions.load(given)
    check_args(args, options)
    if args.train.agent_func_path and _is_our_agent(args.train.agent_func_path):
        check_data(args)
    os.environ[RAY_JOB] = json.dumps(with_runtime_env(json.loads(os.environ.get(RAY_JOB) or "{}"), options))


def check_data(args: Any) -> None:
    """Build every environment of local data files once, so that a wrong row shows now.

    Raises:
        GemError: A row names no task, an environment that cannot be built, or for training a evaluation item;
            names file and line.
    """
    if not args.data.label_key:
        raise ConfigError("the GEM agent needs the label of each row: --data.label_key label")
    built: set[str] = set()
    training, evaluation = (
        str(value or "").split(",") for value in (args.data.prompt_dataset, args.eval.dataset)
    )
    for place, path in enumerate([*training, *evaluation]):
        if not path.strip().endswith(".jsonl") or not Path(path.strip()).is_file():
            continue  # another format or place: the rollout workers will see its rows
        for number, line in enumerate(Path(path.strip()).read_text(encoding="utf-8").splitlines(), start=1):
            try:
                task = task_of(json.loads(line).get(args.data.label_key))
                source = EnvChoice(task["env_id"], task["env_kwargs"])
                if source.label not in built:
                    source.check_buildable(no_images=lambda: images_unsupported(args))
                    built.add(source.label)
                if place < len(training):
                    check_train_row(task)
            except (GemError, ValueError, AttributeError) as error:
                raise ConfigError(f"{path.strip()}, line {number}: {error}") from error


def images_unsupported(args: Any) -> str | None:
    """Why OpenRLHF's model cannot be shown images; None when it can.

    Args:
        args: OpenRLHF's flags.
    """
    if getattr(args.data, "max_images_per_prompt", 0) < 1:
        return (
            "OpenRLHF's engines take none without --data.max_images_per_prompt N; give the most images of "
            "an episode"
        )
    from openrlhf.utils.utils import get_tokenizer

    model = args.actor.model_name_or_path
    try:
        given = get_tokenizer(model, None)
    except (ImportError, OSError, ValueError) as error:
        return f"the processor of {model} cannot be loaded: {' '.join(str(error).split())}"
    if processor_or_tokenizer(given, None) is None:
        return f"{model} has no processor of the Qwen2-VL kind"
    return None


def _is_our_agent(path: str) -> bool:
    from importlib.util import find_spec

    spec = find_spec("gem_openrlhf.agent")
    return bool(spec and spec.origin) and Path(path).resolve() == Path(str(spec and spec.origin)).resolve()


def with_runtime_env(job: dict[str, Any], options: GemOptions) -> dict[str, Any]:
    """A Ray job's configuration with our hook and options in its runtime environment.

    Raises:
        ConfigError: Ray is connected already, or there is another hook.
    """
    import ray

    if ray.is_initialized():
        raise ConfigError(
            "Ray is connected already, so its workers cannot be told about GEM; let OpenRLHF's command "
            "connect, or start it by itself with gem_openrlhf.hooks.setup as worker_process_setup_hook"
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

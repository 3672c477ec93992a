"""Arguments that several commands share, and how their values are read."""

from __future__ import annotations

import argparse
import json
from collections.abc import Mapping, Sequence
from typing import Any

from gem_core.core import Env
from gem_core.errors import ConfigError


def command_parser(
    commands: argparse._SubParsersAction[argparse.ArgumentParser],
    name: str,
    summary: str,
    *,
    examples: Sequence[str],
    details: str = "",
) -> argparse.ArgumentParser:
    """Add a command whose ``--help`` ends with examples.

    Args:
        commands: What `add_parser` was given.
        name: The command.
        summary: One line, in the list of commands and on top of its own help.
        examples: Command lines without the leading ``gem-core``.
        details: More to say after the options; printed as it stands.
    """
    lines = [f"  gem-core {name} {example}".rstrip() for example in examples]
    return commands.add_parser(
        name,
        help=summary,
        description=summary[0].upper() + summary[1:] + ".",
        epilog="\n".join([*([details, ""] if details else []), "examples:", *lines]),
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )


def add_json_flag(parser: argparse.ArgumentParser) -> None:
    """``--json``: print one JSON document instead of text."""
    parser.add_argument("--json", action="store_true", help="print one JSON document")


def add_env_arguments(parser: argparse.ArgumentParser) -> None:
    """``--kwargs`` and ``--wrappers``, which `build_env` reads."""
    parser.add_argument(
        "--kwargs",
        action="append",
        default=[],
        metavar="JSON|KEY=VALUE",
        help="arguments of the environment: a JSON object, or key=value (repeatable)",
    )
    parser.add_argument(
        "--wrappers",
        default="",
        metavar="NAMES",
        help="wrappers around it, such as 'concat_with_action, time_limit(max_turns=5)'",
    )


def parse_kwargs(given: Sequence[str]) -> dict[str, Any]:
    """Read ``--kwargs`` values: JSON objects and ``key=value`` pairs, later ones winning.

    The value of a pair is JSON where it can be read as such (numbers, true, null, lists), else text.

    Raises:
        ConfigError: Neither form.
    """
    kwargs: dict[str, Any] = {}
    for text in given:
        key, equals, value = text.partition("=")
        if equals and key.strip().isidentifier():
            kwargs[key.strip()] = _json_or_text(value.strip())
            continue
        try:
            parsed = json.loads(text)
        except ValueError as error:
            raise ConfigError(
                f"--kwargs {text!r} is neither key=value nor a JSON object such as "
                f"'{{\"max_turns\": 5}}' ({error})"
            ) from None
        if not isinstance(parsed, dict):
            raise ConfigError(f"--kwargs {text!r} is JSON but not an object such as '{{\"max_turns\": 5}}'")
        kwargs.update(parsed)
    return kwargs


def parse_env(text: str, given: Sequence[str]) -> tuple[str, dict[str, Any]]:
    """Id and arguments of the environment that ``ID`` or ``ID(key=value, ...)`` and ``--kwargs`` name.

    Args:
        text: One of the two forms.
        given: Values of ``--kwargs``; they win.

    Raises:
        ConfigError: Neither form, or a weight of a mix.
    """
    from gem_core.tasks import EnvChoice

    if "(" not in text:
        return text, parse_kwargs(given)
    source = EnvChoice.parse(text)
    if source.weight != 1:
        raise ConfigError(f"{text!r}: one environment alone has no weight; leave out ={source.weight:g}")
    return source.env_id, {**source.env_kwargs, **parse_kwargs(given)}


def is_pattern(text: str) -> bool:
    """Whether it stands for several ids, as in `gem_core.list_envs`; arguments may hold any sign."""
    return "(" not in text and any(sign in text for sign in "*?[")


def build_env(id: str, kwargs: Mapping[str, Any], wrappers: str = "") -> Env:
    """Make the environment that the command line asks for.

    Raises:
        ConfigError: The environment refuses its arguments.
        GemError: As in `gem_core.make`.
    """
    from gem_core.core import require_one_agent
    from gem_core.tasks import EnvChoice

    env = EnvChoice(id, dict(kwargs)).make(wrappers)
    require_one_agent(env, "this command")
    return env


def positive_int(text: str) -> int:
    """Argparse type: an integer of at least 1."""
    value = int(text)
    if value < 1:
        raise argparse.ArgumentTypeError(f"expected a number of at least 1, not {text}")
    return value


def positive_float(text: str) -> float:
    """Argparse type: a finite number above 0."""
    value = float(text)
    if not 0 < value < float("inf"):
        raise argparse.ArgumentTypeError(f"expected a number above 0, not {text}")
    return value


def seed(text: str) -> int:
    """Argparse type: a seed, an integer of at least 0."""
    value = int(text)
    if value < 0:
        raise argparse.ArgumentTypeError(f"expected a seed of at least 0, not {text}")
    return value


def _json_or_text(text: str) -> Any:
    try:
        return json.loads(text)
    except ValueError:
        return text

"""Arguments shared by several commands, parsers of their values, and the layout of the help."""

from __future__ import annotations

import argparse
import dataclasses
import difflib
import re
import textwrap
import types
import typing
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NoReturn

from gem_core import Env
from gem_core._util.checks import check_int, check_number
from gem_core._util.foreign_json import read_json
from gem_core._util.messages import suggest
from gem_core._util.options import Option, list_options
from gem_core.errors import ConfigError


class HelpFormatter(argparse.RawDescriptionHelpFormatter):
    """Help formatter that wraps paragraphs to the terminal width, except paragraphs with indented lines."""

    def add_argument(self, action: argparse.Action) -> None:
        super().add_argument(action)
        if isinstance(action, argparse._SubParsersAction):
            self._action_max_length += (
                self._indent_increment
            )  # argparse ignores how far commands are indented

    def _fill_text(self, text: str, width: int, indent: str) -> str:
        return "\n\n".join(
            textwrap.indent(
                paragraph if "\n " in paragraph else textwrap.fill(paragraph, width, break_on_hyphens=False),
                indent,
            )
            for paragraph in text.strip("\n").split("\n\n")
        )


class CommandParser(argparse.ArgumentParser):
    """Parser that takes whole flags only and reports a mistake in one line, with the closest name."""

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **{**options, "allow_abbrev": False})

    def error(self, message: str) -> NoReturn:
        self.exit(2, f"{self.prog}: error: {message} (for help: {self.prog} --help)\n")

    def parse_known_args(  # type: ignore[override]
        self, args: Sequence[str] | None = None, namespace: argparse.Namespace | None = None
    ) -> tuple[argparse.Namespace, list[str]]:
        """Parse the arguments; an unknown argument is reported as an error of its command."""
        parsed, unknown = super().parse_known_args(args, namespace)
        if unknown:
            hint = suggest(unknown[0].split("=")[0], self._option_string_actions)
            self.error(
                f"unknown argument {unknown[0]!r}.{hint}" if hint else f"unknown argument {unknown[0]!r}"
            )
        return parsed, unknown

    def _check_value(self, action: argparse.Action, value: Any) -> None:
        if isinstance(action, argparse._SubParsersAction) and value not in action.choices:
            close = difflib.get_close_matches(str(value), action.choices, n=1)
            hint = f"did you mean {close[0]!r}?" if close else f"commands: {', '.join(action.choices)}"
            raise argparse.ArgumentError(None, f"unknown command {value!r}; {hint}")
        super()._check_value(action, value)


@dataclasses.dataclass(frozen=True)
class CliCommand:
    """Help of a command.

    Attributes:
        summary: One line for the list of commands and the top of the command's own help.
        examples: Command lines without the leading ``gem-core NAME``, for the end of the help.
        details: Paragraphs after the options.
    """

    summary: str
    examples: Sequence[str]
    details: str = ""

    def add_parser(
        self, commands: argparse._SubParsersAction[argparse.ArgumentParser], name: str
    ) -> argparse.ArgumentParser:
        """Add the command to `commands` under `name`."""
        lines = [_break_line(f"  gem-core {name} {example}".rstrip()) for example in self.examples]
        return commands.add_parser(
            name,
            help=self.summary,
            description=self.summary[0].upper() + self.summary[1:] + ".",
            epilog="\n".join([*([self.details, ""] if self.details else []), "examples:", *lines]),
            formatter_class=HelpFormatter,
        )


def _break_line(command: str) -> str:
    """Break a command line that is too long for a terminal with 80 columns, before its options."""
    lines = [""]
    for part in re.split(" (?=--)", command):
        if lines[-1] and len(lines[-1]) + len(part) > 76:
            lines.append(f"      {part}")
        else:
            lines[-1] += f" {part}" if lines[-1] else part
    return " \\\n".join(lines)


LIST: Mapping[str, Any] = types.MappingProxyType({"action": "extend", "nargs": "+"})
"""Arguments of `add_argument` for a list: values separated by spaces, after one or more uses of the flag."""


def listed(kind: Callable[[str], Any] = str) -> Callable[[str], Any]:
    """Return an argparse type for one value of a `LIST` whose values hold no comma."""

    def parse(text: str) -> Any:
        if "," in text:
            raise argparse.ArgumentTypeError(f"{text!r}: separate the values by spaces instead of commas")
        return kind(text)

    return parse


def add_json_flag(parser: argparse.ArgumentParser) -> None:
    """Add ``--json``, which prints one JSON document instead of text."""
    parser.add_argument("--json", action="store_true", help="print one JSON document")


def add_env_arguments(parser: argparse.ArgumentParser) -> None:
    """Add ``--kwargs`` and ``--wrappers``, which `build_env` reads."""
    parser.add_argument(
        "--kwargs",
        **LIST,
        default=[],
        metavar="JSON|KEY=VALUE",
        help="arguments for the environment: a JSON object, or key=value",
    )
    parser.add_argument(
        "--wrappers",
        default="",
        metavar="NAMES",
        help="wrappers for the environment, such as 'concat_with_action, time_limit(max_turns=5)'",
    )


def add_access_arguments(parser: argparse.ArgumentParser, variable: str) -> None:
    """Add a group with the address of a server and who may use it: ``host``, ``token_file``, and others.

    Args:
        parser: Parser.
        variable: Environment variable that may hold the token.
    """
    access = parser.add_argument_group("access")
    access.add_argument(
        "--host", default="127.0.0.1", help="address to listen on (default 127.0.0.1, only this machine)"
    )
    access.add_argument(
        "--token-file", metavar="FILE",
        help=f"file with the token that clients must send (default: ${variable}, or no token)",
    )  # fmt: skip
    access.add_argument(
        "--allow-host", **LIST, default=[], metavar="NAME",
        help="further names of the server in the requests of clients; on loopback, only loopback names are "
        "accepted without them",
    )  # fmt: skip
    access.add_argument(
        "--public", action="store_true",
        help="serve everyone who reaches the address, without a token, on another address than loopback",
    )  # fmt: skip


def add_option_flags(parser: argparse.ArgumentParser, config: type[Any], *names: str) -> None:
    """Add a flag for each option of a config that has a help text, in groups by the declaring classes.

    A flag that is not used has the value None; `given_options` returns the others.

    Args:
        parser: Parser.
        config: Dataclass with the options.
        names: The options to add, outside of groups; none for all.
    """
    groups: dict[str, argparse._ActionsContainer] = {}
    for option in list_options(config):
        if option.help and (not names or option.name in names):
            if option.group not in groups:
                groups[option.group] = parser if names else parser.add_argument_group(option.group)
            flag = "--" + option.name.replace("_", "-")
            groups[option.group].add_argument(flag, **_flag(option))


def _flag(option: Option) -> dict[str, Any]:
    """Return the arguments of `add_argument` for an option."""
    text = option.help
    if option.kind is bool:
        return {"action": argparse.BooleanOptionalAction, "default": None, "help": text}
    if typing.get_origin(option.kind) in (list, tuple):
        if option.default:
            text += f" (default {', '.join(option.default)})"
        return {**LIST, "metavar": _LIST_ITEMS[option.name], "help": text}
    if typing.get_origin(option.kind) is dict:
        return {"type": parse_json_object, "metavar": "JSON", "help": text}
    if option.default not in (None, ""):
        text += f" (default {option.default})"
    if typing.get_origin(option.kind) is typing.Literal:
        return {"choices": typing.get_args(option.kind), "help": text}
    return {"type": option.kind, "metavar": "TEXT" if option.kind is str else "N", "help": text}


def given_options(args: argparse.Namespace, config: type[Any]) -> dict[str, Any]:
    """Return the options of a config that the command line sets."""
    given = [(option, getattr(args, option.name, None)) for option in list_options(config)]
    return {
        option.name: tuple(value) if typing.get_origin(option.kind) is tuple else value
        for option, value in given
        if value is not None
    }


ENV_CHOICE = "ID[(KEY=VALUE)][ as NAME][=WEIGHT]", "ID"
"""Metavar of a list of environments: the form of one, as in `EnvChoice.parse`, and of the others."""
_LIST_ITEMS: dict[str, str | tuple[str, str]] = {
    "env": ENV_CHOICE,
    "eval_env": ENV_CHOICE,
    "agent_model": "AGENT=MODEL",
}
"""Maps options that are lists to the form of an item."""


def parse_json_object(text: str) -> dict[str, Any]:
    """Parse the value of a flag that is a JSON object."""
    try:
        value = read_json(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(f"{text!r} is not JSON: {error}") from None
    if not isinstance(value, dict):
        raise argparse.ArgumentTypeError(f"{text!r} is not a JSON object such as '{{\"key\": true}}'")
    return value


def parse_kwargs(texts: Sequence[str]) -> dict[str, Any]:
    """Parse the values of ``--kwargs``: JSON objects and ``key=value`` pairs; later ones win.

    The value of a pair is parsed as JSON if possible (numbers, true, null, lists), otherwise it is text.

    Raises:
        ConfigError: A text has neither form.
    """
    kwargs: dict[str, Any] = {}
    for text in texts:
        key, equals, value = text.partition("=")
        if equals and key.strip().isidentifier():
            kwargs[key.strip()] = _json_or_text(value.strip())
            continue
        try:
            parsed = read_json(text)
        except ValueError as error:
            raise ConfigError(
                f"--kwargs {text!r} is neither key=value nor a JSON object such as "
                f"'{{\"max_turns\": 5}}' ({error})"
            ) from None
        if not isinstance(parsed, dict):
            raise ConfigError(f"--kwargs {text!r} is JSON but not an object such as '{{\"max_turns\": 5}}'")
        kwargs.update(parsed)
    return kwargs


def parse_env(text: str, kwargs: Sequence[str], wrappers: str = "") -> tuple[str, dict[str, Any], str]:
    """Return the id, the keyword arguments, and the wrappers of one environment.

    Args:
        text: ``ID`` or ``ID(key=value, ...)``.
        kwargs: Values of ``--kwargs``, which override those in `text`.
        wrappers: Value of ``--wrappers``, which follow the environment's own.

    Raises:
        ConfigError: `text` has neither form, or it has a weight.
    """
    from gem_core.tasks import EnvChoice

    if "(" not in text:
        return text, parse_kwargs(kwargs), wrappers
    source = EnvChoice.parse(text)
    if source.weight != 1:
        raise ConfigError(f"{text!r}: a single environment has no weight; omit ={source.weight:g}")
    arguments = {**source.arguments, **parse_kwargs(kwargs)}
    own = str(arguments.pop("wrappers", ""))
    return source.env_id, arguments, ", ".join(filter(None, (own, wrappers)))


def is_pattern(text: str) -> bool:
    """Return whether a text is a pattern that can match several ids, as in `gem_core.list_envs`."""
    return "(" not in text and any(sign in text for sign in "*?[")


def build_env(id: str, kwargs: Mapping[str, Any], wrappers: str = "") -> Env:
    """Make the environment that the command line names.

    Raises:
        ConfigError: The environment rejects its arguments.
        GemError: The environment cannot be made; see `gem_core.make`.
    """
    from gem_core._core import require_one_agent
    from gem_core.tasks import EnvChoice

    env = EnvChoice(id, dict(kwargs)).make(wrappers)
    require_one_agent(env, "this command")
    return env


def whole_number(low: int, high: int | None = None) -> Callable[[str], int]:
    """Return an argparse type for an integer from `low` to `high`; None for no upper bound."""

    def parse(text: str) -> int:
        try:
            return check_int("", _converted(int, text), low, high)
        except ConfigError as error:
            raise argparse.ArgumentTypeError(str(error).removeprefix("=")) from None

    return parse


def number_between(
    low: float | None = None, high: float | None = None, *, above: float | None = None
) -> Callable[[str], float]:
    """Return an argparse type for a finite number within bounds; see `check_number`."""

    def parse(text: str) -> float:
        try:
            return check_number("", _converted(float, text), low, high, above=above)
        except ConfigError as error:
            raise argparse.ArgumentTypeError(str(error).removeprefix("=")) from None

    return parse


positive_int = whole_number(1)
a_number = number_between()
positive_float = number_between(above=0)
seed = whole_number(0)


def _converted(kind: Callable[[str], Any], text: str) -> Any:
    """Return the number, or the unchanged text, which every check rejects."""
    try:
        return kind(text)
    except ValueError:
        return text


def _json_or_text(text: str) -> Any:
    try:
        return read_json(text)
    except ValueError:
        return text

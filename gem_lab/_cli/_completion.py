"""``gem-core --print-completion SHELL``: completion of commands, options, choices, ids, and paths."""

from __future__ import annotations

import argparse
import shlex
from collections.abc import Iterator, Sequence
from typing import Any

from gem_core.errors import MissingDependency

SHELLS = ("bash", "zsh", "tcsh")
_IDS = "_gem_core_ids"
"""Shell function that completes the id of an environment."""
_BASH = """\
{function}() {{
  compgen -W {ids} -- "$1"
}}
"""
_BASH_COLONS = """
# Bash splits words at colons, which ids contain.
_gem_core() {
  local line="${COMP_LINE:0:COMP_POINT}"
  local -a COMP_WORDS
  read -ra COMP_WORDS <<< "$line"
  [[ $line == *[[:space:]] ]] && COMP_WORDS+=("")
  local COMP_CWORD=$((${#COMP_WORDS[@]} - 1))
  local word="${COMP_WORDS[COMP_CWORD]}"
  _shtab_gem_core
  if [[ $COMP_WORDBREAKS == *:* && $word == *:* ]]; then
    COMPREPLY=("${COMPREPLY[@]#"${word%:*}:"}")
  fi
}
complete -o bashdefault -F _gem_core gem-core
"""
_ZSH = """\
{function}() {{
  local -a ids=({ids})
  compadd -a ids
}}
"""


class PrintCompletion(argparse.Action):
    """Option that prints the completion script of a shell and exits."""

    def __call__(
        self,
        parser: argparse.ArgumentParser,
        namespace: argparse.Namespace,
        values: str | Sequence[Any] | None,
        option_string: str | None = None,
    ) -> None:
        print(completion_script(parser, str(values)), end="")
        parser.exit()


def completion_script(parser: argparse.ArgumentParser, shell: str) -> str:
    """Return the completion script of a shell, with the ids that are registered now.

    Args:
        parser: Parser of all commands. Completion hints are added to its actions.
        shell: One of `SHELLS`.

    Raises:
        MissingDependency: shtab is not installed.
    """
    try:
        import shtab
    except ModuleNotFoundError as error:
        message = "--print-completion needs the package 'shtab': pip install 'gem-core[completion]'"
        raise MissingDependency(message) from error
    from gem_core import list_envs

    ids = list_envs()
    complete = {
        **dict.fromkeys(("FILE", "PATH", "RUN", "TRACE|DIR"), shtab.FILE),
        **dict.fromkeys(("DIR", "FOLDER"), shtab.DIRECTORY),
        "ID": {"bash": _IDS, "zsh": _IDS, "tcsh": f"({' '.join(ids)})"},
    }
    for action in _actions(parser):
        form = action.metavar[0] if isinstance(action.metavar, tuple) else action.metavar or ""
        kind = form.split("[")[0]
        if kind in complete and action.choices is None:
            action.complete = complete[kind]  # type: ignore[attr-defined]
    preamble = {
        "bash": _BASH.format(function=_IDS, ids=shlex.quote(" ".join(ids))),
        "zsh": _ZSH.format(function=_IDS, ids=shlex.join(ids)),
    }
    script: str = shtab.complete(parser, shell, preamble=preamble.get(shell, ""))
    return script.rstrip("\n") + (_BASH_COLONS if shell == "bash" else "\n")


def _actions(parser: argparse.ArgumentParser) -> Iterator[argparse.Action]:
    """Yield the actions of a parser and of its commands."""
    for action in parser._actions:
        yield action
        if isinstance(action, argparse._SubParsersAction):
            for command in action.choices.values():
                yield from _actions(command)

"""What a recorded configuration could run or open on this machine: `check_trusted`."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from gem_core import list_envs
from gem_core._util.visible import visible
from gem_core.errors import ConfigError
from gem_core.tasks import EnvChoice

_DATA = re.compile(r"\b(?:dataset|corpus|split|subset)='[\w./-]*'")
"""Arguments that name data, which is only read."""
_WORD = re.compile(r"[^\s,()=\[\]{}'\"]+")
_PROGRAMS = frozenset(re.findall(r"\w+", """
    mcp command cmd args env config folder root path file url server image level agent agents user model
    entry_point packages run_script module token cwd
"""))  # fmt: skip
"""Names of tools and arguments that start programs, import modules, connect, or choose the isolation."""
_PLAIN = re.compile(r"[\w.+-]*")


def check_trusted(config: Mapping[str, Any]) -> None:
    """Check that a recorded configuration uses only registered environments, with plain arguments.

    Raises:
        ConfigError: It names files, programs, or addresses; the message lists them.
    """
    suspects = [text for text in map(str, config["env"]) if not _is_plain_env(text)]
    wrappers = str(config.get("wrappers") or "")
    suspects += [] if _is_plain(wrappers) else [wrappers]
    if suspects:
        listed = "".join(f"\n  {visible(text, lines=False)}" for text in suspects)
        raise ConfigError(
            f"the recorded run uses files, programs, or addresses:{listed}; add --trust-run if you trust them"
        )


def _is_plain_env(text: str) -> bool:
    source = EnvChoice.parse(text)
    return source.env_id in list_envs() and _is_plain(text.partition("(")[2])


def _is_plain(text: str) -> bool:
    """Return whether all names and values are plain words, and none means a program."""
    words = _WORD.findall(_DATA.sub("", text))
    return all(_PLAIN.fullmatch(word) and word not in _PROGRAMS for word in words) and ".py" not in text

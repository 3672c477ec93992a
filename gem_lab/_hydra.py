"""The config of a trainer's command with ``@hydra.main``, for `gem-core doctor`."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from gem_core._util.messages import error_text
from gem_core.errors import ConfigError


def read_flags(arguments: Sequence[str]) -> Any:
    """Return the flags of a command with ``@hydra.main``, with its overrides as ``overrides``.

    Args:
        arguments: Arguments of the command: flags of hydra, and overrides such as ``algorithm.gamma=0.9``.

    Raises:
        ConfigError: A flag is abbreviated or unknown, or the command would not start one run.
    """
    from hydra._internal.utils import get_args_parser

    parser = get_args_parser()
    parser.allow_abbrev = False
    flags, rest = parser.parse_known_args(arguments)
    for option in _OTHER_MODES:
        if getattr(flags, option):
            flag = option.replace("_", "-")
            raise ConfigError(f"--{flag} does not start one run, so there is nothing to check")
    if rest:
        advice = "write the flags of hydra in full, such as --config-name, and all overrides together"
        raise ConfigError(f"hydra does not read {rest[0]!r} here: {advice}")
    return flags


def compose_job(folder: str | Path, name: str, flags: Any, overrides: Sequence[str]) -> tuple[Any, Any]:
    """Return the config of a command with ``@hydra.main``, and hydra's section ``job``.

    Interpolations are not resolved.

    The flags ``--config-name``, ``--config-path``, and ``--config-dir`` choose the files as in the command.

    Args:
        folder: Folder of the trainer's YAML files, next to the script of the command.
        name: Name of the main file, without ``.yaml``.
        flags: Flags from `read_flags`.
        overrides: Overrides, such as ``algorithm.gamma=0.9``.

    Raises:
        ConfigError: An override cannot be parsed, there is no such folder, or the command would start several
            runs.
        hydra.errors.HydraException: A file does not exist, or an override names an unknown option.
    """
    from hydra import version
    from hydra._internal.hydra import Hydra
    from hydra._internal.utils import create_automatic_config_search_path
    from hydra.core.config_search_path import SearchPathQuery
    from hydra.core.global_hydra import GlobalHydra
    from hydra.errors import OverrideParseException
    from hydra.types import RunMode
    from omegaconf import open_dict

    folder = Path(folder).resolve()
    script = str(folder.parent / "command.py")
    search_path = create_automatic_config_search_path(script, None, flags.config_path or folder.name)
    if flags.config_dir is not None:
        more = Path(flags.config_dir).resolve()
        if not more.is_dir():
            raise ConfigError(f"--config-dir={flags.config_dir}: there is no such folder")
        search_path.prepend("command-line", f"file://{more}", SearchPathQuery(provider="schema"))
    try:
        version.setbase(None)
        hydra = Hydra.create_main_hydra2("doctor", search_path)
        config = hydra.compose_config(
            flags.config_name or name, list(overrides), RunMode.RUN, with_log_configuration=False
        )
    except OverrideParseException as error:
        quoted = (
            "quote entries of a list that contain = ( ) or a comma, as in data.train_files=\"['ID=0.2']\""
        )
        raise ConfigError(f"{error_text(error)}; {quoted}") from error
    finally:
        GlobalHydra.instance().clear()
    with open_dict(config):
        own = config.pop("hydra")
    if own.mode == RunMode.MULTIRUN:
        raise ConfigError("hydra.mode=MULTIRUN does not start one run, so there is nothing to check")
    return config, own.job


_OTHER_MODES = (
    "help", "hydra_help", "cfg", "resolve", "package", "multirun", "shell_completion", "experimental_rerun",
    "info",
)  # fmt: skip
"""Flags of hydra with which a command shows something, or starts several runs."""

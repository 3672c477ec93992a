"""`compose_command`: the config that a verl command composes."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from gem_core._util.messages import error_line, error_text
from gem_core.errors import ConfigError


def compose_command(folder: str | Path, name: str, arguments: Sequence[str]) -> tuple[Any, bool]:
    """Return the config of a command with ``@hydra.main``, and whether the run starts in a new folder.

    Interpolations are resolved as in verl, whose task runner is another process: it knows the variables of
    ``hydra.job.env_set``, but no resolver of hydra, such as ``now``.

    The flags ``--config-name``, ``--config-path``, and ``--config-dir`` choose the files as in the command.

    Args:
        folder: Folder of the trainer's YAML files, next to the script of the command.
        name: Name of the main file, without ``.yaml``.
        arguments: Arguments of the command: flags of hydra, and overrides such as ``algorithm.gamma=0.9``.

    Raises:
        ConfigError: A flag is abbreviated or unknown, an override cannot be parsed, a value cannot be
            resolved, or the command would not start one run.
        hydra.errors.HydraException: A file does not exist, or an override names an unknown option.
    """
    from hydra import version
    from hydra._internal.hydra import Hydra
    from hydra._internal.utils import create_automatic_config_search_path, get_args_parser
    from hydra.core.config_search_path import SearchPathQuery
    from hydra.core.global_hydra import GlobalHydra
    from hydra.core.utils import env_override
    from hydra.errors import OverrideParseException
    from hydra.types import RunMode
    from omegaconf import OmegaConf, open_dict
    from omegaconf.errors import OmegaConfBaseException, UnsupportedInterpolationType

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
            flags.config_name or name, flags.overrides, RunMode.RUN, with_log_configuration=False
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
    for resolver in _RESOLVERS:
        OmegaConf.clear_resolver(resolver)  # hydra registers them again
    try:
        with env_override(dict(own.job.env_set)):
            OmegaConf.to_container(config, resolve=True)  # its errors name the option
            OmegaConf.resolve(config)
    except OmegaConfBaseException as error:
        what = f"{error.full_key}: {error_line(error).partition(' full_key: ')[0]}"
        if isinstance(error, UnsupportedInterpolationType):
            what += (
                "; the process of the run that reads it knows no resolver of hydra, so let the shell insert "
                "such a value, as in trainer.experiment_name=$(date +%F)"
            )
        raise ConfigError(what) from error
    return config, bool(own.job.chdir)


_RESOLVERS = ("hydra", "now", "python_version")
"""Resolvers that hydra registers in the process of a command only."""
_OTHER_MODES = (
    "help", "hydra_help", "cfg", "resolve", "package", "multirun", "shell_completion", "experimental_rerun",
    "info",
)  # fmt: skip
"""Flags of hydra with which a command shows something, or starts several runs."""

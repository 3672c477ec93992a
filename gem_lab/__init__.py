"""The laboratory: reference trainer, engines, evaluation, checks, exam, recipes, and the command line."""

from __future__ import annotations

from typing import TYPE_CHECKING

from gem_core._util.lazy import lazy_names

if TYPE_CHECKING:
    from gem_lab._checker import CheckReport, EnvContract, check_env
    from gem_lab._cli import main
    from gem_lab._discovery import load_trainer, register_trainer

__all__ = [
    "CheckReport",
    "EnvContract",
    "check_env",
    "load_trainer",
    "main",
    "register_trainer",
]

__getattr__, __dir__ = lazy_names(
    __name__,
    {
        "gem_lab._checker": ["CheckReport", "EnvContract", "check_env"],
        "gem_lab._cli": ["main"],
        "gem_lab._discovery": ["load_trainer", "register_trainer"],
    },
)

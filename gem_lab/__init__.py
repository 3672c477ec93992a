"""The laboratory: reference trainer, engines, evaluation, checks, exam, recipes, and the command line."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from gem_lab.checker import check_env

__all__ = ["check_env"]


def __getattr__(name: str) -> Any:
    if name == "check_env":
        from gem_lab.checker import check_env

        return check_env
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")

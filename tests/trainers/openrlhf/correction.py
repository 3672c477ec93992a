"""The log-prob correction in the flags of the installed OpenRLHF, which 0.11.2 renamed."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from typing import Any

LEVEL = {
    "off": {},
    "icepop": {"level": "token"},
    "tis": {"level": "token", "mode": "clip"},
    "seq-mask-tis": {"level": "seq"},
}
"""Flags of OpenRLHF 0.11.2 by scheme."""
TYPE: dict[str, dict[str, str | None]] = {
    "off": {},
    **{name: {"enable": None, "type": name} for name in ("icepop", "tis", "seq-mask-tis")},
}
"""Flags of OpenRLHF 0.11.0 and 0.11.1 by scheme."""


def has_levels() -> bool:
    """Return whether the command has the newer flags; OpenRLHF is not imported."""
    spec = importlib.util.find_spec("openrlhf")
    assert spec is not None
    assert spec.origin is not None
    return (
        "is_correction_level" in Path(spec.origin).with_name("cli").joinpath("train_ppo_ray.py").read_text()
    )


def flags(scheme: str, table: Any = None) -> dict[str, str | None]:
    """Return the flags of a scheme.

    Args:
        scheme: Key of `LEVEL`.
        table: `LEVEL` or `TYPE`; None for the flags of the installed version.
    """
    chosen = table or (LEVEL if has_levels() else TYPE)
    return {f"algo.advantage.is_correction_{name}": value for name, value in chosen[scheme].items()}


def policy_loss(advantage: Any) -> Any:
    """Return OpenRLHF's loss with the correction of parsed flags, as its actor creates it."""
    from openrlhf.models.loss import PolicyLoss

    if has_levels():
        names = ("level", "mode", "gating", "threshold")
        return PolicyLoss(**{f"is_correction_{n}": getattr(advantage, f"is_correction_{n}") for n in names})
    return PolicyLoss(
        enable_vllm_is_correction=advantage.is_correction_enable,
        vllm_is_truncated_threshold=advantage.is_correction_threshold,
        vllm_is_correction_type=advantage.is_correction_type,
    )

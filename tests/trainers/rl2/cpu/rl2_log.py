"""Records RL2's metrics in the folder GEM_SPY, for tests."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any


def install() -> None:
    """Replace wandb, to which RL2 logs."""
    import wandb

    wandb.init = lambda **options: None
    wandb.log = note_metrics


def note_metrics(metrics: dict[str, Any], step: int | None = None, **unused: Any) -> None:
    with open(Path(os.environ["GEM_SPY"]) / "metrics.jsonl", "a", encoding="utf-8") as file:
        file.write(json.dumps({"step": step, **metrics}) + "\n")

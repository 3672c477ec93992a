"""Notes what RL2 logs, for tests; writes into the folder GEM_SPY."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any


def install() -> None:
    """RL2 logs to wandb."""
    import wandb

    wandb.init = lambda **options: None
    wandb.log = note_metrics


def note_metrics(metrics: dict[str, Any], step: int | None = None, **unused: Any) -> None:
    with open(Path(os.environ["GEM_SPY"]) / "metrics.jsonl", "a", encoding="utf-8") as file:
        file.write(json.dumps({"step": step, **metrics}) + "\n")

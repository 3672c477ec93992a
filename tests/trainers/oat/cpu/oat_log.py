"""Writes Oat's metrics as JSON Lines to the file GEM_OAT_LOG; Oat itself prints them or sends them to wandb.

Loaded by ``--modules oat_log``.
"""

from __future__ import annotations

import json
import os
from typing import Any

from oat.utils.deepspeed import DeepspeedStrategy

_pprint = DeepspeedStrategy.pprint


def _writing(self: Any, *values: Any) -> None:
    (content,) = values
    if "misc/global_step" in content and self.is_rank_0():
        with open(os.environ["GEM_OAT_LOG"], "a", encoding="utf-8") as file:
            file.write(json.dumps(content) + "\n")
    _pprint(self, *values)


DeepspeedStrategy.pprint = _writing

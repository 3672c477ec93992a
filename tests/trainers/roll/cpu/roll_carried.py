"""A spy: the pipeline, which records a batch's episodes before ROLL copies or drops any."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

from gem_roll._failures import FAILED
from gem_roll._pipeline import ReBNAgenticPipeline
from gem_roll._rows import EPISODE_JSON


class NotingPipeline(ReBNAgenticPipeline):
    """Pipeline that writes ``carried.jsonl``."""

    def adjust_batch(self, data: Any, mode: str = "copy") -> Any:
        with open(Path(os.environ["GEM_SPY"]) / "carried.jsonl", "a", encoding="utf-8") as file:
            for row, text in enumerate(data.non_tensor_batch[EPISODE_JSON]):
                if not text:
                    continue  # not the first row of its episode
                length = int(data.batch["attention_mask"][row].sum())
                tokens = data.batch["input_ids"][row][:length].tolist()
                file.write(json.dumps({"token_ids": tokens, "episode": json.loads(text)}) + "\n")
            for text in data.meta_info.get(FAILED, []):
                file.write(json.dumps({"token_ids": [], "episode": json.loads(text)}) + "\n")
        return super().adjust_batch(data, mode)

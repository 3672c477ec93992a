"""Rows of datasets from local files, the Hugging Face Hub, or a generator.

`open_rows` opens a dataset. The returned object reads rows on demand, and all environments of the process
share it.
"""

from __future__ import annotations

from gem_core._util.order import Order
from gem_envs.data.open import open_rows
from gem_envs.data.rows import DataRow, GeneratedRows, Rows
from gem_envs.data.split import (
    EVAL_SHARE,
    ItemSplit,
    is_eval_item,
    split_by_content,
    split_by_index,
    undivided,
)

__all__ = [
    "EVAL_SHARE",
    "GeneratedRows",
    "ItemSplit",
    "Order",
    "DataRow",
    "Rows",
    "is_eval_item",
    "open_rows",
    "split_by_content",
    "split_by_index",
    "undivided",
]

"""Rows of datasets from local files, the Hugging Face Hub, or a generator.

`open_rows` opens a dataset. The returned object reads rows on demand, and all environments of the process
share it.
"""

from __future__ import annotations

from gem_envs.data._open import open_rows
from gem_envs.data._rows import GeneratedRows, Rows

__all__ = ["GeneratedRows", "Rows", "open_rows"]

"""A user computes ReBN in their own training loop, as the page says.

After the imports, it takes less than 1 s on two CPU cores.

`tests/docs/test_blocks.py` runs the page; here its loop has to learn, and to learn because of the advantages.
"""

from __future__ import annotations

from typing import Any

import pytest

import gem_core.advantages
from tests.docs.blocks import blocks

pytest.importorskip("torch", reason="needs the extra 'train'")
(LOOP,) = [block.code for block in blocks("docs/concepts/rebn.md") if "solved = []" in block.code]


def solved() -> list[int]:
    """Run the loop of the page, and return how many of 16 episodes each update solved."""
    names: dict[str, Any] = {}
    exec(compile(LOOP, "docs/concepts/rebn.md", "exec"), names)
    return names["solved"]


def test_the_loop_learns_with_the_advantages_only(monkeypatch: pytest.MonkeyPatch) -> None:
    learned = solved()
    rebn = gem_core.advantages.rebn
    monkeypatch.setattr(
        gem_core.advantages, "rebn", lambda *args, **kwargs: [0 * a for a in rebn(*args, **kwargs)]
    )
    unchanged = solved()
    assert learned[0] == unchanged[0]  # the same sampled guesses
    assert min(learned[-5:]) > 14
    assert 3 < sum(unchanged) / 20 < 8  # 1 - 0.9**4 of 16 are 5.5

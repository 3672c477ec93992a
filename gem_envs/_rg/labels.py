"""Labels that the package gets wrong, and items without an answer, replaced when an item is made.

`gem_envs._rg.solvers` decides. A wrong label is replaced by the solver's answer if that is the only right
one; otherwise the item is drawn again with another seed.
"""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

from gem_envs._rg.conclusions import Conclusions
from gem_envs._rg.solvers import JUDGES, SOLVERS
from gem_envs.data._rows import DataRow

CORRECTED = frozenset(
    {
        "advanced_geometry",
        "aiw",
        "basic_arithmetic",
        "calendar_arithmetic",
        "circuit_logic",
        "family_relationships",
        "figlet_font",
        "gsm_symbolic",
        "intermediate_integration",
        "knight_swap",
        "list_functions",
        "mahjong_puzzle",
        "manipulate_matrix",
        "number_filtering",
        "number_sequence",
        "polynomial_equations",
        "pool_matrix",
        "power_function",
        "quantum_lock",
        "sentence_reordering",
        "simple_geometry",
        "simple_integration",
        "string_manipulation",
        "string_synthesis",
        "survo",
        "syllogism",
        "time_intervals",
        "tsumego",
    }
)
"""Datasets with false labels or impossible items; the documentation says which. The solvers of the other
datasets run in tests only, because they take time and find nothing."""
NOTES = {
    "calendar_arithmetic": "\nDates are written month/day/year. A year that is not named has 365 days.",
    "color_cube_rotation": "\nA half turn brings the bottom to the top and swaps front and back; a quarter"
    " turn brings any other side to the top.",
    "leg_counting": "\nThe five arms of a starfish count as legs.",
    "manipulate_matrix": "\nRotations are clockwise. A horizontal mirror swaps top and bottom, a vertical"
    " mirror left and right.",
    "pool_matrix": "\nAt the right and bottom edges, a region may be smaller than the kernel.",
    "power_function": "\nA sign before the number belongs to the base: -2^2 means (-2)^2.",
    "quantum_lock": "\nA button can be pressed only in the light that it names.",
    "string_manipulation": "\nOf two middle characters, the right one is removed.",
    "string_synthesis": "\nAlways use the first rule that can be used, and start again from rule 1 after"
    " each use.",
    "syllogism": "\nEach of these groups has at least one member.",
}
"""Text added to the prompts of a dataset whose labels assume something that the prompt does not say."""
_NOTED = {"leg_counting": "starfish"}
"""Text without which a prompt needs no note, for datasets in which some prompts need none."""
_EXAMPLES = ("possible_answer", "example_answer", "example_correct_answer")
"""Metadata keys of a right answer, for datasets that accept many answers and name none."""
_STRIDE = 2**31
"""Distance between the seeds that are tried for one item, larger than the seeds of all other items."""
_MOST_DRAWS = 1000


def label(row: DataRow) -> str | None:
    """Return the right answer that an item provides; None if it provides none."""
    answer, metadata = row.get("answer"), row.get("metadata", {})
    for key in _EXAMPLES if answer is None else ():
        answer = answer or metadata.get(key)
    if isinstance(answer, (dict, list)):  # the parsers of these datasets expect JSON
        answer = json.dumps(answer)
    return None if answer is None else str(answer)


def corrected(name: str, data: Any) -> Any:
    """Return a dataset with right labels, also inside a mix; `data` itself if nothing is known wrong."""
    if name == "propositional_logic":
        data = Conclusions(data.config)
        data[0]  # settings without items are rejected here
    elif name in CORRECTED:
        data = Corrected(name, data)
    elif name in NOTES:
        data = Noted(name, data)
    for part, inner in getattr(data, "datasets", {}).items():
        data.datasets[part] = corrected(part, inner)
    return data


class Noted:
    """A dataset of the package with notes in its prompts; everything but the items is the package's own."""

    def __init__(self, name: str, data: Any) -> None:
        self._name = name
        self._data = data
        self._note = NOTES.get(name, "")
        self._needs_note = _NOTED.get(name, "")

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__") or name == "_data":
            raise AttributeError(name)
        return getattr(self._data, name)

    def __len__(self) -> int:
        return len(self._data)

    def __getitem__(self, index: int) -> DataRow:
        """Return item `index`, with its note."""
        item: DataRow = self._data[index]
        if self._needs_note in item["question"]:
            item["question"] += self._note
        return item


class Corrected(Noted):
    """A dataset with right labels."""

    def __getitem__(self, index: int) -> DataRow:
        """Return item `index`.

        Raises:
            ValueError: No item with a right answer was found.
        """
        for draw in range(_MOST_DRAWS):
            item = self._drawn(index, draw)
            item["question"] += self._note
            answer = label(item)
            verdict = answer is not None and JUDGES[self._name](item["question"], answer)
            if verdict is False and self._name in SOLVERS:
                item["answer"] = SOLVERS[self._name](item["question"])
                verdict = item["answer"] is not None
            if verdict:
                item["metadata"]["source_index"] = index
                return item
        raise ValueError(f"none of {_MOST_DRAWS} items of {self._name!r} has a right answer")

    def _drawn(self, index: int, draw: int) -> DataRow:
        """Return item `index` of the package, or of a later draw one whose seed is larger by the stride."""
        shift, data = draw * _STRIDE, self._data
        if draw and hasattr(data, "task_indices"):  # the kind of each item, drawn when a dataset is created
            data, shift = type(data)(replace(data.config, seed=data.seed + shift)), 0
        item: DataRow = data[index + shift]
        return item

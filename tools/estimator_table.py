"""Write the table of estimators and trainers in docs/concepts/estimators.md, from what the plugins declare.

    python tools/estimator_table.py docs/concepts/estimators.md

The part between ``<!-- estimators -->`` and ``<!-- end -->`` is replaced.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from marked import rewrite_page, with_part

from gem_core.advantages import get_estimator, list_estimators
from gem_core.advantages._registry import names_in_trainer
from gem_lab import load_trainer
from gem_lab.train._config import SUPPLIES

REFERENCE = "`gem-core train`"


def rows() -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield each estimator of gem_core, and again with each option that changes its needs."""
    for name in list_estimators():
        estimator = get_estimator(name)
        if not estimator.__module__.startswith("gem_core.advantages."):
            continue  # registered by another package
        yield name, {}
        for option, values in estimator.option_needs.items():
            for value in values:
                yield name, {option: value}


def cell(name: str, options: dict[str, Any], own: Sequence[str], supplies: Sequence[str]) -> str:
    """Return the name of an estimator in a trainer's config, or what the trainer does not supply."""
    missing = [need for need in get_estimator(name).needs_with(options) if need not in supplies]
    if missing:
        return f"no {', '.join(f'`{need}`' for need in missing)}"
    accepted = names_in_trainer(own)
    return f"`{name if name in accepted else f'gem_{name}'}`"


def table() -> str:
    """Return the table."""
    trainers = [(REFERENCE, None)] + [(trainer.name, trainer) for trainer in _supported()]
    lines = ["| estimator | " + " | ".join(name for name, _ in trainers) + " |"]
    lines.append("|---" * (1 + len(trainers)) + "|")
    for name, options in rows():
        estimator = get_estimator(name)
        label = f"`{name}`" + "".join(f', `{option}="{value}"`' for option, value in options.items())
        cells = [
            cell(name, options, (), SUPPLIES)
            if trainer is None
            else cell(name, options, trainer.own_estimators, trainer.supplies_for(estimator))
            for _, trainer in trainers
        ]
        lines.append(f"| {label} | " + " | ".join(cells) + " |")
    masks = [
        "yes" if "truncated" in supplies else "except those with statistics" if "truncated" in rest else "no"
        for supplies, rest in _supplied(trainers)
    ]
    lines.append('| `truncation="mask"` | ' + " | ".join(masks) + " |")
    return "\n".join(lines) + "\n"


def _supported() -> list[Any]:
    return [load_trainer(name).supported for name in ("verl", "openrlhf", "trl", "oat", "rl2", "roll")]


def _supplied(trainers: Sequence[tuple[str, Any]]) -> Iterator[tuple[Sequence[str], Sequence[str]]]:
    """Yield what each trainer supplies to estimators with statistics, and to the others."""
    with_stats = get_estimator("rebn")
    for _, trainer in trainers:
        if trainer is None:
            yield SUPPLIES, SUPPLIES
        else:
            yield trainer.supplies_for(with_stats), trainer.supplies


def fill(text: str) -> str:
    """Return a page with the table in its place."""
    return with_part(text, "estimators", f"\n{table()}\n")


if __name__ == "__main__":
    rewrite_page(__doc__, fill)

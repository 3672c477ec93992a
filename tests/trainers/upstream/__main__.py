"""Record the exam of a trainer's own estimators, or redraw the tables of the documentation.

python -m tests.trainers.upstream record verl   # in the environment of that trainer
python -m tests.trainers.upstream draw
"""

from __future__ import annotations

import contextlib
import importlib
import sys

from tests.trainers.upstream import exam, tables


def main(command: str, *trainers: str) -> None:
    """Run one command."""
    for trainer in trainers:
        importlib.import_module(f"tests.trainers.{trainer}.conftest")  # makes the trainer importable
        module = importlib.import_module(f"tests.trainers.{trainer}.upstream")
        with getattr(module, "session", contextlib.nullcontext)():
            print(exam.record(trainer, module.CALLS))
    if command == "draw":
        tables.PAGE.write_text(tables.fill(tables.PAGE.read_text(encoding="utf-8")), encoding="utf-8")


if __name__ == "__main__":
    main(*sys.argv[1:])

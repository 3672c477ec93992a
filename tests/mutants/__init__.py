"""Mutants of the reference solutions of generated tasks, and how many of them a task pays.

`python -m tests.mutants programs` prints a row of the table in `docs/results/mutants.md`.
"""

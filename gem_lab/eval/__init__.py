"""Evaluation of a policy on environments, and web pages for reading the episodes.

    outcome = evaluate(EvalConfig("random", ["game:Mastermind-v0-easy"], episodes=50, out="runs/random"))
    outcome.summary["overall"]["return"]

Models behind an endpoint require the extra ``eval``; models in a folder require the extra ``train``.
"""

from __future__ import annotations

from gem_lab.eval._atif import from_atif, read_atif, to_atif
from gem_lab.eval._compare import paired_differences
from gem_lab.eval._config import EvalConfig
from gem_lab.eval._inspect_read import read_inspect_log
from gem_lab.eval._policies import PolicySetup
from gem_lab.eval._report import read_run
from gem_lab.eval._rescore import rescore
from gem_lab.eval._run import EvalOutcome, evaluate

__all__ = [
    "EvalConfig",
    "EvalOutcome",
    "PolicySetup",
    "evaluate",
    "from_atif",
    "paired_differences",
    "read_atif",
    "read_inspect_log",
    "read_run",
    "rescore",
    "to_atif",
]

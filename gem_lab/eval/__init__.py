"""Evaluation of a policy on environments, and web pages for reading the episodes.

    outcome = evaluate(EvalConfig("random", ["game:Mastermind-v0-easy"], episodes=50, out="runs/random"))
    outcome.summary["overall"]["return"]

Models behind an endpoint require the extra ``eval``; models in a folder require the extra ``train``.
"""

from __future__ import annotations

from gem_core.rollout.metrics import evaluation_metrics
from gem_lab.eval.compare import paired_differences
from gem_lab.eval.config import EvalConfig
from gem_lab.eval.policies import PolicySetup
from gem_lab.eval.report import read_run
from gem_lab.eval.rescore import Rescoring, rescore
from gem_lab.eval.run import EvalOutcome, EvalReporter, evaluate
from gem_lab.eval.summary import summarize

__all__ = [
    "EvalConfig",
    "EvalOutcome",
    "PolicySetup",
    "EvalReporter",
    "Rescoring",
    "evaluate",
    "evaluation_metrics",
    "paired_differences",
    "read_run",
    "rescore",
    "summarize",
]

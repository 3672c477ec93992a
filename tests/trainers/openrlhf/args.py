"""OpenRLHF's flags, batches, and experience maker without a trainer."""

from __future__ import annotations

import contextlib
import os
import runpy
import sys
from types import SimpleNamespace
from typing import Any
from unittest import mock

import gem_openrlhf.agent
import torch
from gem_openrlhf import _train_ppo_ray
from gem_openrlhf._options import VARIABLE, GemOptions
from openrlhf.trainer.ppo_utils.experience import Experience
from openrlhf.trainer.ppo_utils.kl_controller import FixedKLController
from openrlhf.trainer.ppo_utils.samples_generator import SamplesGenerator
from openrlhf.utils.config import hierarchize

AGENT = ("--train.agent_func_path", gem_openrlhf.agent.__file__, "--data.label_key", "label")
"""Flags of gem_core's agent."""


class Parsed(Exception):
    """Raised to return the flags from the command, which would otherwise start Ray."""


def parse(*words: str) -> Any:
    """Return the nested flags that GEM's command passes to OpenRLHF's code; checked, with nothing started.

    Raises:
        GemError: The command would print this error.
        SystemExit: The parser exits.
    """
    seen = []
    original = _train_ppo_ray.prepare

    def prepare(parsed: Any) -> None:
        original(parsed)
        seen.append(hierarchize(parsed))
        raise Parsed

    with (
        mock.patch.dict(os.environ),
        mock.patch.object(_train_ppo_ray, "prepare", prepare),
        contextlib.suppress(Parsed),
    ):
        _run(words)
    (args,) = seen
    return args


def _run(words: tuple[str, ...]) -> None:
    argv = ["train_ppo_ray", *words]
    with mock.patch.object(sys, "argv", argv), _train_ppo_ray._flags_added([]):
        runpy.run_module(_train_ppo_ray.COMMAND, run_name="__main__", alter_sys=True)


def experience_maker(*words: str, kl_coef: float = 0.0, environment: dict[str, Any] | None = None) -> Any:
    """Return GEM's experience maker as created by a trainer with these flags, without models.

    `environment` contains options for the environment variable instead of flags.
    """
    from gem_openrlhf._experience_maker import GemExperienceMaker

    args = parse("--algo.advantage.estimator", "rebn", *words)
    strategy = SimpleNamespace(args=args)
    options = GemOptions.load(environment or vars(args.gem))
    with mock.patch.dict(os.environ, {VARIABLE: options.to_text()}):
        return GemExperienceMaker(None, None, None, None, FixedKLController(kl_coef), strategy, None)


def experiences(responses: list[dict[str, Any]], first: int = 0) -> Any:
    """Return the micro-batch that OpenRLHF makes from an agent's responses for the experience maker.

    Args:
        responses: Return values of the agent.
        first: Position of the first response in the whole batch.
    """
    rows = []
    for index, response in enumerate(responses, start=first):
        row = SamplesGenerator._process_response_into_experience(None, response, max_len=4096)
        row.index = [index]
        row.kl = torch.zeros(row.action_mask.shape)
        rows.append(row)
    return Experience.concat_experiences(rows, 0)

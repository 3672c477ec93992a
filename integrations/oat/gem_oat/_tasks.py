"""The tasks of a run, and its progress through them, which Oat's checkpoints do not contain."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from itertools import product
from pathlib import Path
from typing import TYPE_CHECKING

from gem_core._util.files import write_atomically
from gem_core.errors import ConfigError
from gem_core.tasks import EnvChoice, make_tasks

if TYPE_CHECKING:
    from gem_oat._args import Args

FILE = "gem_progress.json"
COUNTERS = ("global_step", "pi_beta_version", "policy_sgd_step", "prompt_consumed", "query_step")
"""Attributes of Oat's learner that are counters, with the same values on all ranks."""


@dataclass(frozen=True)
class Progress:
    """Progress at a checkpoint.

    Attributes:
        steps: Number of batches that were collected.
        tasks: Number of tasks that each actor has started.
        counters: Oat's counters; see `COUNTERS`.
    """

    steps: int
    tasks: list[int]
    counters: dict[str, float]

    def write(self, checkpoint: Path) -> None:
        """Write the file into the folder of a checkpoint."""
        write_atomically(checkpoint / FILE, [json.dumps(asdict(self))])


def progress_of(args: Args) -> Progress:
    """Return the progress at the checkpoint that a run resumes from, or at the beginning of a run.

    Raises:
        ConfigError: The checkpoint does not exist, is incomplete, or does not match the arguments.
    """
    if not args.resume_dir:
        return Progress(0, [0] * args.actors, {})
    try:
        tag = args.resume_tag or Path(args.resume_dir, "latest").read_text(encoding="utf-8").strip()
        progress = Progress(**json.loads(Path(args.resume_dir, tag, FILE).read_text(encoding="utf-8")))
    except (OSError, TypeError, ValueError) as error:
        raise ConfigError(
            f"--resume-dir={args.resume_dir}: expected the folder 'checkpoints' of a run of this plugin with "
            f"--save-ckpt, and --resume-tag to name a complete checkpoint ({error})"
        ) from error
    if len(progress.tasks) != args.actors:
        raise ConfigError(f"--resume-dir: a run of {len(progress.tasks)} actors; this one has {args.actors}")
    return progress


def task_prompts(sources: Sequence[EnvChoice], rows: int, seed: int) -> list[tuple[str, str, str]]:
    """Return the training tasks as Oat's prompts, one for each row that will be trained on.

    An episode has at least one turn, so this many tasks always suffice. An actor keeps the tasks that it does
    not need for later steps, so no item of a dataset is skipped. Oat plans learning rates by the number of
    tasks.

    Args:
        sources: Environments of the mix.
        rows: Number of rows of the whole run.
        seed: Random seed that chooses the tasks.

    Returns:
        Formatted prompt, prompt, and reference, as in Oat. The prompt is the task as JSON.
    """
    return [("", json.dumps(task), "") for task in make_tasks(sources, rows, seed=seed)]


def task_order(args: Args, rank: int, total: int, done: Progress) -> list[int]:
    """Return the numbers of the tasks that a rank passes on to its actor, one batch for each step.

    Each actor has its own sequence of tasks, which its learners share. At the beginning of a run, the order
    equals the order of torch's `DistributedSampler`.

    Args:
        args: Arguments of the run.
        rank: Rank of the learner.
        total: Number of tasks of the whole run.
        done: Progress from which the run resumes.

    Raises:
        ConfigError: No task is left.
    """
    batch, sharing = args.rollout_batch_size_per_device, args.num_gpus_per_actor
    actor, member = divmod(rank, sharing)
    steps = range(total // (args.learners * batch) - done.steps)
    if not steps:
        raise ConfigError(f"--max-train={args.max_train}: the checkpoint has all these turns; raise it")
    order = []
    for step, place in product(steps, range(batch)):
        number, row = divmod(done.tasks[actor] + (step * sharing + member) * batch + place, batch)
        own_step, sender = divmod(number, sharing)
        order.append((own_step * batch + row) * args.learners + actor * sharing + sender)
    return order

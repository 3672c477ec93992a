"""Certificates: the conclusions of the exam about the bias of an estimator.

Every certificate has an error rate of 1%: at most 1% of exams misjudge an estimator that is unbiased on all
tasks, or one whose bias falls as 1/B. Each test has level 1% divided by the number of tests.
If no test rejects, but the intervals do not exclude a large bias, the verdict is "not decided".
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from gem_lab.exam._bias import Bias, Gradients, compare
from gem_lab.exam._task import FloatArray

ERROR_RATE = 0.01

NEGLIGIBLE = 0.1
"""Share of the bias at a finite batch size below which the extrapolated bias counts as 0."""

LARGEST = 0.1
"""Largest relative bias that an interval may leave open in a verdict of "unbiased" or "bias falls as 1/B"; a
bias of 10% is a cosine of 0.995."""

UNBIASED, VANISHING, BIASED, UNDECIDED = "unbiased", "bias falls as 1/B", "biased", "not decided"


@dataclass(frozen=True)
class Cell:
    """Everything measured about one estimator on one task, policy, and batch size.

    Attributes:
        task: Name of the task.
        stage: Stage of learning.
        batch_size: Episodes per batch.
        group_size: Episodes per group.
        enumerated: Whether the expectation is exact instead of sampled.
        gradients: Gradients of the estimator.
        exact: float64 (R, A), the exact gradient.
        bias: Result of the comparison.
    """

    task: str
    stage: str
    batch_size: int
    group_size: int
    enumerated: bool
    gradients: Gradients
    exact: FloatArray
    bias: Bias


@dataclass(frozen=True)
class Certificate:
    """Conclusion about an estimator.

    Attributes:
        estimator: Name.
        aggregation: Key of `measure.AGGREGATIONS`.
        verdict: "unbiased", "bias falls as 1/B", "biased", or "not decided".
        bias: Relative bias that the verdict is about. Unbiased or not decided: the largest upper end of a 95%
            interval. Otherwise the largest bias, at the smallest batch size if it falls as 1/B and at the
            largest if it does not.
        bias_low: Lower end of the 95% interval of `bias`.
        bias_high: Upper end.
        task: Task with that bias.
        stage: Stage of learning with that bias.
        batch_size: Batch size with that bias.
        tasks: Tasks on which the estimator is biased in the limit of large batches.
        reason: Reason of the verdict, in one or two lines; empty if unknown.
    """

    estimator: str
    aggregation: str
    verdict: str
    bias: float
    bias_low: float
    bias_high: float
    task: str
    stage: str
    batch_size: int
    tasks: tuple[str, ...]
    reason: str

    def __str__(self) -> str:
        where = f"{self.task}, {self.stage}, B={self.batch_size}"
        if self.verdict == UNBIASED:
            return f"unbiased (within {self.bias:.1%})"
        if self.verdict == UNDECIDED:
            return f"not decided (below {self.bias:.1%} on {where})"
        if self.verdict == VANISHING:
            return f"bias falls as 1/B ({self.bias:.1%} on {where})"
        return f"biased by {self.bias:.1%} on {where}"


def certify(estimator: str, aggregation: str, cells: Sequence[Cell]) -> Certificate:
    """Decide about one estimator and aggregation.

    Args:
        estimator: Name.
        aggregation: Key of `measure.AGGREGATIONS`.
        cells: Measurements, for any number of tasks, stages, and batch sizes.
    """
    limits = _limits(cells)
    level = ERROR_RATE / (len(cells) + len(limits))
    rejected = [cell for cell in cells if cell.bias.p_value < level]
    persistent = [cell for cell, p_value in limits if p_value < level]
    sampled = sorted((cell for cell in cells if not cell.enumerated), key=lambda cell: cell.batch_size)
    if not rejected and not persistent:
        worst = max(cells, key=lambda cell: cell.bias.bias_high)
        size = worst.bias.bias_high
        verdict = UNBIASED if size <= LARGEST else UNDECIDED
    elif limits and not persistent:
        smallest = [cell for cell in sampled if cell.batch_size == sampled[0].batch_size]
        worst, verdict = max(smallest, key=lambda cell: cell.bias.bias), VANISHING
        size = worst.bias.bias
    else:
        worst, verdict = max(persistent or rejected, key=lambda cell: cell.bias.bias), BIASED
        size = worst.bias.bias
    return Certificate(
        estimator, aggregation, verdict, size, worst.bias.bias_low, worst.bias.bias_high, worst.task,
        worst.stage, worst.batch_size, tuple(dict.fromkeys(cell.task for cell in persistent)),
        REASONS.get(estimator, "") if aggregation == "token-sum" else AGGREGATION_REASON,
    )  # fmt: skip


def _limits(cells: Sequence[Cell]) -> list[tuple[Cell, float]]:
    """Test the bias in the limit of large batches, for every policy and group size with two batch sizes.

    The limit is extrapolated from the two largest sizes B as if the bias fell as 1/B. Terms of higher order
    leave a small remainder, so a limit below a tenth of the bias at the smaller size counts as 0.

    Returns:
        The cell of the largest batch size and the p-value.
    """
    by_policy: dict[tuple[str, str, int], list[Cell]] = {}
    for cell in cells:
        if not cell.enumerated:
            by_policy.setdefault((cell.task, cell.stage, cell.group_size), []).append(cell)
    limits = []
    for group in by_policy.values():
        if len(group) < 2:
            continue
        small, large = sorted(group, key=lambda cell: cell.batch_size)[-2:]
        limit = large.gradients.extrapolated(large.batch_size, small.gradients, small.batch_size)
        rest = compare(limit, large.exact)
        limits.append((large, rest.p_value if rest.bias > NEGLIGIBLE * small.bias.bias else 1.0))
    return limits


AGGREGATION_REASON = (
    "The divisor (turns or tokens of the batch or of the episode) depends on the actions, so the weight of "
    "an episode depends on its length."
)

REASONS: Mapping[str, str] = {
    "reinforce": "E[score * G_t] is the gradient by definition; nothing is subtracted.",
    "rebn": (
        "A constant baseline has E[score * b] = 0 in every turn, even if an action may end the episode, and "
        "one scale for all turns keeps the direction. The statistics contain the turn itself: O(1/B)."
    ),
    "reinforce_plus_plus": (
        "Like ReBN, with statistics over tokens: still one constant and one scale for the whole batch."
    ),
    "reinforce_plus_plus_baseline": (
        "The group mean only changes a factor, and one scale for the whole batch keeps the direction. The "
        "scale contains the episode itself: O(1/B)."
    ),
    "grpo": (
        "The group mean only changes a factor, but the group's standard deviation weights every group by "
        "chance. A group has the same size in any batch, so the bias remains."
    ),
    "dr_grpo": "The group mean contains the episode itself, which only scales the expectation by 1 - 1/n.",
    "rloo": "The baseline of an episode is the mean of the others, which are independent of its actions.",
    "opo": (
        "The weights of the baseline are the episode's own lengths, which depend on its actions, so the "
        "baseline is not independent of them. A group has the same size in any batch."
    ),
    "maxrl": (
        "Dividing by the group mean estimates the gradient of log E[R] of each start, a different "
        "objective: starts count by 1 / E[R]."
    ),
    "gdpo": (
        "Each component is divided by its own standard deviation, which changes the weights of the "
        "components, and so the objective."
    ),
    "mt_grpo": (
        "Every turn is charged the mean reward of its index, so an action that ends the episode avoids the "
        "later charges: the charges depend on the actions."
    ),
    "mt_grpo(compared='return')": (
        "An ended episode counts as 0 in the mean return from turn t on, so every episode is charged the "
        "same baselines, whether its actions end it or not."
    ),
    "gigpo": (
        "Both parts divide by the standard deviation of a small set, as GRPO does; the mean over equal "
        "states contains the turn itself, and later turns of the same episode that its action led to."
    ),
    "gigpo(normalization='mean')": (
        "The mean over equal states contains later turns of the same episode that the action led to, so it "
        "is not independent of the action where a state can be visited twice."
    ),
    "rebn(statistics='group')": (
        "A group mean over turns is a constant baseline, but a group scale weights every group by chance, "
        "as in GRPO."
    ),
    "remax": "The greedy episode is played separately, so its return is independent of the actions.",
    "rae": (
        "The baseline of a role comes from other episodes (of the batch, as here, or of earlier batches), "
        "which are independent of the actions."
    ),
    "gae": (
        "With exact values, temporal differences have the exact advantage as their expectation for every "
        "lambda. A learned critic makes the estimator biased by its error if lambda < 1."
    ),
}
"""Reason for each verdict about the sum over tokens, by estimator."""

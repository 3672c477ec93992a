"""The documented flags of the log-prob correction do what the page says, in every supported version."""

from __future__ import annotations

import pytest
import torch
from openrlhf.models.loss import PolicyLoss

from tests.docs.blocks import ROOT
from tests.trainers.openrlhf import correction
from tests.trainers.openrlhf.args import parse
from tests.trainers.openrlhf.harness import words

RATIOS = [[1.0, 8.0, 0.25], [0.25, 0.25, 0.5]]
"""Probability of the actor divided by the engine's, for two responses of three tokens."""

WEIGHTS = {
    "off": [[1.0, 1.0, 1.0], [1.0, 1.0, 1.0]],
    "icepop": [[1.0, 0.0, 0.0], [0.0, 0.0, 0.5]],
    "tis": [[1.0, 5.0, 0.5], [0.5, 0.5, 0.5]],
    "seq-mask-tis": [[1.0, 8.0, 0.25], [0.0, 0.0, 0.0]],
}
"""Weight of each token in the loss, with OpenRLHF's default range from 0.5 to 5."""


def loss_of(advantage: object) -> torch.Tensor:
    """Return the gradient of OpenRLHF's loss with respect to the log-probs, times the number of tokens."""
    engine = torch.full((2, 3), -2.0)
    actor = (engine + torch.tensor(RATIOS).log()).requires_grad_()
    loss: PolicyLoss = correction.policy_loss(advantage)
    value, *_ = loss(
        actor,
        actor.detach(),
        torch.full((2, 3), -1.0),
        action_mask=torch.ones(2, 3),
        rollout_log_probs=engine,
        batch_num_tokens=6.0,
        global_batch_size=2.0,
    )
    value.backward()
    assert actor.grad is not None
    return actor.grad * 6


@pytest.mark.parametrize("scheme", correction.LEVEL)
def test_a_scheme_weights_the_tokens_of_the_loss(scheme: str) -> None:
    args = parse("--algo.advantage.estimator", "rebn", *words(correction.flags(scheme)))
    torch.testing.assert_close(loss_of(args.algo.advantage), torch.tensor(WEIGHTS[scheme]))


def test_the_page_lists_the_flags_of_both_interfaces() -> None:
    page = (ROOT / "docs/trainers/openrlhf.md").read_text()
    for scheme in [name for name in correction.LEVEL if name != "off"]:
        new, old = (
            " ".join(words(correction.flags(scheme, table))) for table in (correction.LEVEL, correction.TYPE)
        )
        assert f"| `{new}` | `{old}` |" in page

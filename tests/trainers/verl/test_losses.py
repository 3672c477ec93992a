"""Each policy loss of verl pushes each turn as its advantage says, or is rejected with the reason."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
from gem_verl._losses import row_average
from gem_verl._options import check_config
from tensordict import TensorDict
from verl.trainer.ppo import core_algos
from verl.trainer.ppo.core_algos import POLICY_LOSS_REGISTRY, agg_loss, register_policy_loss
from verl.trainer.ppo.rollout_corr_helper import compute_rollout_correction_and_rejection_mask
from verl.utils import tensordict_utils as tu
from verl.utils.config import omega_conf_to_dataclass
from verl.workers.utils.losses import ppo_loss

from gem_core.errors import ConfigError
from gem_core.trainers._weights import row_factors
from tests.trainers.verl.configs import verl_config

REBN = ["algorithm.adv_estimator=rebn"]
GRPO = ["algorithm.adv_estimator=gem_grpo", "actor_rollout_ref.rollout.n=2"]
ACTOR = "actor_rollout_ref.actor"
AGGREGATIONS = (
    "token-mean",
    "token-sum",
    "seq-mean-token-sum",
    "seq-mean-token-mean",
    "seq-mean-token-sum-norm",
)
OF_VERL = tuple(POLICY_LOSS_REGISTRY)
AVERAGES = {"geo_mean"}
"""verl's losses that average the advantages of a row."""
BY_ROW = {"seq-mean-token-sum", "seq-mean-token-mean", "seq-mean-token-sum-norm"}
SEES_ROWS = {"gspo": set(AGGREGATIONS), "dro": BY_ROW, "kl_cov": BY_ROW}
"""Aggregations with which a loss of verl depends on the rows of an episode: through a ratio of the whole row,
or through a penalty that no factor of the advantages scales."""


def check(mode: str, *overrides: str) -> None:
    import gem_verl.estimators  # noqa: F401  what the plugin does

    words = ("trainer.v1.trainer_mode=gem_sync", f"{ACTOR}.policy_loss.loss_mode={mode}", *overrides)
    check_config(verl_config(*words))


@pytest.fixture
def register() -> Iterator[Callable[[str, Any], None]]:
    """Registers losses that exist for one test."""
    yield lambda name, loss: register_policy_loss(name)(loss) and None
    for name in set(POLICY_LOSS_REGISTRY) - set(OF_VERL):
        del POLICY_LOSS_REGISTRY[name]


@pytest.mark.parametrize("mode", OF_VERL)
def test_each_loss_of_verl(mode: str) -> None:
    assert len(OF_VERL) >= 12
    beta = f"{ACTOR}.policy_loss.dro_beta=0.1"
    for aggregation in AGGREGATIONS:
        words = (beta, f"{ACTOR}.loss_agg_mode={aggregation}")
        for option, refused in (
            ("+gem.context=rebuild", mode in AVERAGES or aggregation in SEES_ROWS.get(mode, ())),
            # Each turn has its own row, so a ratio of a row is one of a turn.
            (
                "+gem.rows=turn",
                mode in AVERAGES or (mode != "gspo" and aggregation in SEES_ROWS.get(mode, ())),
            ),
        ):
            if refused:
                with pytest.raises(
                    ConfigError, match=rf"loss_mode={mode} with .* split into rows, and no fa"
                ):
                    check(mode, *GRPO, *words, option)
            else:
                check(mode, *GRPO, *words, option)
        if mode not in AVERAGES:
            check(mode, *REBN, *words)
            continue
        check(mode, *GRPO, *words)
        with pytest.raises(ConfigError, match=rf"loss_mode={mode} does not weigh .*rebn gives the turns"):
            check(mode, *REBN, *words)
        for estimator in ("gem_reinforce", "mt_grpo"):
            with pytest.raises(ConfigError, match=rf"{estimator} gives the turns of an episode different"):
                check(mode, f"algorithm.adv_estimator={estimator}", "actor_rollout_ref.rollout.n=2", *words)


def test_estimators_with_one_advantage_per_episode() -> None:
    for name in ("gem_rloo", "gem_dr_grpo", "gem_opo", "gem_maxrl", "gem_reinforce_plus_plus_baseline"):
        check("geo_mean", f"algorithm.adv_estimator={name}", "actor_rollout_ref.rollout.n=2")
    with pytest.raises(ConfigError, match="gem_gae gives the turns of an episode different advantages"):
        check("geo_mean", "algorithm.adv_estimator=gem_gae", "critic.enable=True")


def a_loss(change: Callable[[torch.Tensor, torch.Tensor], torch.Tensor]) -> Any:
    """Return a policy gradient loss that changes the advantages, given the mask, first."""

    def loss(
        log_prob: Any, advantages: Any, response_mask: Any, loss_agg_mode: str, config: Any, **_: Any
    ) -> Any:
        changed = change(advantages, response_mask.float())
        values = -changed * log_prob
        return agg_loss(values, response_mask, loss_agg_mode, **config.global_batch_info), {}

    return loss


def mean(advantages: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
    return (advantages * mask).sum(1, keepdim=True) / mask.sum(1, keepdim=True).clamp(min=1)


OWN = {
    "the mean of a row": mean,
    "minus the mean of a row": lambda a, m: (a - mean(a, m)) * m,
    "the sum of a row": lambda a, m: (a * m).sum(1, keepdim=True).expand_as(a),
    "the last token's": lambda a, m: a.gather(1, (m.cumsum(1).argmax(1))[:, None]).expand_as(a),
    "the first token's": lambda a, m: a[:, :1].expand_as(a),
    "the largest of a row": lambda a, m: a.max(1, keepdim=True).values.expand_as(a),
    "whitened over the batch": lambda a, m: (a - a[m > 0].mean()) / a[m > 0].std(),
    "absolute": lambda a, m: a.abs(),
    "smoothed": lambda a, m: a + a.roll(2, 1),
    "added in place": lambda a, m: a.add_(0.5),
}


@pytest.mark.parametrize("change", OWN)
def test_a_loss_of_your_own_that_mixes_turns(change: str, register: Callable[[str, Any], None]) -> None:
    register("mine", a_loss(OWN[change]))
    with pytest.raises(ConfigError, match=r"loss_mode=mine does not weigh each token .*use another loss"):
        check("mine", *REBN)


ALWAYS_WRONG: dict[str, Callable[[torch.Tensor, torch.Tensor], torch.Tensor]] = {
    "negative": lambda a, m: -a,
    "ignored": lambda a, m: torch.ones_like(a),
    "zero": lambda a, m: torch.zeros_like(a),
    "not finite in a row that fills the batch": lambda a, m: (
        a / m.sum(1, keepdim=True) * m.sum(1, keepdim=True)
    ),
}


@pytest.mark.parametrize("change", ALWAYS_WRONG)
@pytest.mark.parametrize("estimator", [REBN, GRPO])
def test_a_loss_of_your_own_that_is_always_wrong(
    change: str, estimator: list[str], register: Callable[[str, Any], None]
) -> None:
    register("mine", a_loss(ALWAYS_WRONG[change]))
    with pytest.raises(ConfigError, match="loss_mode=mine does not weigh each token by its own advantage"):
        check("mine", *estimator)


RIGHT: dict[str, Callable[[torch.Tensor, torch.Tensor], torch.Tensor]] = {
    "scaled": lambda a, m: 3 * a,
    "clipped": lambda a, m: a.clamp(-0.1, 0.1),
    "by sign": lambda a, m: torch.where(a > 0, 2 * a, 0.5 * a),
    "divided by a row's length": lambda a, m: a / m.sum(1, keepdim=True).clamp(min=1),
}


@pytest.mark.parametrize("change", RIGHT)
def test_a_loss_of_your_own_that_weighs_each_token(change: str, register: Callable[[str, Any], None]) -> None:
    register("mine", a_loss(RIGHT[change]))
    check("mine", *REBN)


@pytest.mark.parametrize("aggregation", AGGREGATIONS)
def test_with_its_factors_a_split_episode_weighs_what_a_whole_one_weighs(aggregation: str) -> None:
    """verl's whole loss, with episodes of 5, 3, and 1 tokens that are cut into 2, 2, and 1 rows."""
    words = (f"{ACTOR}.loss_agg_mode={aggregation}", f"{ACTOR}.loss_scale_factor=50")
    average = row_average(verl_config(*REBN, *words), ratios=True)
    assert average == {"token": "tokens", "mean": "row means"}.get(
        aggregation.split("-")[-1], "row sums"
    ) or (aggregation in ("token-mean", "token-sum"))
    whole = torch.tensor([[1.0, 1, 1, 1, 1], [1, 1, 1, 0, 0], [1, 0, 0, 0, 0]])
    advantages = torch.tensor([[2.0, 2, 2, -1, -1], [1, -1, -1, 0, 0], [-0.5, 0, 0, 0, 0]])
    wanted = gradient_of_ppo_loss(advantages, whole, *words)
    rows = torch.tensor([0, 0, 1, 1, 2])
    cut = whole[rows] * torch.tensor(
        [[1, 1, 1, 0, 0], [0, 0, 0, 1, 1], [1, 0, 0, 0, 0], [0, 1, 1, 0, 0], [1] * 5]
    )
    factors = torch.tensor(row_factors(average, cut.sum(1).int().tolist(), rows.tolist()))
    found = gradient_of_ppo_loss(advantages[rows] * cut * factors[:, None], cut, *words)
    together = torch.zeros_like(wanted).index_add(0, rows, found * cut)
    torch.testing.assert_close(together, wanted * whole, rtol=1e-6, atol=1e-8)
    unweighted = gradient_of_ppo_loss(advantages[rows] * cut, cut, *words)
    assert torch.allclose(unweighted, found) == (average == "tokens")


@pytest.mark.parametrize(
    "row", ["+gem.context=rebuild", "+gem.rows=turn", "+gem.harness='tests.trainers.talker:talk'"]
)
def test_terms_without_an_advantage_that_average_over_rows(row: str) -> None:
    by_row = f"{ACTOR}.loss_agg_mode=seq-mean-token-mean"
    for term in (f"{ACTOR}.use_kl_loss=True", f"{ACTOR}.entropy_coeff=0.01"):
        check("vanilla", *REBN, term, row)
        check("vanilla", *REBN, term, by_row)
        with pytest.raises(ConfigError, match=r"averages over the rows .*loss_agg_mode=token-mean"):
            check("vanilla", *REBN, term, by_row, row)


def test_weights_of_whole_rows() -> None:
    for word in ("algorithm.rollout_correction.rollout_is=token", "+gem.rows=turn"):
        check("vanilla", *REBN, word, "+gem.context=rebuild")
    weights = "algorithm.rollout_correction.rollout_is=sequence"
    check("vanilla", *REBN, weights, "+gem.rows=turn")
    with pytest.raises(
        ConfigError, match=r"rollout_is=sequence: weighs a row by the ratio of all its tokens"
    ):
        check("vanilla", *REBN, weights, "+gem.context=rebuild")


def test_losses_that_cannot_run() -> None:
    with pytest.raises(ConfigError, match=r"unknown policy loss 'geomean'. Did you mean geo_mean"):
        check("geomean", *REBN)
    with pytest.raises(ConfigError, match=r"loss_mode=dro fails .*ValueError: policy_loss.dro_beta must be"):
        check("dro", *REBN)
    with pytest.raises(ConfigError, match=r"Invalid loss_agg_mode: seq-mean") as caught:
        check("vanilla", *REBN, f"{ACTOR}.loss_agg_mode=seq-mean")
    assert "\n" not in str(caught.value)


def test_a_loss_in_a_module_that_verls_workers_import(
    tmp_path: Any, monkeypatch: pytest.MonkeyPatch, register: Callable[[str, Any], None]
) -> None:
    (tmp_path / "own_verl_loss.py").write_text(
        "from verl.trainer.ppo.core_algos import compute_policy_loss_geo_mean, register_policy_loss\n"
        "register_policy_loss('own_mean')(compute_policy_loss_geo_mean)\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(ConfigError, match="loss_mode=own_mean does not weigh each token"):
        check("own_mean", *REBN, "actor_rollout_ref.model.external_lib=own_verl_loss")


def test_the_check_leaves_the_random_state_alone() -> None:
    torch.manual_seed(3)
    before = torch.get_rng_state()
    check("clip_cov", *REBN, f"{ACTOR}.policy_loss.clip_cov_lb=-5", f"{ACTOR}.policy_loss.clip_cov_ub=5")
    assert torch.equal(torch.get_rng_state(), before)


def test_weights_of_a_rollout_correction_are_passed(register: Callable[[str, Any], None]) -> None:
    def needs_weights(rollout_is_weights: Any, **given: Any) -> Any:
        assert rollout_is_weights is not None
        return core_algos.compute_policy_loss_vanilla(rollout_is_weights=rollout_is_weights, **given)

    register("mine", needs_weights)
    check("mine", *REBN, "algorithm.rollout_correction.rollout_is=token")
    with pytest.raises(ConfigError, match=r"loss_mode=mine fails .*AssertionError"):
        check("mine", *REBN)


def gradient_of_ppo_loss(advantages: torch.Tensor, mask: torch.Tensor, *overrides: str) -> torch.Tensor:
    """Return the gradient of verl's whole loss by the log-probs of the responses, (rows, tokens)."""
    actor = verl_config(*overrides, f"{ACTOR}.ppo_micro_batch_size_per_gpu=1").actor_rollout_ref.actor
    rows, tokens = mask.shape
    generator = torch.Generator().manual_seed(1)
    old = -torch.rand(rows, tokens, generator=generator)
    reference = old + 0.1 * torch.randn(rows, tokens, generator=generator)
    fields = {
        "prompts": torch.ones(rows, 1), "responses": mask, "response_mask": mask, "old_log_probs": old,
        "ref_log_prob": reference, "advantages": advantages,
    }  # fmt: skip
    nested = {
        name: torch.nested.as_nested_tensor([*values], layout=torch.jagged) for name, values in fields.items()
    }
    data = TensorDict(nested, batch_size=rows)
    tu.assign_non_tensor(data, dp_size=1, batch_num_tokens=int(mask.sum()), global_batch_size=rows)
    # The model's output for a token is at the place of the one before.
    whole = torch.cat([old, torch.zeros(rows, 1)], 1).reshape(-1).requires_grad_()
    output = {"log_probs": whole, "entropy": -whole}
    loss, _ = ppo_loss(omega_conf_to_dataclass(actor), output, data)
    (gradient,) = torch.autograd.grad(loss, whole)
    return gradient.reshape(rows, tokens + 1)[:, :-1]


ADDED = {
    "nothing": [],
    **{
        f"KL {kind}": [
            f"{ACTOR}.use_kl_loss=True",
            f"{ACTOR}.kl_loss_type={kind}",
            f"{ACTOR}.kl_loss_coef=0.5",
        ]
        for kind in ("kl", "abs", "mse", "low_var_kl", "k1", "k2", "k3", "k3+")
    },
    "entropy": [f"{ACTOR}.entropy_coeff=0.3"],
    "scale": [f"{ACTOR}.loss_agg_mode=seq-mean-token-sum-norm", f"{ACTOR}.loss_scale_factor=50"],
}
"""Options that add a term to verl's loss, or scale it."""


@pytest.mark.parametrize("option", ADDED)
def test_added_terms_do_not_depend_on_the_advantages(option: str) -> None:
    mask = torch.tensor([[1.0, 1, 0, 1, 1], [1, 0, 1, 1, 0]])
    advantages = torch.tensor([[1.0, 1, 0, -0.25, -0.25], [-0.25, 0, 1, 1, 0]])
    with_them = gradient_of_ppo_loss(advantages, mask, *ADDED[option])
    without = gradient_of_ppo_loss(torch.zeros_like(mask), mask, *ADDED[option])
    assert bool(without.any()) == option.startswith(("KL", "entropy"))
    torch.testing.assert_close((with_them - without).sign(), -advantages.sign())


@pytest.mark.parametrize(
    "options",
    [
        {"rollout_is": "token"},
        {"rollout_is": "sequence"},
        {"rollout_is": "token", "rollout_is_batch_normalize": True},
        {"rollout_is": "token", "rollout_is_threshold": "0.5_2.0"},
        {"rollout_is": "sequence", "rollout_is_threshold": "0.5_5.0", "rollout_is_batch_normalize": True},
    ],
)
def test_weights_of_a_rollout_correction_have_no_sign(options: dict[str, Any]) -> None:
    generator = torch.Generator().manual_seed(0)
    old, rollout = (-torch.rand(6, 9, generator=generator) for _ in range(2))
    mask = (torch.rand(6, 9, generator=generator) > 0.3).float()
    result, changed, _ = compute_rollout_correction_and_rejection_mask(old, rollout, mask, **options)
    weights = result.batch["rollout_is_weights"]
    assert torch.equal(changed, mask)
    assert weights.min() >= 0
    assert weights.max() > 0

"""Which verl configs are accepted, and which are rejected with one line."""

from __future__ import annotations

import pytest
from gem_verl.options import GemOptions, check_config, read_algorithm

from gem_core.errors import ConfigError
from tests.trainers.verl.configs import verl_config

REBN = "algorithm.adv_estimator=rebn"


def check(*overrides: str, mode: str = "gem_sync") -> GemOptions:
    import gem_verl.estimators  # noqa: F401  what the plugin does

    return check_config(verl_config(*overrides), trainer_mode=mode)


def test_a_stock_config_with_rebn_is_fine() -> None:
    options = check(REBN, "algorithm.gamma=0.9", mode="sync")
    assert options == GemOptions()
    assert options.row_kind == "episode"


@pytest.mark.parametrize(
    ("overrides", "message"),
    [
        ([REBN, "trainer.use_v1=False"], "v1 trainer only"),
        ([REBN, "+gem.max_turn=3"], r"unknown option 'gem.max_turn'.*max_turns"),
        ([REBN, "+gem.max_turns=0"], "at least 1"),
        ([REBN, "+gem.context=rebuilt"], "expected append or rebuild"),
        ([REBN, "+gem.context=rebuild", "+gem.rows=episode"], "share no prefix"),
        ([REBN, "algorithm.rollout_correction.rollout_rs=token_k1"], "would cut turns in pieces"),
        ([REBN, "algorithm.filter_groups.enable=True"], "rebn.scope=trained"),
        ([REBN, "+algorithm.rebn.dof=1"], "of rebn. Did you mean ddof"),
        ([REBN, "+algorithm.rebn.scope=all"], "collected or trained"),
        ([REBN, "algorithm.gamma=1.5"], "a number from 0 to 1"),
        (["algorithm.adv_estimator=gem_grpo"], "rollout.n=1 every advantage would be 0"),
        (["algorithm.adv_estimator=gem_rloo"], "rollout.n=1 every advantage would be 0"),
        (
            [
                REBN,
                "+gem.rows=turn",
                "algorithm.filter_groups.enable=True",
                "algorithm.filter_groups.metric=reward",
                "+algorithm.rebn.scope=trained",
            ],
            "metric=gem/return compares its episodes",
        ),
        (["algorithm.adv_estimator=rebnn"], "unknown estimator.*rebn"),
        (["algorithm.adv_estimator=grpo", "+gem.rows=turn"], "would take each turn for an episode"),
        (
            ["algorithm.adv_estimator=gem_grpo", "algorithm.norm_adv_by_std_in_grpo=False"],
            "has no effect on gem_grpo",
        ),
    ],
)
def test_options_that_cannot_be_honored_are_rejected(overrides: list[str], message: str) -> None:
    with pytest.raises(ConfigError, match=message) as caught:
        check(*overrides)
    assert "\n" not in str(caught.value)


def test_rows_of_turns_need_the_trainer_mode_that_knows_episodes() -> None:
    with pytest.raises(ConfigError, match="trainer_mode=gem_sync"):
        check(REBN, "+gem.context=rebuild", mode="sync")
    assert check(REBN, "+gem.context=rebuild").row_kind == "turn"


def test_groups_of_two_can_be_compared() -> None:
    check("algorithm.adv_estimator=gem_grpo", "actor_rollout_ref.rollout.n=2")
    check("algorithm.adv_estimator=gem_reinforce", "actor_rollout_ref.rollout.n=1")


def test_rejection_in_the_loss_comes_after_the_advantage() -> None:
    correction = "algorithm.rollout_correction"
    check(REBN, f"{correction}.rollout_rs=token_k1", f"{correction}.bypass_mode=True")


def test_filtered_groups_are_fine_when_said_so() -> None:
    config = verl_config(REBN, "algorithm.filter_groups.enable=True", "+algorithm.rebn.scope=trained")
    assert read_algorithm(config.algorithm, "rebn").options == {}

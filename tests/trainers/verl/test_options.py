"""Which verl configs are accepted, and which are rejected with one line."""

from __future__ import annotations

import pytest
from gem_verl._options import check_config, check_data, read_algorithm
from gem_verl._rows import verl_row

from gem_core.errors import ConfigError
from gem_core.tasks import TaskRow
from gem_core.trainers import RowOptions
from tests.trainers.verl.configs import verl_config

REBN = "algorithm.adv_estimator=rebn"


def check(*overrides: str, mode: str = "gem_sync") -> RowOptions:
    import gem_verl.estimators  # noqa: F401  what the plugin does

    return check_config(verl_config(f"trainer.v1.trainer_mode={mode}", *overrides))


def test_a_stock_config_with_rebn_is_fine() -> None:
    options = check(REBN, "algorithm.gamma=0.9", mode="sync")
    assert options == RowOptions()
    assert not options.has_several_rows


@pytest.mark.parametrize(
    ("overrides", "message"),
    [
        ([REBN, "trainer.use_v1=False"], "v1 trainer only"),
        ([REBN, "+gem.max_turn=3"], r"unknown option 'gem.max_turn'.*max_turns"),
        ([REBN, "+gem.max_turns=0"], "at least 1"),
        ([REBN, "+gem.context=rebuilt"], "expected append, template, or rebuild"),
        ([REBN, "+gem.rows=episode"], "gem.rows='episode': expected"),
        ([REBN, "algorithm.rollout_correction.rollout_rs=token_k1"], "would split turns"),
        ([REBN, "algorithm.filter_groups.enable=True"], "rebn.scope=trained"),
        ([REBN, "+algorithm.rebn.dof=1"], "of rebn. Did you mean ddof"),
        ([REBN, "+algorithm.rebm.ddof=1"], "unknown option 'algorithm.rebm'. Did you mean .*rebn"),
        ([REBN, "+algorithm.rebn=[ddof]"], r"algorithm.rebn=.'ddof'.: expected a JSON object"),
        ([REBN, "+gem=yes"], "gem='yes': expected a JSON object"),
        ([REBN, "+gem=[max_turns]"], r"gem=.'max_turns'.: expected a JSON object"),
        (
            [REBN, "+gem.template_kwargs.deep=true", "+data.apply_chat_template_kwargs.deep=false"],
            "deep=True, but the trainer's own option for the chat template has deep=False",
        ),
        ([REBN, "+algorithm.rebn.scope=all"], "collected or trained"),
        ([REBN, "algorithm.gamma=1.5"], "a number from 0 to 1"),
        (
            [
                "algorithm.adv_estimator=gem_gdpo",
                "algorithm.use_kl_in_reward=True",
                "trainer.v1.trainer_mode=gem_sync",
            ],
            "use_kl_in_reward=True: has no effect on gem_gdpo",
        ),
        ([REBN, "algorithm.use_pf_ppo=True"], "use_pf_ppo=True: verl reads it with its own gae only"),
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
        (["algorithm.adv_estimator=grpo", "+gem.rows=turn"], "would treat each row as an episode"),
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


ROLLOUT, ACTOR = "actor_rollout_ref.rollout", "actor_rollout_ref.actor"


@pytest.mark.parametrize(
    ("overrides", "message"),
    [
        ([f"{ROLLOUT}.n=null"], r"rollout.n=None: expected a whole number of at least 1"),
        ([f"{ROLLOUT}.n='\"4\"'"], r"rollout.n=.*4.*: expected a number, such as 1, which is verl's default"),
        ([f"{ROLLOUT}.n=4.0"], r"rollout.n=4.0: expected a whole number"),
        (["data.max_response_length=0"], "data.max_response_length=0: .* at least 1"),
        (["trainer.test_freq=null"], "trainer.test_freq=None: expected a whole number"),
        (["trainer.total_training_steps=ten"], "trainer.total_training_steps='ten'"),
        (["trainer.val_before_train=flase"], "val_before_train='flase': expected True or False"),
        ([f"{ACTOR}.optim.lr=small"], "optim.lr='small': expected a number, such as 1e-06"),
        ([f"{ROLLOUT}.temperature=0"], "rollout.temperature=0: expected a number above 0"),
        ([f"{ROLLOUT}.temperature=null"], "rollout.temperature=None: expected a number above 0"),
        ([f"{ROLLOUT}.top_p=1.5"], "rollout.top_p=1.5: expected a number above 0 and up to 1"),
        ([f"{ROLLOUT}.val_kwargs.temperature=-1"], "val_kwargs.temperature=-1: expected a number of at"),
        ([f"{ACTOR}.optim.lr=-1e-6"], "optim.lr=-1e-06: expected a number of at least 0"),
        ([f"{ACTOR}.clip_ratio_high=-0.2"], "clip_ratio_high=-0.2: expected a number of at least 0"),
        ([f"{ACTOR}.optim.clip_grad=-1"], "optim.clip_grad=-1: expected a number of at least 0"),
        ([f"{ACTOR}.clip_ratio=null"], "clip_ratio=None: expected a number of at least 0"),
        (["algorithm.lam=[1]"], r"algorithm.lam=\[1\]: expected a number"),
        (["data.gen_batch_size=3"], "gen_batch_size=3: data.train_batch_size=1024 is not a multiple of it"),
        ([f"{ACTOR}.ppo_mini_batch_size=4"], "is 4 rows per update: expected a multiple of 8"),
        ([f"{ACTOR}.ppo_micro_batch_size_per_gpu=5"], "expected a multiple of 40, the number of ranks, 8"),
        ([f"{ROLLOUT}.log_prob_micro_batch_size_per_gpu=5"], "each rank gets 128 rows, which is not"),
    ],
)
def test_values_at_which_verl_would_fail_in_a_step_are_rejected(overrides: list[str], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        check(REBN, *overrides)


@pytest.mark.parametrize(
    "overrides",
    [
        ["data.gen_batch_size=512", f"{ACTOR}.entropy_coeff=0.001", "trainer.total_epochs=0"],
        ["data.gen_batch_size=3", "trainer.v1.sampler.sync_refill_failed_groups=True"],
        [
            "data.gen_batch_size=3",
            "trainer.v1.trainer_mode=gem_colocate_async",
            "+algorithm.rebn.scope=trained",
        ],
        [f"{ACTOR}.ppo_micro_batch_size_per_gpu=5", f"{ACTOR}.use_dynamic_bsz=True"],
        [f"{ACTOR}.ppo_micro_batch_size_per_gpu=5", "+gem.rows=turn"],
        [f"{ACTOR}.ppo_mini_batch_size=4", f"{ACTOR}.fsdp_config.ulysses_sequence_parallel_size=2"],
        ["+algorithm.rebn.truncation=mask"],
        [f"{ROLLOUT}.max_num_seqs=null", f"{ACTOR}.optim.clip_grad=null", "trainer.logger=console"],
        [f"{ACTOR}.clip_ratio_low=null", f"{ACTOR}.clip_ratio_high=null", f"{ACTOR}.grad_clip=null"],
    ],
)
def test_values_that_verl_takes_are_accepted(overrides: list[str]) -> None:
    check(REBN, *overrides)


def test_gae_over_turns_needs_a_critic_and_the_mode_that_passes_its_values() -> None:
    gae, critic = "algorithm.adv_estimator=gem_gae", "critic.enable=True"
    for overrides in ([], ["critic.enable=False"]):
        with pytest.raises(ConfigError, match=r"gem_gae needs a critic, .*: critic\.enable=True"):
            check(gae, *overrides)
    with pytest.raises(ConfigError, match="does not pass the values of the critic to gem_gae"):
        check(gae, critic, mode="sync")
    with pytest.raises(
        ConfigError, match=r"critic.enable=True: gem_gae, the only .* needs one row per episode"
    ):
        check(gae, critic, "+gem.rows=turn")
    check(gae, critic, mode="gem_colocate_async")
    algorithm = verl_config(gae, "algorithm.lam=0.8").algorithm
    assert read_algorithm(algorithm, "gem_gae").options == {"lam": 0.8}
    algorithm = verl_config(gae, "algorithm.lam=0.8", "+algorithm.gem_gae.lam=0.7").algorithm
    assert read_algorithm(algorithm, "gem_gae").options == {"lam": 0.7}


def test_what_only_episodes_have_needs_the_trainer_mode_that_knows_them() -> None:
    rae = "algorithm.adv_estimator=rae"
    with pytest.raises(ConfigError, match=r"rae needs agent_ids .*verl does not supply"):
        check(rae, mode="sync")
    check(rae)


def test_turn_rows_need_the_trainer_mode_that_knows_episodes() -> None:
    with pytest.raises(ConfigError, match="trainer_mode=gem_sync"):
        check(REBN, "+gem.context=rebuild", mode="sync")
    assert check(REBN, "+gem.context=rebuild").has_several_rows


@pytest.mark.parametrize("prefix", ["", "gem_"])
@pytest.mark.parametrize("mode", ["colocate_async", "separate_async"])
def test_statistics_over_all_turns_need_all_turns(mode: str, prefix: str) -> None:
    keep, one = (
        "trainer.v1.sampler.max_off_policy_strategy=wait",
        "trainer.v1.separate_async.parameter_sync_step=1",
    )
    with pytest.raises(
        ConfigError, match=r"strategy=drop: drops old groups before rebn .*strategy=wait keeps"
    ):
        check(REBN, one, mode=prefix + mode)
    for kept in (keep, "trainer.v1.sampler.max_off_policy_threshold=null"):
        check(REBN, kept, one, mode=prefix + mode)
    check(REBN, "+algorithm.rebn.scope=trained", mode=prefix + mode)
    check("algorithm.adv_estimator=gem_reinforce", mode=prefix + mode)
    if mode == "separate_async":
        with pytest.raises(
            ConfigError, match=r"parameter_sync_step=4: .* each update of a step .*scope=trained"
        ):
            check(REBN, keep, mode=prefix + mode)


@pytest.mark.parametrize("mode", ["gem_colocate_async", "gem_separate_async"])
def test_turn_rows_in_asynchronous_modes(mode: str) -> None:
    options = check(REBN, "+algorithm.rebn.scope=trained", "+gem.rows=turn", mode=mode)
    assert options.has_several_rows


@pytest.mark.parametrize("section", ["+rollout.nnodes=1", "+async_training.staleness_threshold=1"])
def test_configs_of_verls_other_programs_are_rejected(section: str) -> None:
    with pytest.raises(ConfigError, match=r"for another program; .*main_ppo.*gem_separate_async"):
        check(REBN, section)


def test_a_teacher_needs_one_row_per_episode() -> None:
    check(REBN, "distillation.enabled=True")
    with pytest.raises(
        ConfigError, match=r"distillation.enabled=True: .*for the last one only; use gem.context=append"
    ):
        check(REBN, "distillation.enabled=True", "+gem.rows=turn")


def test_a_critic_needs_one_row_per_episode() -> None:
    check(REBN, "critic.enable=True")
    check(REBN, "critic.enable=False", "+gem.rows=turn")
    with pytest.raises(ConfigError, match=r"critic.enable=True: .* needs one row per episode"):
        check(REBN, "critic.enable=True", "+gem.rows=turn")


def test_experts_that_the_engine_chose_cannot_be_replayed() -> None:
    rows = [verl_row(TaskRow(env_id="game:GuessTheNumber-v0", env_kwargs={}, seed=1, index=0))]
    replay = "actor_rollout_ref.rollout.enable_rollout_routing_replay=True"
    check_data(verl_config(REBN), rows)
    check_data(verl_config(REBN, replay), [])
    with pytest.raises(ConfigError, match=r"enable_rollout_routing_replay=True: .*leave it at False"):
        check_data(verl_config(REBN, replay), rows)


def test_groups_of_two_can_be_compared() -> None:
    check("algorithm.adv_estimator=gem_grpo", "actor_rollout_ref.rollout.n=2")
    check("algorithm.adv_estimator=gem_reinforce", "actor_rollout_ref.rollout.n=1")


@pytest.mark.parametrize("option", ["rollout_is=token", "rollout_rs=token_k1", "loss_type=reinforce"])
def test_a_correction_that_verls_v1_trainer_would_ignore(option: str) -> None:
    correction = "algorithm.rollout_correction"
    check(REBN, f"{correction}.bypass_mode=True")
    with pytest.raises(
        ConfigError, match=rf"{option}: verl's v1 trainer does not read it .*bypass_mode=True"
    ):
        check(REBN, f"{correction}.{option}", f"{correction}.bypass_mode=True")
    loss = "actor_rollout_ref.actor.policy_loss"
    own = f"+{loss}.rollout_correction"
    check(REBN, f"{loss}.loss_mode=bypass_mode", f"{own}.{option}", f"{own}.rollout_rs_threshold=2.0")


@pytest.mark.parametrize("option", ["rollout_is=token", "bypass_mode=True"])
def test_a_correction_needs_the_log_probs_of_the_engine(option: str) -> None:
    without = "actor_rollout_ref.rollout.calculate_log_probs=False"
    check(REBN, without)
    with pytest.raises(ConfigError, match=r"calculate_log_probs=False: .*set it to True"):
        check(REBN, without, f"algorithm.rollout_correction.{option}")


def test_filtered_groups_are_accepted_on_request() -> None:
    config = verl_config(REBN, "algorithm.filter_groups.enable=True", "+algorithm.rebn.scope=trained")
    assert read_algorithm(config.algorithm, "rebn").options == {}

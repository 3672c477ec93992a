"""YAMLs that are accepted by ROLL's own config classes, and YAMLs rejected before a model is loaded."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import gem_roll
import pytest
from gem_roll import _SUPPORTED
from gem_roll._options import GemOptions, check_config
from gem_roll._pipeline import ReBNAgenticPipeline
from roll.pipeline.agentic.agentic_pipeline import AgenticPipeline

from gem_core.errors import ConfigError, GemError, UnsupportedTrainer
from gem_core.trainers._interface import expect_listed
from tests.trainers.roll.configs import small_config

ONE = SimpleNamespace(gamma=1.0)
GUESS = "game:GuessTheNumber-v0-easy"


def envs(**sections: Any) -> dict[str, Any]:
    return {"custom_envs": sections}


OWN = "roll.pipeline.agentic.env_manager"
STEP_CONCAT = f"{OWN}.step_concat_env_manager.StepConcatEnvManager"
NO_SPY: dict[str, Any] = {
    "Guess": {"env_config": {"wrappers": ""}},
    "Mastermind": {"env_config": {"wrappers": ""}},
}


def checked(folder: Path, changed: dict[str, Any]) -> GemOptions:
    given = {name: {**section} for name, section in NO_SPY.items()}
    for name, section in changed.get("custom_envs", {}).items():
        given[name] = {**given.get(name, {}), **section} if isinstance(section, dict) else section
    return check_config(small_config(folder, {**changed, "custom_envs": given}))


def test_the_options_of_the_section_are_read(tmp_path: Path) -> None:
    section = {"estimator": "gem_grpo", "estimator_options": {"ddof": 1}, "template_kwargs": {"a": 1}}
    options = checked(tmp_path, envs(gem=section))
    assert (
        options.estimator,
        options.choose_estimator(ONE).options,
        options.template_kwargs,
    ) == (
        "gem_grpo",
        {"ddof": 1},
        {"a": 1},
    )
    assert checked(tmp_path, {}).estimator == "rebn"


def test_an_estimator_of_a_module_works_by_name(tmp_path: Path) -> None:
    for name in ("against_the_best", "gem_against_the_best"):
        section = {"estimator": name, "estimator_options": {"scale": 2}}
        options = checked(tmp_path, envs(gem={**section, "modules": ["tests.trainers.own_estimator"]}))
        choice = options.choose_estimator(ONE)
        assert (choice.estimator.name, choice.options) == ("against_the_best", {"scale": 2})
    for name in ("gem_opo", "gigpo", "rae", "reinforce_plus_plus", "grpo"):
        assert checked(tmp_path, envs(gem={"estimator": name})).choose_estimator(ONE).name == name
    for options_of_one in ({"statistics": "env"}, {"truncation": "mask"}, {"weight": "episode"}):
        choice = checked(tmp_path, envs(gem={"estimator_options": options_of_one})).choose_estimator(ONE)
        assert choice.scope == "trained"


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        (envs(gem={"max_turns": 3}), "custom_envs.gem.max_turns=3: set ROLL's own option"),
        (envs(gem="rebn"), "custom_envs.gem='rebn': expected a JSON object"),
        (envs(gem={"stimator": "rebn"}), "unknown option 'custom_envs.gem.stimator'. Did you mean estimator"),
        (envs(gem={"estimator": "rbn"}), "estimator: unknown estimator 'rbn'. Did you mean rebn"),
        (
            envs(gem={"estimator_options": {"dof": 1}}),
            "unknown option 'custom_envs.gem.estimator_options.dof'",
        ),
        (envs(gem={"estimator_options": {"scope": "all"}}), "expected collected or trained"),
        (envs(gem={"context": "rebuild"}), "needs env_manager_cls: gem_roll.GemStepEnvManager"),
        (
            envs(Guess={"env_manager_cls": "gem_roll.GemStepEnvManager"}),
            "a run can have only one kind",
        ),
        (envs(Guess={"env_type": GUESS}), "write gem_core:<id>"),
        (envs(Guess={"env_type": "gem_core:game:GuesTheNumber-v0"}), "Did you mean game:GuessTheNumber"),
        (envs(Guess={"env_config": {"high": 3}}), "accepted keyword arguments"),
        (envs(Guess={"env_config": {"wrappers": "concatt"}}), "unknown wrapper 'concatt'"),
        (envs(Guess={"agent_template": "Say {observation}"}), "shows observations unchanged"),
        (envs(Guess={"max_env_step_concurrent": 2}), "max_env_step_concurrent=2: has no effect"),
        (envs(Guess={"use_thread_lock": True}), "use_thread_lock=True: has no effect"),
        ({"adv_estimator": "grpo"}, "write adv_estimator: agentic_reinforce"),
        ({"adv_estimator": "gae"}, "write adv_estimator: agentic_reinforce"),
        ({"gamma": 1.5}, "gamma=1.5: expected a number from 0 to 1"),
        ({"step_reward_gamma": 0.5}, "gamma is the discount per turn for rows of any kind"),
        ({"whiten_advantages": True}, "would change what rebn computed"),
        ({"whiten_rewards": True}, "whiten_rewards=True: has no effect on rebn"),
        ({"reward_clip": 5.0}, "clip in a wrapper"),
        ({"add_token_level_kl": True}, "use use_kl_loss"),
        ({"reward_normalization": {"method": "mean_std"}}, "norm_mean_type=batch: has no effect on rebn"),
        (envs(Guess={"max_tokens_per_step": 0}), "custom_envs.Guess.max_tokens_per_step=0: expected a whole"),
        (envs(Guess={"max_tokens_per_step": "all"}), "max_tokens_per_step='all': expected a whole number"),
        (envs(Guess={"max_steps": -1}), "custom_envs.Guess.max_steps=-1: expected a whole number of at"),
        (envs(Guess={"agent_system_template": ["Play."]}), "agent_system_template=.*: expected a text"),
        ({"advantage_clip": -1.0}, "advantage_clip=-1.0: expected a number above 0, or None"),
        ({"advantage_clip": 0.0}, "advantage_clip=0.0: expected a number above 0"),
        ({"pg_clip": -0.2}, "pg_clip=-0.2: expected a number of at least 0"),
        ({"ppo_epochs": 0}, "ppo_epochs=0: expected a whole number of at least 1"),
        ({"max_steps": -1}, "max_steps=-1: expected a whole number of at least 1"),
        ({"sequence_length": -5}, "sequence_length=-5: expected a whole number of at least 1"),
        ({"save_steps": 0}, "save_steps=0: expected a whole number of at least 1"),
        ({"actor_infer": {"generating_args": {"max_new_tokens": 0}}}, "max_new_tokens=0: expected a whole"),
        ({"actor_infer": {"generating_args": {"temperature": -1.0}}}, "temperature=-1.0: expected a number"),
        ({"actor_train": {"infer_batch_size": 0}}, "actor_train.infer_batch_size=0: expected a whole number"),
        (
            {"train_env_manager": {"group_size": -2}},
            "train_env_manager.group_size=-2: expected a whole number",
        ),
        ({"train_env_manager": {"num_groups_partition": [4]}}, r"=\[4\]: expected one number of groups for"),
        ({"train_env_manager": {"num_groups_partition": [2, 2, 2]}}, r"train_env_manager.*=\[2, 2, 2\]: exp"),
        ({"train_env_manager": {"num_groups_partition": [5, -1]}}, r"=\[5, -1\]: expected one number of"),
        (
            envs(gem={"tasks": "nosuch.jsonl"}),
            "nosuch.jsonl: there is no such file; `gem-core export --to tas",
        ),
        ({"val_batch_size": -1}, "val_batch_size=-1: expected a whole number of at least 1"),
        (
            {"train_env_manager": {"group_filter_cls": "mine.Filter"}},
            r"scope: trained\} uses the remaining turns",
        ),
        (
            {"train_env_manager": {"group_size": 1}, **envs(gem={"estimator": "gem_grpo"})},
            "group_size=1 every advantage would be 0",
        ),
        ({"train_env_manager": {"group_size_redundancy": 1}}, "drops the slowest episodes of a group"),
        (
            {"train_env_manager": {"num_env_groups": 8, "num_groups_partition": [4, 4]}},
            r"16 episodes for a rollout_batch_size of 8.* drops the slowest episodes",
        ),
        ({"train_env_manager": {"max_traj_per_env": 3}}, r"24 episodes for a rollout_batch_size of 8"),
        ({"critic_warmup": 2}, "critic_warmup=2: .* omit it"),
        (
            {"train_env_manager": {"llm_proxy": {"proxy_type": "openai"}}},
            "llm_proxy.proxy_type=openai: .* the tokens and log-probs of ROLL's own engine",
        ),
        ({"train_env_manager": {"llm_proxy": {"proxy_type": "random"}}}, "proxy_type=random: "),
        (envs(Guess={"env_manager_cls": "nowhere.Manager"}), "nowhere.Manager: .*No module named 'nowhere'"),
        (envs(Guess={"env_manager_cls": "gem_roll.GemManager"}), "gem_roll.GemManager: .*it has GemStepEnv"),
        (envs(Guess={"env_manager_cls": STEP_CONCAT}), "a run can have only one kind"),
    ],
    ids=lambda value: "" if isinstance(value, dict) else str(value)[:40],
)
def test_unsupported_options_are_rejected(tmp_path: Path, changed: dict[str, Any], message: str) -> None:
    with pytest.raises(GemError, match=message):
        checked(tmp_path, changed)


def test_statistics_of_what_is_left_may_be_requested(tmp_path: Path) -> None:
    changed = {
        "train_env_manager": {"group_filter_cls": "mine.Filter"},
        **envs(gem={"estimator_options": {"scope": "trained"}}),
    }
    assert checked(tmp_path, changed).choose_estimator(ONE).scope == "trained"


@pytest.mark.parametrize(
    ("manager", "recompute"),
    [
        ("gem_roll.GemTrajEnvManager", False),
        ("gem_roll.GemStepEnvManager", True),
        (f"{OWN}.traj_env_manager.TrajEnvManager", False),
        (f"{OWN}.step_env_manager.StepEnvManager", True),
        (STEP_CONCAT, True),
        (f"{OWN}.agent_native_env_manager.AgentNativeStepEnvManager", True),
    ],
)
def test_old_log_probs_are_computed_before_the_updates_of_turn_rows(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, manager: str, recompute: bool
) -> None:
    no_workers(monkeypatch)
    own = {"env_manager_cls": manager, "env_config": {"wrappers": ""}}
    config = small_config(tmp_path, envs(Guess=own, Mastermind=own))
    assert not config.enable_old_logprobs_recompute
    ReBNAgenticPipeline(config)
    assert config.enable_old_logprobs_recompute is recompute
    config.force_disable_old_logprobs_recompute = True
    if recompute:
        with pytest.raises(ConfigError, match=r"force_disable_old_logprobs_recompute=True: .* omit it"):
            ReBNAgenticPipeline(config)
    else:
        ReBNAgenticPipeline(config)


@pytest.mark.parametrize(
    ("correction", "option"),
    [
        ({"is_weight": {"enabled": True, "weight_type": "sequence"}}, "is_weight.weight_type=sequence"),
        ({"is_weight": {"enabled": True, "weight_type": "geometric"}}, "is_weight.weight_type=geometric"),
        (
            {"filters": [{"enabled": True}, {"enabled": True, "agg_type": "sequence"}]},
            r"filters\[1\].agg_type",
        ),
        ({"is_weight": {"enabled": False, "weight_type": "sequence"}}, None),
        ({"is_weight": {"enabled": True, "weight_type": "segment"}}, None),
        ({"filters": [{"enabled": False, "agg_type": "geometric"}, {"enabled": True}]}, None),
    ],
)
def test_a_correction_by_whole_rows_needs_one_row_per_episode(
    tmp_path: Path, correction: dict[str, Any], option: str | None
) -> None:
    given = {"train_infer_correction": correction}
    checked(tmp_path, {**given, **envs(**NO_SPY)})
    own = {"env_manager_cls": "gem_roll.GemStepEnvManager"}
    several = {**given, **envs(Guess=own, Mastermind=own)}
    if option is None:
        checked(tmp_path, several)
    else:
        with pytest.raises(
            ConfigError, match=rf"train_infer_correction\.{option}.* takes the ratio of a whole"
        ):
            checked(tmp_path, several)


def test_other_losses_need_one_row_per_episode(tmp_path: Path) -> None:
    worker = {"actor_train": {"worker_cls": "roll.pipeline.agentic.agentic_actor_pg_worker.ActorWorker"}}
    checked(tmp_path, {**worker, **envs(**NO_SPY)})
    own = {"env_manager_cls": "gem_roll.GemStepEnvManager"}
    with pytest.raises(
        ConfigError, match="its metrics count episodes, and fail in a batch with several rows"
    ):
        checked(tmp_path, {**worker, **envs(Guess=own, Mastermind=own)})


def no_workers(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let ROLL's pipeline be constructed without its workers."""

    def init(self: Any, pipeline_config: Any) -> None:
        self.pipeline_config = pipeline_config
        self.actor_train = SimpleNamespace(train_step=lambda batch: "trained", dp_size=1)

    monkeypatch.setattr(AgenticPipeline, "__init__", init)


@pytest.mark.parametrize(
    ("changed", "recompute"),
    [
        ({"rollout_batch_size": 16}, True),  # 16 rows are filled up to 24, which are two updates of 12
        ({"actor_train": {"infer_batch_size": 8}}, True),  # 8 rows are filled up to 24
        ({"use_kl_loss": True, "reference": {"infer_batch_size": 5}}, True),  # up to 60
        ({"use_kl_loss": True, "reference": {"infer_batch_size": 3}}, False),
        ({"reference": {"infer_batch_size": 5}}, False),  # no reference model is loaded
        (
            {"rollout_batch_size": 16, "actor_train": {"training_args": {"gradient_accumulation_steps": 4}}},
            False,
        ),
    ],
)
def test_old_log_probs_are_computed_before_several_updates_of_episodes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, changed: dict[str, Any], recompute: bool
) -> None:
    no_workers(monkeypatch)
    config = small_config(tmp_path, {**changed, **envs(**NO_SPY)})
    assert not config.enable_old_logprobs_recompute
    ReBNAgenticPipeline(config)
    assert config.enable_old_logprobs_recompute is recompute
    config.force_disable_old_logprobs_recompute = True
    if recompute:
        with pytest.raises(ConfigError, match=r"force_disable_old_logprobs_recompute=True: .* omit it"):
            ReBNAgenticPipeline(config)
    else:
        ReBNAgenticPipeline(config)


def test_a_step_whose_rows_need_old_log_probs_that_roll_does_not_compute_is_an_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    no_workers(monkeypatch)
    pipeline = ReBNAgenticPipeline(small_config(tmp_path, envs(**NO_SPY)))
    pipeline._check_updates(12)
    with pytest.raises(ConfigError, match=r"24 rows .* 2 updates.* enable_old_logprobs_recompute: true"):
        pipeline._check_updates(24)
    pipeline.pipeline_config.enable_old_logprobs_recompute = True
    pipeline._check_updates(24)


def test_a_step_that_trains_without_our_advantages_is_an_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    no_workers(monkeypatch)
    saved: list[int] = []
    monkeypatch.setattr(AgenticPipeline, "do_checkpoint", lambda self, global_step: saved.append(global_step))
    monkeypatch.setattr("gem_roll._pipeline.use_advantages", lambda batch, clip: None)
    pipeline = ReBNAgenticPipeline(small_config(tmp_path, envs(**NO_SPY)))
    pipeline.do_checkpoint(global_step=0)  # nothing was collected
    pipeline._advantages_wait = True
    with pytest.raises(UnsupportedTrainer, match="step 1: ROLL did not train on gem-core's advantages"):
        pipeline.do_checkpoint(global_step=1)
    assert pipeline.actor_train.train_step("batch") == "trained"
    pipeline.do_checkpoint(global_step=2)
    assert saved == [0, 2]


@pytest.mark.parametrize("schedule", ["linear", "cosine"])
def test_a_schedule_that_counts_episodes_does_not_fit_turn_rows(tmp_path: Path, schedule: str) -> None:
    training = {"actor_train": {"training_args": {"lr_scheduler_type": schedule}}}
    assert checked(tmp_path, training)
    step = {"env_manager_cls": "gem_roll.GemStepEnvManager"}
    with pytest.raises(ConfigError, match=f"lr_scheduler_type={schedule}: ROLL counts .* episodes"):
        checked(tmp_path, {**training, **envs(Guess=step, Mastermind=step)})


def test_oversubscribed_rollouts_are_accepted_for_statistics_of_what_is_left(tmp_path: Path) -> None:
    changed = {
        "train_env_manager": {"num_env_groups": 8, "num_groups_partition": [4, 4]},
        **envs(gem={"estimator_options": {"scope": "trained"}}),
    }
    assert checked(tmp_path, changed).choose_estimator(ONE).scope == "trained"


def test_another_roll_is_rejected(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(AgenticPipeline, "adjust_batch", lambda self, batch: None)
    with pytest.raises(
        UnsupportedTrainer,
        match=r"adjust_batch takes \(self, batch\): expected \(self, data, mode\)\. Supported",
    ):
        expect_listed(_SUPPORTED, "pipeline")


def test_a_checkout_that_does_not_exist_is_named(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("ROLL_HOME", str(tmp_path / "nowhere"))
    with pytest.raises(UnsupportedTrainer, match=r"ROLL_HOME=.*nowhere is not a folder"):
        _ = gem_roll.GemTrajEnvManager


def test_a_wrong_name_lists_the_right_ones() -> None:
    with pytest.raises(AttributeError, match="it has GemStepEnvManager, GemTrajEnvManager"):
        _ = gem_roll.GemEnvManager


def test_an_unknown_option_is_a_config_error(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="expected append, template, or rebuild"):
        checked(tmp_path, envs(gem={"context": "both"}))

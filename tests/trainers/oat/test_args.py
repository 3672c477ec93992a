"""Accepted flags, and flags that are rejected in one line before anything starts."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import gem_oat
import numpy as np
import pytest
import torch
import tyro
from gem_oat._args import Args, dataset_rows
from gem_oat._checks import prepare
from gem_oat._tasks import Progress
from oat.algorithms.ppo import PPOLearner
from oat.utils.lm_head import FusedLinear

from gem_chat import EpisodePlayer
from gem_core import register
from gem_core.advantages import estimator, returns
from gem_core.errors import ConfigError, GemError, UnknownEnv, UnsupportedTrainer
from gem_core.rollout import RolloutOptions
from gem_core.trainers._interface import expect_listed
from tests.rollout.tokenizers import bpe_tokenizer
from tests.support import ImageEnv
from tests.trainers.oat import harness

GAME = ("--env-id", harness.GAME)
CRITIC = "--critic-type ppo --estimator gae"
ONE_GPU = ("--gpus", "1", "--collocate", "--rollout-batch-size-per-device", "128")


@pytest.fixture(autouse=True)
def eight_gpus(monkeypatch: pytest.MonkeyPatch) -> None:
    """Pretend that there are eight devices, which Oat counts when it checks its arguments."""
    monkeypatch.delenv("VLLM_USE_V1", raising=False)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 8)


def check(*words: str) -> Args:
    return prepare(tyro.cli(Args, args=list(words)))


def test_oats_defaults_and_an_environment_suffice() -> None:
    args = check(*GAME, "--collocate")
    assert (args.learners, args.pi_buffer_maxlen_per_device, args.num_samples) == (8, 16, 1)
    assert args.rollout_options().max_tokens_per_turn == args.generate_max_length
    assert dataset_rows(args) == 50048  # 50,000 turns in batches of 128
    assert args.choose_estimator().options == {}


def test_no_limit_is_a_number() -> None:
    args = check(*GAME, "--collocate", "--tis-c", "inf", "--cliprange", "inf", "--max-norm", "0")
    assert (args.tis_c, check(*GAME, "--collocate", "--tis-c", "None").tis_c) == (float("inf"), None)


def test_one_learner_takes_the_whole_update() -> None:
    args = check(*GAME, *ONE_GPU)
    assert (args.learners, args.pi_buffer_maxlen_per_device) == (1, 128)
    args = check(*GAME, "--gpus", "1", "--collocate")  # eight rounds of sixteen turns
    assert args.pi_buffer_maxlen_per_device == 128


def test_a_critic_takes_oats_lambda_and_every_epoch_counts_in_its_schedule() -> None:
    args = check(*GAME, "--collocate", *CRITIC.split(), "--lam", "0.9", "--num-ppo-epochs", "2")
    choice = args.choose_estimator()
    assert (choice.name, choice.options, choice.gamma) == ("gae", {"lam": 0.9}, 1.0)
    assert (args.max_step_adjustment, args.critic_max_step_adjustment) == (2, 2)
    for words in (["--lam", "0.5"], []):
        args = check(*GAME, "--collocate", *CRITIC.split(), *words, "--estimator-options", '{"lam": 0.5}')
        assert args.choose_estimator().options == {"lam": 0.5}


def test_an_evaluation_has_the_token_limit_of_training() -> None:
    assert check(*GAME, "--collocate", "--generate-max-length", "1024").eval_generate_max_length == 1024
    assert check(*GAME, "--collocate", "--eval-generate-max-length", "64").eval_generate_max_length == 64


def test_a_random_seed_is_drawn_once_for_all_processes() -> None:
    """Oat itself draws a seed in every process, so each rank would get different tasks."""
    args = check(*GAME, "--collocate", "--rnd-seed", "--seed", "5")
    assert not args.rnd_seed  # `oat.utils.deepspeed.get_strategy` leaves the seed alone
    assert args.seed != 5


def test_a_learner_that_does_not_fit_the_critic_is_an_error() -> None:
    from gem_oat._learner import CriticLearner, Learner
    from gem_oat.train import run

    for words, learner in ((CRITIC, Learner), ("", CriticLearner)):
        args = tyro.cli(Args, args=[*GAME, "--collocate", *words.split()])
        with pytest.raises(ConfigError, match=f"does not fit the learner {learner.__name__}"):
            run(args, learner_cls=learner)


def test_the_papers_settings_are_one_flag() -> None:
    args = check(*GAME, "--collocate", "--paper-rebn")
    choice = args.choose_estimator()
    assert (choice.options, choice.scope) == ({"ddof": 0, "eps": 1e-9}, "trained")
    assert check(*GAME, "--collocate").choose_estimator().scope == "collected"
    with pytest.raises(ConfigError, match="--estimator-options: eps=1e-05 contradicts --paper-rebn"):
        check(*GAME, "--collocate", "--paper-rebn", "--estimator-options", '{"eps": 1e-5}')


def test_the_schedule_of_the_learning_rate_knows_the_epochs() -> None:
    assert check(*GAME, "--collocate", "--num-ppo-epochs", "2").max_step_adjustment == 2


def test_an_evaluation_right_after_a_transfer_is_accepted() -> None:
    for words in ("2 --eval-steps 4", "2 --eval-steps -1", "1 --eval-steps 3 --eval-query-interval 9"):
        assert check(*GAME, "--collocate", "--sync-params-every", *words.split())


def test_a_checkpoint_between_two_transfers_cannot_be_continued(tmp_path: Path) -> None:
    """The weights of the engines, which are older than the checkpoint's, are lost."""
    resumed = [*GAME, "--collocate", "--resume-dir", str(tmp_path), "--eval-steps", "-1"]
    for steps, every in ((3, 2), (4, 3), (5, 10)):
        Progress(steps, [0] * 8, {}).write(checkpoint := tmp_path / f"step_{steps:05}")
        assert check(*resumed, "--resume-tag", checkpoint.name)
        with pytest.raises(ConfigError, match=f"batch {steps} lacks the weights that the engines had"):
            check(*resumed, "--resume-tag", checkpoint.name, "--sync-params-every", str(every))
    Progress(4, [0] * 8, {}).write(tmp_path / "step_00004")
    assert check(*resumed, "--resume-tag", "step_00004", "--sync-params-every", "2")


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ("--collocate", "--env-id is missing"),
        ("--env-id game:GuessTheNumber-v0(max_numbr=5) --collocate", "max_numbr"),
        ("{game} --collocate --wrappers nonesuch", "nonesuch"),
        ("{game} --collocate --critic-type ppo", "set --critic-type ppo and --estimator gae"),
        ("{game} --collocate --kl-penalty-coef 0.1", "would never reach the returns of earlier turns"),
        ("{game} --collocate --reward-scale 2", "would scale the returns but not their statistics"),
        ("{game} --collocate --whiten-adv", "--whiten-adv=True"),
        ("{game} --collocate --whiten-rewards", "--whiten-rewards=True"),
        ("{game} --collocate --non-stop-penalty -1", "rewards come from the environment"),
        ("{game} --collocate --num-samples 4", "--group-size is the number of episodes per task"),
        ("{game} --collocate --num-prompt-epoch 2", "raise --max-train"),
        ("{game} --asynchronous", "between the turns of an episode"),
        ("{game} --collocate --prompt-data some/dataset", "tasks are generated from --env-id"),
        ("{game} --collocate --reinforce-update", "divides by zero"),
        ("{game} --collocate --resume-dir runs/x", "--resume-dir=runs/x: expected the folder"),
        ("{game} --collocate --estimator grpo", "--group-size=1 every advantage would be 0"),
        ("{game} --collocate --estimator gae", "set --critic-type ppo and --estimator gae"),
        ("{critic} --resume-dir runs/x", "Oat's checkpoints do not contain the critic"),
        ("{critic} --zero-stage 3 --no-use-fused-lm-head", "--zero-stage=3: expected at most 2"),
        ("{critic} --num-gpus-per-actor 2", "needs an actor for each learner"),
        ("{critic} --no-use-fused-lm-head --train-batch-size-per-device 4", "critic.* takes single rows"),
        ("{critic} --ignore-no-eos", "--ignore-no-eos=True: Oat's critic of turns would still learn"),
        ("{game} --collocate --sync-params-every 2 --eval-steps 1", "set --eval-steps to a multiple of 2 "),
        ("{game} --collocate --sync-params-every 3 --eval-steps 20", "set --eval-steps to a multiple of 3 "),
        ("{game} --collocate --sync-params-every 2 --eval-steps 4 --eval-query-interval 9",
         "without --eval-query-interval"),
        ("{game} --gpus 1 --collocate --sync-params-every 2 --eval-steps 8", "a multiple of 16 "),
        ("{critic} --whiten-adv", "the advantages come from --estimator"),
        ("{critic} --length-norm-constant 64", "--length-norm-constant=64: it needs --critic-type drgrpo"),
        ("{game} --collocate --critic-type grpo --length-norm-constant 64", "it needs --critic-type drgrpo"),
        ("{game} --collocate --lam 0.9", "--lam=0.9: it needs a critic"),
        ("{game} --collocate --critic-learning-rate 1e-5", "it needs a critic"),
        ("{game} --collocate --apply-chat-template", "--template-kwargs and --raw control the template"),
        ("{game} --collocate --best-of-n-eval", "--eval-n sets the number of episodes"),
        ("{game} --collocate --prompt-max-length 512", "--max-model-len limits prompts"),
        ("{game} --collocate --max-epochs 2", "--num-ppo-epochs sets the number of passes"),
        ("{game} --collocate --dump-all-buffer", "it fails in Oat"),
        ("{game} --collocate --label-smoothing 0.1", "--label-smoothing=0.1: it has no effect on PPO"),
        ("{game} --collocate --rm-lr 0.1", "--rm-lr=0.1: it has no effect on PPO"),
        ("{game} --collocate --activation-offloading", "--activation-offloading=True: it has no effect"),
        ("{game} --collocate --eval-split dev", "no effect on tasks generated from environments"),
        ("{game} --collocate --num-groups 2 --rollout-batch-size 256 --train-batch-size 256 --rnd-seed",
         "pass the same --seed to all"),
        ("{game} --collocate --estimator rloo --group-size 4 --estimator-options {{\"eps\":1}}",
         "option '--estimator-options.eps' of rloo"),
        ("{game} --collocate --estimator reinforce --estimator-options {{\"scope\":\"trained\"}}",
         "option '--estimator-options.scope' of reinforce"),
        ("{game} --collocate --gamma 1.5", "--gamma=1.5: expected a number from 0 to 1"),
        ("{game} --collocate --max-turns 0", "--max_turns=0"),
        ("{game} --collocate --raw", "--raw needs --context rebuild"),
        ("{game} --collocate --context rebuild --raw --system-prompt x", "omit --system-prompt"),
        ("{game} --collocate --template-kwargs [", "expected a JSON object"),
        ("{game} --collocate --num-env 0", "--num-env=0"),
        ("{game} --collocate --pi-buffer-maxlen-per-device 64", "an update takes 16 turns per learner"),
        ("{game} --collocate --rollout-batch-size 100", "is not a multiple of 8 learners"),
        ("{game} --collocate --train-batch-size 100", "is not a multiple of 8 learners"),
        ("{game} --collocate --train-batch-size 64 --rollout-batch-size 80 --rollout-batch-size-per-device 5",
         "would continue in the next step"),
        ("{game} --collocate --train-batch-size-per-device 4", "needs --no-use-fused-lm-head"),
        ("{game} --collocate --max-train 2000000", "expected at most 1000000"),
        ("{game} --collocate --gpus 16 --rollout-batch-size-per-device 8", "Oat rejects .*8 GPUs available"),
        ("{game} --collocate --modules no_such_module", "is its folder on PYTHONPATH"),
        ("{game} --collocate --num-ppo-epochs 0", "--num-ppo-epochs=0: expected a whole number"),
        ("{game} --collocate --length-norm-constant 0", "--length-norm-constant=0: expected a whole number"),
        ("{game} --collocate --max-eval 0", "--max-eval=0: expected a whole number of at least 1"),
        ("{game} --collocate --eval-n -1", "--eval-n=-1: expected a whole number of at least 1"),
        ("{game} --collocate --max-train 0", "--max-train=0: expected a whole number of at least 1"),
        ("{game} --collocate --generate-max-length -1", "--generate-max-length=-1: expected a whole number"),
        ("{game} --collocate --eval-generate-max-length -1", "expected a whole number of at least 0"),
        ("{game} --collocate --max-model-len 0", "--max-model-len=0: expected a whole number of at least 1"),
        ("{game} --collocate --train-batch-size -128", "--train-batch-size=-128: expected a whole number"),
        ("{game} --collocate --rollout-batch-size-per-device 0", "=0: expected a whole number of at least 1"),
        ("{game} --collocate --gpus 0", "--gpus=0: expected a whole number of at least 1"),
        ("{game} --collocate --num-gpus-per-actor 9", "=9: expected a whole number from 1 to 8"),
        ("{game} --collocate --group-rank 1", "--group-rank=1: expected a whole number from 0 to 0"),
        ("{game} --collocate --sync-params-every 0", "--sync-params-every=0: expected a whole number of at"),
        ("{game} --collocate --logging-steps 0", "--logging-steps=0: expected a whole number of at least 1"),
        ("{game} --collocate --temperature 0", "--temperature=0.0: expected a number above 0"),
        ("{game} --collocate --tis-c 0", "--tis-c=0.0: expected a number above 0"),
        ("{game} --collocate --beta -0.1", "--beta=-0.1: expected a number of at least 0"),
        ("{game} --collocate --cliprange -0.2", "--cliprange=-0.2: expected a number of at least 0"),
        ("{game} --collocate --learning-rate -1e-6", "--learning-rate=-1e-06: expected a number"),
        ("{game} --collocate --lr-warmup-ratio 2", "--lr-warmup-ratio=2.0: expected a number from 0 to 1"),
        ("{game} --collocate --top-p 1.5", "--top-p=1.5: expected a number above 0 and up to 1"),
        ("{game} --collocate --zero-stage 5", "--zero-stage=5: expected a whole number from 0 to 3"),
        ("{game} --collocate --top-k -2", "--top-k=-2: expected a whole number of at least 1, or -1"),
        ("{game} --collocate --eval-top-k 0", "--eval-top-k=0: expected a whole number of at least 1, or -1"),
        ("{game} --collocate --eval-batch-size 0", "--eval-batch-size=0: expected a whole number of at"),
        ("{game} --collocate --lora-rank -1", "--lora-rank=-1: expected a whole number of at least 1, or 0"),
        ("{game} --collocate --lora-alpha 0", "--lora-alpha=0: expected a whole number of at least 1"),
        ("{game} --collocate --lora-dropout 1", "--lora-dropout=1.0: expected a number of at least 0"),
        ("{game} --collocate --adam-beta-2 1", "--adam-beta-2=1.0: expected a number of at least 0"),
        ("{game} --collocate --adam-beta-1 nan", "--adam-beta-1=nan: expected a number of at least 0"),
        ("{game} --collocate --l2 -1", "--l2=-1.0: expected a number of at least 0"),
        ("{game} --collocate --zpg 0", "--zpg=0: expected a whole number of at least 1"),
        ("{critic} --lam 0.9 --estimator-options {{\"lam\":0.5}}", "--lam=0.9 contradicts --estimator"),
        ("{critic} --vf-coef -1", "--vf-coef=-1.0: expected a number of at least 0"),
    ],
)  # fmt: skip
def test_unsupported_options_are_rejected(words: str, message: str) -> None:
    game = f"--env-id {harness.GAME}"
    with pytest.raises(GemError, match=message) as caught:
        check(*words.format(game=game, critic=f"{game} --collocate {CRITIC}").split())
    assert "\n" not in str(caught.value)


def test_a_temperature_has_log_probs_of_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    words = (*GAME, "--collocate", "--temperature", "0.7")
    for engine in (None, "1"):
        if engine is not None:
            monkeypatch.setenv("VLLM_USE_V1", engine)
        with pytest.raises(ConfigError, match=r"--temperature=0\.7 needs VLLM_USE_V1=0 .* or --tis-c None"):
            check(*words)
        assert check(*words, "--tis-c", "None").temperature == 0.7
    monkeypatch.setenv("VLLM_USE_V1", "0")
    assert check(*words).tis_c == 2.0


def test_a_bos_that_a_wrapper_writes_is_not_added_by_the_context() -> None:
    """Mistral's template writes one; a raw rebuilt context has no template of its own."""
    from gem_oat._actor import Actor

    actor = Actor.__new__(Actor)
    actor.tokenizer = bpe_tokenizer("mistral")
    for given, has_one in (({"context": "rebuild"}, True), ({"context": "rebuild", "raw": True}, False)):
        actor._player = EpisodePlayer(RolloutOptions.read(given, prefix="--"), actor.tokenizer)
        assert (actor.tokenizer.bos_token_id in actor._player.context.first("text")) is has_one
        actor._check_bos()
    actor.tokenizer.chat_template = "{% for message in messages %}{{ message.content }}{% endfor %}"
    actor._player = EpisodePlayer(RolloutOptions.read({"context": "rebuild"}, prefix="--"), actor.tokenizer)
    with pytest.raises(ConfigError, match="the prompts have no "):
        actor._check_bos()


def test_unknown_names_suggest_the_closest() -> None:
    with pytest.raises(UnknownEnv, match="GuessTheNumber"):
        check("--env-id", "game:GuesTheNumber-v0", "--collocate")
    with pytest.raises(ConfigError, match=r"--estimator: unknown estimator 'rebm'\. Did you mean rebn"):
        check(*GAME, "--collocate", "--estimator", "rebm")


@estimator()
def mine(turn_rewards: Any, *, group_ids: Any, gamma: float = 1.0, factor: float = 1.0) -> Any:
    return [[factor * reward for reward in rewards] for rewards in turn_rewards]


def test_a_registered_estimator_and_any_option_of_one() -> None:
    for name in ("mine", "gem_mine"):
        args = Args(estimator=name, estimator_options='{"factor": 2, "truncation": "mask"}', gamma=0.5)
        choice = args.choose_estimator()
        assert (choice.estimator.name, choice.options, choice.truncation) == ("mine", {"factor": 2}, "mask")
    assert Args(estimator_options='{"weight": "turn"}').choose_estimator().options == {"weight": "turn"}
    for text, message in (
        ('{"dof": 1}', "unknown option '--estimator-options.dof' of rebn"),
        ('{"statistics": "env"}', "rebn needs env_ids .*Oat does not supply"),
        ('{"weight": "episode"}', "Oat's learner does not know which turns are of one episode"),
        ('{"ddof": 2}', r"--estimator-options=.*: ddof=2: expected 0 or 1"),
        ('{"truncation": "mask"}', "unknown option '--estimator-options.truncation' of rebn"),
        ("[1]", "--estimator-options=.*expected a JSON object"),
    ):
        with pytest.raises(ConfigError, match=message):
            Args(estimator_options=text).choose_estimator()


@estimator()
def return_of_episodes(turn_rewards: Any, *, gamma: float = 1.0, stats: Any = None) -> Any:
    """With statistics, but of whole episodes."""
    totals = [float(np.sum(rewards)) for rewards in turn_rewards]
    return [[total - np.mean(totals)] * len(one) for total, one in zip(totals, turn_rewards, strict=True)]


@estimator()
def centered_returns(turn_rewards: Any, *, gamma: float = 1.0, stats: Any = None) -> Any:
    found = returns(turn_rewards, gamma)
    mean = np.concatenate(found).mean()
    return [one - mean for one in found]


@estimator(critic_learns="return")
def by_group(turn_rewards: Any, *, values: Any, group_ids: Any, gamma: float = 1.0) -> Any:
    return turn_rewards


@estimator(critic_learns="return")
def whitened(turn_rewards: Any, *, values: Any, gamma: float = 1.0) -> Any:
    every = np.concatenate([np.asarray(one) for one in turn_rewards])
    return [np.asarray(one) - every.mean() for one in turn_rewards]


@estimator(critic_learns="return")
def errors_of_the_critic(turn_rewards: Any, *, values: Any, gamma: float = 1.0) -> Any:
    return [(np.asarray(one) - v).tolist() for one, v in zip(turn_rewards, values, strict=True)]


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("return_of_episodes", "return_of_episodes: Oat's learner has the returns of turns, without their"),
        ("by_group", "by_group needs group_ids, values, but Oat's learner computes the advantages of one"),
        ("whitened", "whitened: Oat's learner has one episode at a time, from which it computes other"),
        ("centered_returns", None),
        ("errors_of_the_critic", None),
        ("rebn", None),
        ("reinforce_plus_plus", None),
        ("gae", None),
    ],
)
def test_an_estimator_that_needs_more_at_once_than_the_learner_has(name: str, message: str | None) -> None:
    args = Args(estimator=name, gamma=0.5)
    if message is None:
        assert args.choose_estimator().name == name
    else:
        with pytest.raises(ConfigError, match=message):
            args.choose_estimator()


@pytest.mark.parametrize(("rows", "reaches"), [(1, True), (2, False)])
def test_the_fused_head_passes_no_gradient_below_it_for_several_rows(rows: int, reaches: bool) -> None:
    """Show the reason for rejecting it; if this fails, Oat has fixed it."""
    below = torch.randn(rows, 4, 8, requires_grad=True)
    weight = torch.randn(11, 8, requires_grad=True)
    hidden = (below * 1)[:, :-1]
    logprobs, _ = FusedLinear(compute_entropy=True)(hidden, weight, torch.ones(rows, 3).long())
    logprobs.sum().backward()
    assert weight.grad is not None
    assert (below.grad is not None) == reaches


def test_another_signature_in_oat_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    expect_listed(gem_oat._SUPPORTED, "oat")

    def renamed(self: Any, returns: Any) -> Any:
        return returns

    monkeypatch.setattr(PPOLearner, "compute_monte_carlo_advantages", renamed)
    with pytest.raises(
        UnsupportedTrainer,
        match=r"compute_monte_carlo_advantages takes \(self, returns\): expected \(self, rewards.*<0\.3",
    ) as caught:
        expect_listed(gem_oat._SUPPORTED, "oat")
    assert "\n" not in str(caught.value)


def test_an_update_without_our_advantages_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    def without(self: Any, trajectory: Any) -> Any:
        return self.masked_aggregator(self.critic)

    monkeypatch.setattr(PPOLearner, "learning_step", without)
    with pytest.raises(
        UnsupportedTrainer, match=r"learning_step does not use compute_monte_carlo_advantages\. Supported"
    ):
        expect_listed(gem_oat._SUPPORTED, "oat")


def test_another_version_of_oat_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(type(gem_oat._SUPPORTED), "installed_version", lambda self: "0.1.4")
    with pytest.raises(UnsupportedTrainer, match=r"Oat 0\.1\.4 is not supported.*>=0\.2\.3,<0\.3"):
        gem_oat.Learner  # noqa: B018


def test_unknown_names_list_what_exists() -> None:
    assert gem_oat.Args is Args
    with pytest.raises(AttributeError, match="Learner"):
        gem_oat.Lerner  # noqa: B018


def test_the_command_line_ends_with_one_line(tmp_path: Path) -> None:
    command = harness.command(Path("model"), tmp_path, env_id="game:GuesTheNumber-v0", modules="oat_cpu")
    done = subprocess.run(
        command, env=harness.environment(tmp_path), capture_output=True, text=True, check=False
    )
    assert done.returncode == 2
    last = done.stderr.strip().splitlines()[-1]
    assert last.startswith("gem_oat: ")
    assert "GuessTheNumber" in last
    assert sys.executable == command[0]


def test_images_are_rejected_with_the_reason() -> None:
    register("test:OatImages", ImageEnv)
    with pytest.raises(ConfigError, match="test:OatImages shows images, but Oat's rows have no place"):
        check("--env-id", "test:OatImages", "--collocate")

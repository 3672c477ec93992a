from __future__ import annotations

import dataclasses
import gc
import json
import math
import shutil
from collections import defaultdict
from statistics import fmean

import pytest

torch = pytest.importorskip("torch", reason="needs the extra 'train'")

from safetensors.torch import load_file  # noqa: E402
from transformers import AutoModelForCausalLM, AutoTokenizer  # noqa: E402

from gem_core.advantages import estimator, gdpo  # noqa: E402
from gem_core.errors import UnsupportedTemplate  # noqa: E402
from gem_core.rollout import read_traces  # noqa: E402
from gem_core.tasks import EVAL_SEEDS  # noqa: E402
from gem_lab.train import TrainConfig, train  # noqa: E402
from gem_lab.train._checkpoint import list_checkpoints, load_state  # noqa: E402
from gem_lab.train._report import TrainReporter  # noqa: E402
from gem_lab.train._trainer import Learner, Trainer  # noqa: E402
from tests.train.helpers import EASY, LONG, options, read_metrics, same_weights  # noqa: E402

NAMES = {
    "step", "gem/return", "gem/success", "gem/turns", "gem/format_error_rate", "gem/truncation_rate",
    "gem/tool_calls", "gem/tool_errors", "gem/error_rate", "rebn/turns", "rebn/return_mean",
    "rebn/return_std", "train/loss", "train/entropy", "train/grad_norm", "train/learning_rate",
}  # fmt: skip


def traced(run, step):
    """Return the training episodes of a step, from the traces."""
    episodes = list(read_traces(run / "traces.jsonl"))
    return [e for e in episodes if e.metadata["request"].startswith(f"step {step}/")]


# -- learning ---------------------------------------------------------------------------------


def test_the_agent_learns_an_easy_game(learned):
    before, after = (learned.mean(when, "gem/return") for when in ("before", "after"))
    assert before < 0.72  # random play
    assert after > before + 0.1
    curve = [metrics["gem/return"] for metrics in learned.history]
    assert fmean(curve[-5:]) > fmean(curve[:5]) + 0.1


def test_metrics_have_the_common_names_and_are_those_on_disk(learned):
    assert [metrics["step"] for metrics in learned.history] == list(range(1, 31))
    for metrics in learned.history:
        assert metrics.keys() >= NAMES
        assert all(math.isfinite(value) for value in metrics.values())
    on_disk = read_metrics(learned.folder)
    for written, metrics in zip(on_disk, learned.history, strict=True):
        assert written == {key: value for key, value in metrics.items() if not key.startswith("time/")}


@pytest.mark.parametrize("step", [10, 30])
def test_metrics_and_advantages_of_a_step_match_its_episodes(learned, step):
    episodes = traced(learned.folder, step)
    assert len(episodes) == 96
    metrics = learned.history[step - 1]
    assert metrics["gem/return"] == pytest.approx(fmean(sum(e.rewards) for e in episodes))
    assert metrics["gem/turns"] == pytest.approx(fmean(len(e.turns) for e in episodes))
    assert metrics["gem/success"] == pytest.approx(fmean(e.success for e in episodes))

    all_returns = [discounted(e.rewards, 0.9) for e in episodes]
    flat = [value for returns in all_returns for value in returns]
    mean = sum(flat) / len(flat)
    std = math.sqrt(sum((value - mean) ** 2 for value in flat) / len(flat))
    assert (metrics["rebn/turns"], metrics["rebn/return_mean"]) == (len(flat), pytest.approx(mean))
    assert metrics["rebn/return_std"] == pytest.approx(std)
    for episode, returns in zip(episodes, all_returns, strict=True):
        expected = [(value - mean) / std for value in returns]
        assert [turn.advantage for turn in episode.turns] == pytest.approx(expected, abs=1e-6)


def discounted(rewards, gamma):
    """Compute the return of every turn by its definition."""
    return [
        sum(gamma ** (later - turn) * rewards[later] for later in range(turn, len(rewards)))
        for turn in range(len(rewards))
    ]


def test_evaluation_plays_the_same_seeds_before_and_after(learned):
    seeds = defaultdict(list)
    for episode in read_traces(learned.folder / "traces.jsonl"):
        kind = "eval" if episode.metadata["request"].startswith("evaluation") else "train"
        seeds[kind, episode.metadata["step"]].append(episode.seed)
    assert seeds["eval", 0] == seeds["eval", 30] == list(EVAL_SEEDS[:96])
    assert not set(seeds["train", 10] + seeds["train", 20]) & set(EVAL_SEEDS)
    assert not set(seeds["train", 10]) & set(seeds["train", 20])


# -- one step ---------------------------------------------------------------------------------


def test_zero_advantages_leave_the_weights_unchanged(tiny_folder, tmp_path):
    outcome = train(
        TrainConfig(
            **options(tiny_folder, tmp_path, zero_advantages=True, kl=0.0, entropy=0.0, learning_rate=0.1)
        )
    )
    assert same_weights(tiny_folder, outcome.checkpoint)
    assert outcome.before == outcome.after  # the same episodes are played
    assert all(metrics["train/grad_norm"] == 0 for metrics in outcome.history)


@pytest.mark.parametrize("estimator", ["rebn", "reinforce", "grpo", "rloo", "gae"])
def test_every_estimator_gives_its_advantages_and_changes_the_weights(estimator, tiny_folder, tmp_path):
    config = TrainConfig(
        **options(
            tiny_folder, tmp_path, estimator=estimator, group_size=4, episodes_per_step=16, trace_every=1,
            trace_episodes=16, eval_episodes=0, gamma=0.8,
        )
    )  # fmt: skip
    outcome = train(config)
    assert not same_weights(tiny_folder, outcome.checkpoint)
    assert outcome.history[-1]["train/grad_norm"] > 0
    for step in (1, 2):
        episodes = traced(tmp_path, step)
        given = [[turn.advantage for turn in episode.turns] for episode in episodes]
        assert len(episodes) == 16
        groups = [episode.metadata["group"] for episode in episodes]
        assert groups == [4 * (step - 1) + number // 4 for number in range(16)]
        assert len({(e.metadata["group"], e.seed) for e in episodes}) == 4
        if estimator == "gae":
            assert all(math.isfinite(value) for credit in given for value in credit)
            assert len({value for credit in given for value in credit}) > 1
            continue
        for credit, expected in zip(given, by_hand(estimator, episodes, 0.8), strict=True):
            assert credit == pytest.approx(expected, abs=1e-5)
    if estimator == "gae":
        assert load_state(outcome.checkpoint)["learners"][""]["critic"]["weight"].any()  # starts as zeros


@pytest.mark.parametrize("estimator", ["rebn", "gae"])
def test_autocast_trains_float32_weights(estimator, tiny_folder, tmp_path):
    config = TrainConfig(**options(tiny_folder, tmp_path, estimator=estimator, autocast=True, kl=0.1))
    outcome = train(config)
    assert not same_weights(tiny_folder, outcome.checkpoint)
    assert {weights.dtype for weights in load_file(outcome.checkpoint / "model.safetensors").values()} == {
        torch.float32
    }
    assert all(math.isfinite(value) for metrics in outcome.history for value in metrics.values())
    assert all(metrics["train/grad_norm"] > 0 for metrics in outcome.history)


def test_a_reward_with_components_and_masked_truncation(tiny_folder, tmp_path):
    """GDPO gets the components of the environment; with truncation="mask", truncated episodes get nothing."""
    config = TrainConfig(
        **options(
            tiny_folder, tmp_path, env=["parts:Parts-v0"], estimator="gdpo",
            estimator_options={"truncation": "mask"}, group_size=4,
            episodes_per_step=16, steps=1, trace_every=1, trace_episodes=16, eval_episodes=0,
        )
    )  # fmt: skip
    outcome = train(config)
    episodes = traced(tmp_path, 1)
    kept = [reward for episode in episodes if not episode.truncated for reward in episode.rewards]
    assert outcome.history[0]["rebn/turns"] == len(kept) > 0
    assert outcome.history[0]["rebn/return_mean"] == pytest.approx(
        fmean(value for e in episodes if not e.truncated for value in discounted(e.rewards, config.gamma))
    )
    expected = gdpo(
        [episode.rewards for episode in episodes],
        group_ids=[episode.metadata["group"] for episode in episodes],
        reward_components=[
            [list(turn.info["reward_components"].values()) for turn in episode.turns] for episode in episodes
        ],
        gamma=config.gamma,
        truncated=[episode.truncated for episode in episodes],
    )
    assert {episode.truncated for episode in episodes} == {True, False}
    for episode, advantages in zip(episodes, expected, strict=True):
        assert [turn.advantage for turn in episode.turns] == pytest.approx(advantages.tolist(), abs=1e-6)
        assert not episode.truncated or not any(turn.advantage for turn in episode.turns)


def test_remax_compares_with_a_greedy_episode_of_each_task(tiny_folder, tmp_path, monkeypatch):
    played = []

    def play(self, tasks, players, name, step, **options):
        episodes = original(self, tasks, players, name, step, **options)
        if "greedy" in name:
            again = original(self, tasks, self._players("another seed", greedy=True), name, step)
            said = [[turn.response_ids for turn in episode.turns] for episode in episodes]
            assert said == [[turn.response_ids for turn in episode.turns] for episode in again]
            episodes[0].trainable = step == 1  # a failure in step 2
            played.append(episodes)
        return episodes

    original = Trainer._play
    monkeypatch.setattr(Trainer, "_play", play)
    config = TrainConfig(
        **options(
            tiny_folder, tmp_path, estimator="remax", group_size=4, episodes_per_step=16, trace_every=1,
            trace_episodes=16, eval_episodes=0, gamma=0.8, steps=2,
        )
    )  # fmt: skip
    train(config)
    assert [len(episodes) for episodes in played] == [4, 4]
    for step, greedy in enumerate(played, start=1):
        baselines = {(e.metadata["group"], e.seed): e.total_reward for e in greedy if e.trainable}
        for episode in traced(tmp_path, step):
            key = (episode.metadata["group"], episode.seed)
            wanted = [None] * len(episode.turns)
            if key in baselines:
                wanted = [value - baselines[key] for value in discounted(episode.rewards, 0.8)]
            assert [turn.advantage for turn in episode.turns] == pytest.approx(wanted)
        assert len(baselines) == (4 if step == 1 else 3)


def centered(turn_rewards, *, values, gamma=1.0, env_ids, shift=0.0):
    """The rewards minus the critic's values, in a form of its own."""
    return [
        [reward - value + shift for reward, value in zip(rewards, episode_values, strict=True)]
        for rewards, episode_values in zip(turn_rewards, values, strict=True)
    ]


@pytest.mark.parametrize("learns", ["advantage", "return"])
def test_a_registered_estimator_says_what_the_critic_learns(learns, tiny_folder, tmp_path, monkeypatch):
    seen = []

    def update(self, step, batch, targets):
        seen.append(targets)
        return original(self, step, batch, targets)

    original = Learner._update
    monkeypatch.setattr(Learner, "_update", update)
    name = f"own_with_{learns}"
    estimator(name=name, critic_learns=learns)(centered)
    config = TrainConfig(
        **options(
            tiny_folder, tmp_path, estimator=name, estimator_options={"shift": 2.0}, steps=1, eval_episodes=0,
            episodes_per_step=8, trace_every=1, trace_episodes=8, gamma=0.5,
        )
    )  # fmt: skip
    train(config)
    assert config.choice.needs == ("env_ids", "values")
    episodes = traced(tmp_path, 1)
    # The critic begins with one value for all states, its bias.
    rewards = [reward for episode in episodes for reward in episode.rewards]
    biases = [turn.reward + 2 - turn.advantage for episode in episodes for turn in episode.turns]
    assert biases == pytest.approx([biases[0]] * len(rewards), abs=1e-5)
    expected_returns = [value for episode in episodes for value in discounted(episode.rewards, 0.5)]
    wanted = expected_returns if learns == "return" else [reward + 2 for reward in rewards]
    assert seen[0].tolist() == pytest.approx(wanted)


def by_hand(estimator, episodes, gamma):
    """Compute advantages from rewards and groups by the formulas of the papers."""
    returns = [discounted(episode.rewards, gamma) for episode in episodes]
    if estimator == "reinforce":
        return returns
    if estimator == "rebn":
        flat = torch.tensor([value for some in returns for value in some], dtype=torch.float64)
        mean, std = flat.mean(), flat.std(unbiased=False)
        return [[float((value - mean) / std) for value in some] for some in returns]
    credit = []
    for episode, own in zip(episodes, returns, strict=True):
        group = episode.metadata["group"]
        scores = [r[0] for e, r in zip(episodes, returns, strict=True) if e.metadata["group"] == group]
        if estimator == "rloo":
            score = own[0] - (sum(scores) - own[0]) / (len(scores) - 1)
        else:
            spread = torch.tensor(scores, dtype=torch.float64).std(unbiased=False).item()
            score = (own[0] - fmean(scores)) / spread if spread > 1e-6 else 0.0
        credit.append([score] * len(episode.turns))
    return credit


def test_a_mix_is_played_by_weight_and_evaluated_one_by_one(tiny_folder, tmp_path):
    outcome = train(
        TrainConfig(
            **options(
                tiny_folder, tmp_path, env=[f"{EASY}=3", LONG], episodes_per_step=40, steps=1,
                trace_every=1, trace_episodes=40, eval_episodes=6,
            )
        )
    )  # fmt: skip
    sizes = [episode.env_kwargs["max_number"] for episode in traced(tmp_path, 1)]
    assert 22 <= sizes.count(3) <= 38
    assert sizes.count(3) + sizes.count(8) == 40
    assert set(outcome.before) == set(outcome.after) == {EASY, LONG}
    assert outcome.mean("after", "gem/return") == pytest.approx(
        fmean(outcome.after[label]["gem/return"] for label in (EASY, LONG))
    )


@pytest.mark.parametrize("changes", [{}, {"estimator": "gae"}, {"loss_scale": "turn-mean", "kl": 1.0}])
def test_the_size_of_a_pass_does_not_change_the_update(changes, tiny_folder, tmp_path):
    histories = []
    for limit in (20, 32768):
        config = options(tiny_folder, tmp_path / str(limit), max_tokens_per_pass=limit, steps=1, epochs=2)
        histories.append(train(TrainConfig(**config | changes)).history[0])
    for name in ("train/loss", "train/entropy", "train/grad_norm"):
        assert histories[0][name] == pytest.approx(histories[1][name], rel=1e-3, abs=1e-5)


def test_the_number_of_minibatches_does_not_change_the_weight_of_the_critic(tiny_folder, tmp_path):
    losses = []
    for minibatches in (1, 4):
        config = options(
            tiny_folder, tmp_path / str(minibatches), estimator="gae", minibatches=minibatches, steps=1,
            zero_advantages=True, kl=0.0, learning_rate=1e-9, eval_episodes=0, episodes_per_step=32,
            env=["game:GuessTheNumber-v0(min_number=1, max_number=3, max_turns=1)"],
        )  # fmt: skip
        losses.append(train(TrainConfig(**config)).history[0]["train/loss"])
    assert losses[0] > 0  # loss of the critic alone
    assert losses[1] == pytest.approx(losses[0], rel=1e-3)


@pytest.mark.parametrize("critic", ["head", "model"])
def test_a_critic_that_warms_up_leaves_the_policy_alone(critic, tiny_folder, tmp_path):
    changes = {
        "estimator": "gae",
        "critic": critic,
        "learning_rate": 0.01,
        "entropy": 0.1,
        "episodes_per_step": 32,
    }
    config = options(
        tiny_folder, tmp_path, **changes, steps=3, critic_warmup=2, save_every=1, eval_episodes=0
    )
    history = train(TrainConfig(**config, keep_checkpoints=3)).history
    saved = list_checkpoints(tmp_path)
    assert [same_weights(tiny_folder, checkpoint) for checkpoint in saved] == [True, True, False]
    assert load_state(saved[0])["learners"][""]["critic"]["weight"].any()
    assert history[0]["train/explained_variance"] == pytest.approx(0, abs=1e-6)  # it starts with zeros
    assert abs(history[2]["train/explained_variance"]) > 1e-4


@pytest.mark.parametrize("critic", ["head", "model"])
def test_a_separate_critic_does_not_change_the_policys_update(critic, tiny_folder, tmp_path):
    checkpoints = []
    for weight in (0.0, 100.0):
        config = options(
            tiny_folder, tmp_path / str(weight), estimator="gae", critic=critic, value_weight=weight, steps=1,
            eval_episodes=0, learning_rate=0.01, minibatches=1, episodes_per_step=32,
        )  # fmt: skip
        checkpoints.append(train(TrainConfig(**config)).checkpoint)
    assert same_weights(*checkpoints) == (critic == "model")
    state = load_state(checkpoints[1])["learners"][""]
    assert state["critic"]["weight"].any()
    assert ("value_model" in state) == (critic == "model")


@pytest.mark.parametrize("estimator", ["rebn", "gae"])
def test_a_rebuilt_prompt_holds_what_the_wrapper_shows(estimator, tiny_folder, tmp_path):
    config = options(
        tiny_folder, tmp_path, env=[LONG], context="rebuild", wrappers="concat(max_history=2)", steps=1,
        estimator=estimator, trace_every=1, trace_episodes=8, eval_episodes=0,
    )  # fmt: skip
    outcome = train(TrainConfig(**config))
    assert not same_weights(tiny_folder, outcome.checkpoint)
    tokenizer = AutoTokenizer.from_pretrained(tiny_folder)
    assert {episode.context_mode for episode in traced(tmp_path, 1)} == {"rebuild"}
    turns = [(turn, index) for episode in traced(tmp_path, 1) for index, turn in enumerate(episode.turns)]
    for turn, _ in turns:
        prompt = tokenizer.decode(turn.context_ids)
        assert prompt.startswith("<|user|>")
        assert prompt.endswith(f"{turn.observation}<|end|><|assistant|>")
    assert max(number for _, number in turns) >= 2
    tokens = sum(len(turn.context_ids) + len(turn.response_ids) for turn, _ in turns)
    episodes = len(traced(tmp_path, 1))
    assert episodes == config["episodes_per_step"]
    assert outcome.history[0]["train/tokens"] == pytest.approx(tokens / episodes)


FEW = (
    "{{ '<|system|>later<|end|>' if messages | length > 3 }}"
    "{% for m in messages %}{{ '<|' + m.role + '|>' + m.content + '<|end|>' }}{% endfor %}"
    "{{ '<|assistant|>' if add_generation_prompt }}"
)
"""A template that rewrites the history once it has more than one turn."""


@pytest.mark.parametrize("estimator", ["rebn", "gae"])
def test_a_rendered_history_is_the_one_of_the_template(estimator, tiny_folder, tmp_path):
    config = options(
        tiny_folder, tmp_path, env=[LONG], context="template", chat_template=FEW, steps=1,
        estimator=estimator, trace_every=1, trace_episodes=8, eval_episodes=2,
    )  # fmt: skip
    outcome = train(TrainConfig(**config))
    assert not same_weights(tiny_folder, outcome.checkpoint)
    tokenizer = AutoTokenizer.from_pretrained(tiny_folder)
    episodes = traced(tmp_path, 1)
    assert {episode.context_mode for episode in episodes} == {"template"}
    assert max(len(episode.turns) for episode in episodes) > 2
    for episode in episodes:
        messages = []
        for turn, prompt in zip(episode.turns, episode.prompts(), strict=True):
            messages.append({"role": "user", "content": turn.observation})
            text = tokenizer.apply_chat_template(
                messages, chat_template=FEW, tokenize=False, add_generation_prompt=True
            )
            assert prompt == tokenizer.encode(text, add_special_tokens=False)
            ended = turn.response_ids[-1] == tokenizer.eos_token_id
            said = tokenizer.decode(turn.response_ids[: len(turn.response_ids) - ended])
            messages.append({"role": "assistant", "content": said})
        assert len(episode.rows()) == (2 if len(episode.turns) > 2 else 1)
    tokens = sum(len(row) for episode in episodes for row in episode.rows())
    assert outcome.history[0]["train/tokens"] == pytest.approx(tokens / len(episodes))


def test_sampling_stops_where_the_template_ends_an_answer_in_both_kinds_of_contexts(tiny_folder, tmp_path):
    """As with a base model, whose end-of-sequence token is not the one of the template."""
    folder = tmp_path / "model"
    shutil.copytree(tiny_folder, folder)
    tokenizer = AutoTokenizer.from_pretrained(folder)
    ends = {tokenizer.eos_token_id}
    tokenizer.eos_token = "<|endoftext|>"
    tokenizer.save_pretrained(folder)
    ends.add(tokenizer.eos_token_id)
    assert len(ends) == 2
    for context in ("append", "rebuild"):
        config = TrainConfig(**options(folder, tmp_path, context=context))
        assert Learner(config, str(folder), None).policy("").eos_token_ids == ends
    numbered = "{% for message in messages %}{{ loop.index }}"
    tokenizer.chat_template = tokenizer.chat_template.replace("{% for message in messages %}", numbered)
    tokenizer.save_pretrained(folder)
    assert Learner(config, str(folder), None).policy("").eos_token_ids == ends
    with pytest.raises(UnsupportedTemplate, match="the number of turns"):
        Learner(dataclasses.replace(config, context="append"), str(folder), None)


def test_wrappers_and_limits_of_the_config_hold(tiny_folder, tmp_path):
    config = options(
        tiny_folder, tmp_path, env=[LONG], wrappers="concat_with_action, time_limit(max_turns=3)", steps=1,
        trace_every=1, trace_episodes=8,
    )  # fmt: skip
    train(TrainConfig(**config))
    episodes = traced(tmp_path, 1)
    assert max(len(episode.turns) for episode in episodes) == 3
    second = next(episode.turns[1].observation for episode in episodes if len(episode.turns) > 1)
    assert "Find the hidden number" in second  # the history is shown again


def test_the_learning_rate_follows_the_schedule(tiny_folder, tmp_path):
    config = options(
        tiny_folder, tmp_path, steps=5, warmup_steps=2, learning_rate=1e-3, learning_rate_end=0.2,
        eval_episodes=0,
    )  # fmt: skip
    rates = [metrics["train/learning_rate"] for metrics in train(TrainConfig(**config)).history]
    assert rates == pytest.approx([0.5e-3, 0.8e-3, 0.6e-3, 0.4e-3, 0.2e-3])


def test_a_run_unfreezes_objects_only_if_it_froze_them(tiny_folder, tmp_path):
    class Count(TrainReporter):
        def step(self, metrics):
            frozen.append(gc.get_freeze_count())

    frozen: list[int] = []
    settings = {"steps": 1, "eval_episodes": 0}
    gc.freeze()
    try:
        train(TrainConfig(**options(tiny_folder, tmp_path / "keeps", **settings)), Count())
        assert gc.get_freeze_count()
        gc.unfreeze()
        train(TrainConfig(**options(tiny_folder, tmp_path / "undoes", **settings)), Count())
        assert not gc.get_freeze_count()
    finally:
        gc.freeze()  # as for all tests
    assert len(frozen) == 2
    assert all(frozen)


# -- the folder -------------------------------------------------------------------------------


def test_a_checkpoint_is_a_model_folder_from_which_a_run_can_start(learned, tmp_path):
    checkpoint = learned.checkpoint
    assert checkpoint.name == "step-000030"
    model = AutoModelForCausalLM.from_pretrained(checkpoint)
    tokenizer = AutoTokenizer.from_pretrained(checkpoint)
    assert model.config.vocab_size >= len(tokenizer)
    outcome = train(TrainConfig(**options(checkpoint, tmp_path, steps=1, eval_episodes=150)))
    assert outcome.before == learned.after  # the same weights play the same seeds


def test_only_the_newest_checkpoints_are_kept(tiny_folder, tmp_path):
    config = options(tiny_folder, tmp_path, steps=5, save_every=2, keep_checkpoints=2, eval_episodes=0)
    outcome = train(TrainConfig(**config))
    names = sorted(path.name for path in (tmp_path / "checkpoints").iterdir())
    assert names == ["step-000004", "step-000005"]
    assert outcome.checkpoint == list_checkpoints(tmp_path)[-1]


def test_the_folder_records_what_ran_and_its_results(learned):
    config = json.loads((learned.folder / "config.json").read_text())
    assert (config["env"], config["steps"], config["learning_rate"]) == ([EASY], 30, 2e-3)
    evaluation = json.loads((learned.folder / "evaluation.json").read_text())
    assert evaluation == {"before": learned.before, "after": learned.after}
    before, after = map(json.loads, (learned.folder / "evaluations.jsonl").read_text().splitlines())
    assert (before["step"], after["step"], len(set(after["seed"]))) == (0, 30, len(after["seed"]))
    for name in ("success", "return", "turns"):
        assert fmean(after[name]) == pytest.approx(learned.mean("after", f"gem/{name}"))
    assert [path.name for path in learned.folder.rglob(".*")] == [".lock"]  # no temporary file is left


def test_the_tiny_model_is_created_again_when_its_environment_changed(tmp_path, monkeypatch):
    from functools import partial

    from gem_lab.train import TinyOptions, _models, _report
    from gem_lab.train._tiny import folder_hash

    quick = partial(TinyOptions, warm_start_steps=1, corpus_episodes=10, warm_start_tokens=500, layers=1)
    monkeypatch.setattr(_models, "TinyOptions", quick)
    config = TrainConfig(env=[f"{EASY}=2"], out=str(tmp_path))
    folder = _models.prepare_model(config, config.model, _report.TrainReporter())
    assert folder == str(tmp_path / "tiny")
    first = folder_hash(tmp_path / "tiny")
    (tmp_path / "tiny" / "mark").write_text("the same folder")
    _models.prepare_model(config, config.model, _report.TrainReporter())
    assert (tmp_path / "tiny" / "mark").exists()
    _models.prepare_model(TrainConfig(env=[LONG], out=str(tmp_path)), "tiny", _report.TrainReporter())
    assert folder_hash(tmp_path / "tiny") != first
    assert not (tmp_path / "tiny" / "mark").exists()

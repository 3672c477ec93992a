"""Every failure prints one line to standard error, exits with code 2, and loses no existing file."""

from __future__ import annotations

import gc
import hashlib
import json
import logging
import math
import shutil
import sys

import pytest

torch = pytest.importorskip("torch", reason="needs the extra 'train'")

from gem_core.errors import EnvError  # noqa: E402
from gem_core.rollout import read_traces  # noqa: E402
from gem_lab import main  # noqa: E402
from gem_lab._run_folders import claimed  # noqa: E402
from gem_lab.train import TrainConfig, train  # noqa: E402
from gem_lab.train._checkpoint import list_checkpoints, load_state  # noqa: E402
from gem_lab.train._rollouts import Rollouts  # noqa: E402
from tests.train.helpers import EASY, Faulty, arguments, options, read_metrics  # noqa: E402


@pytest.fixture(scope="module")
def finished(tiny_folder, tmp_path_factory):
    """Folder of a finished run."""
    folder = tmp_path_factory.mktemp("runs") / "finished"
    train(TrainConfig(**options(tiny_folder, folder, trace_every=1)))
    return folder


def contents(folder):
    return {
        path.relative_to(folder): hashlib.sha256(path.read_bytes()).hexdigest()
        for path in folder.rglob("*")
        if path.is_file()
    }


def assert_one_line(capsys, words, *said):
    """Assert that the command fails with one line that contains all of `said`."""
    capsys.readouterr()
    assert main(words) == 2
    shown = capsys.readouterr().err
    assert shown.startswith("gem-core: error: ")
    assert shown.count("\n") == 1
    for part in said:
        assert part in shown


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"env": ["game:GuessTheNumbr-v0"]}, ["game:GuessTheNumbr-v0", "game:GuessTheNumber-v0"]),
        ({"env": ["game:GuessTheNumber-v0(depth=3)"]}, ["unexpected keyword argument 'depth'", "max_turns"]),
        ({"env": ["game:GuessTheNumber-v0(max_number='x')"]}, ["max_number", "'x'"]),
        ({"env": ["game:GuessTheNumber-v0("]}, ["is not an environment: ", "a parenthesis is missing"]),
        ({"wrappers": "nothing"}, ["unknown wrapper 'nothing'", "time_limit"]),
        ({"estimator": "rebm"}, ["unknown estimator 'rebm'", "rebn"]),
        ({"estimator": "grpo"}, ["with group_size=1 every advantage would be 0"]),
        ({"max_total_tokens": 5000}, ["max_total_tokens=5000", "context of 4096 tokens"]),
        ({"max_total_tokens": 5}, ["the first prompt has", "max_total_tokens=5"]),
        ({"device": "abacus"}, ["device='abacus': expected auto, cpu, or cuda[:N]"]),
        ({"device": "cuda:99"}, ["device 'cuda:99' does not exist"]),
        ({"gamma": 2.0}, ["gamma=2.0: expected a number from 0 to 1"]),
    ],
)  # fmt: skip
def test_a_mistake_is_reported_in_one_line_that_says_what_to_do(changes, said, tiny_folder, tmp_path, capsys):
    assert_one_line(capsys, arguments(tiny_folder, tmp_path, **changes), *said)


def test_one_run_at_a_time(finished, tiny_folder, capsys):
    before = contents(finished)
    with claimed(finished, "training run"):
        words = arguments(tiny_folder, finished, resume=False)
        assert_one_line(capsys, words, "another training run is running", "choose another folder")
    assert contents(finished) == before


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"wrappers": "nothing"}, "unknown wrapper 'nothing'"),
        ({"eval_env": ["game:GuessTheNumber-v0(max_number='x')"]}, "max_number"),
        ({"device": "cuda:99"}, "device 'cuda:99' does not exist"),
        ({"agent_model": ["user=tiny"]}, "agent_model: unknown agent 'user' of "),
        ({"estimator": "gdpo", "group_size": 2}, "'gdpo' needs reward_components, which game:GuessTheNumber"),
        ({"estimator_options": '{"dof": 1}'}, "unknown option 'estimator_options.dof' of rebn"),
        ({"estimator_options": '{"statistics": "group"}'}, "with group_size=1 every advantage would be 0"),
    ],
)
def test_a_mistake_shows_before_the_tiny_model_is_made(changes, said, tmp_path, capsys):
    assert_one_line(capsys, arguments("tiny", tmp_path, **changes), said)
    assert not (tmp_path / "tiny").exists()


def test_a_mistake_found_while_starting_over_leaves_the_old_run(finished, tiny_folder, tmp_path, capsys):
    before = contents(finished)
    for changes in (
        {"env": ["game:GuessTheNumber-v0(depth=3)"]},
        {"max_total_tokens": 5000},
        {"model": tmp_path / "nothing"},
        {"wandb": "mine"},
    ):
        words = arguments(**{"model": tiny_folder, "out": finished, "resume": False} | changes)
        assert_one_line(capsys, words)
        assert contents(finished) == before


def test_resuming_with_other_options_is_reported_in_one_line(finished, tiny_folder, capsys):
    before = contents(finished)
    words = arguments(tiny_folder, finished, trace_every=1, gamma=0.5)
    assert_one_line(capsys, words, "other options (gamma)", "another folder, or --no-resume")
    assert contents(finished) == before


def test_a_file_where_the_folder_should_be(tiny_folder, tmp_path, capsys):
    (tmp_path / "file").write_text("mine")
    for out in (tmp_path / "file", tmp_path / "file" / "run"):
        assert_one_line(capsys, arguments(tiny_folder, out), "cannot be written")
    assert (tmp_path / "file").read_text() == "mine"


def test_a_model_without_a_tokenizer(tiny_folder, tmp_path, capsys):
    for name in ("config.json", "model.safetensors"):
        (tmp_path / "bare").mkdir(exist_ok=True)
        shutil.copy(tiny_folder / name, tmp_path / "bare" / name)
    words = arguments(tmp_path / "bare", tmp_path / "run")
    assert_one_line(capsys, words, str(tmp_path / "bare"), "cannot load the tokenizer")


def test_a_model_without_weights(tiny_folder, tmp_path, capsys):
    shutil.copytree(tiny_folder, tmp_path / "bare")
    (tmp_path / "bare" / "model.safetensors").unlink()
    assert_one_line(capsys, arguments(tmp_path / "bare", tmp_path / "run"), "cannot load the model")


def test_a_model_that_does_not_exist(tmp_path, capsys):
    words = arguments(tmp_path / "nothing", tmp_path / "run")
    assert_one_line(capsys, words, f"{tmp_path / 'nothing'}: no such model folder")


def test_a_prompt_that_is_longer_than_the_context_of_the_model(tiny_folder, tmp_path, capsys):
    shutil.copytree(tiny_folder, tmp_path / "short")
    config = json.loads((tmp_path / "short" / "config.json").read_text())
    config["max_position_embeddings"] = 4
    (tmp_path / "short" / "config.json").write_text(json.dumps(config))
    words = arguments(tmp_path / "short", tmp_path / "run")
    assert_one_line(
        capsys, words, "4 of 4 episodes cannot be trained on", "the first prompt has", "max_total_tokens=4"
    )


@pytest.mark.parametrize(
    ("module", "changes", "said"),
    [
        ("wandb", {"wandb": "mine"}, "pip install wandb"),
        ("torch.utils.tensorboard", {"tensorboard": True}, "pip install 'gem-core[train]'"),
        ("matplotlib", {"curve": True}, "pip install 'gem-core[train]'"),
    ],
)
def test_a_package_that_is_needed_later_is_checked_immediately(
    module, changes, said, tmp_path, capsys, monkeypatch
):
    monkeypatch.setitem(sys.modules, module, None)
    # The model does not exist either, so the package is checked before anything is loaded.
    assert_one_line(capsys, arguments(tmp_path / "nothing", tmp_path / "run", **changes), said)


# -- environments -----------------------------------------------------------------------------


def test_a_nan_reward_is_a_failed_episode_and_training_continues(tiny_folder, tmp_path, caplog):
    config = options(
        tiny_folder, tmp_path, env=["faulty:Faulty-v0(nan_every=2)"], trace_every=1, trace_episodes=8
    )
    outcome = train(TrainConfig(**config))
    assert [metrics["gem/error_rate"] for metrics in outcome.history] == [0.5, 0.5]
    failed, played = [], []
    for episode in read_traces(tmp_path / "traces.jsonl"):
        if episode.metadata["request"].startswith("step"):
            (played if episode.seed % 2 else failed).append(episode)
    assert len(failed) == len(played) == 8
    assert not any(episode.trainable for episode in failed)
    assert all("nan" in episode.error for episode in failed)
    assert all(turn.advantage is None for episode in failed for turn in episode.turns)
    assert all(turn.advantage is not None for episode in played for turn in episode.turns)
    # One warning per step or evaluation, not one per episode.
    warnings = [record for record in caplog.records if record.levelno >= logging.WARNING]
    assert len(warnings) == 4
    seed = failed[0].seed
    said = f"faulty:Faulty-v0 with seed {seed}: step() returned the reward nan"
    assert f"step 1: 4 of 8 episodes cannot be trained on; the first is {said}" in caplog.text


def test_each_environment_is_counted_and_one_that_is_never_played_ends_the_run(tiny_folder, tmp_path):
    half = "faulty:Faulty-v0(nan_every=2)"
    outcome = train(TrainConfig(**options(tiny_folder, tmp_path / "a", env=[EASY, half])))
    for metrics in outcome.history:
        counts = {name: metrics[name] for name in metrics if "/played/" in name or "/failed/" in name}
        names = [EASY.replace("min_number=1, ", ""), half]  # without the default
        assert counts.keys() == {f"gem/{kind}/{env}" for kind in ("played", "failed") for env in names}
        assert sum(counts.values()) == 8
        assert metrics[f"gem/failed/{half}"] == 8 * metrics["gem/error_rate"]
    broken = "faulty:Faulty-v0(nan_every=1)"
    config = options(tiny_folder, tmp_path / "b", env=[EASY, broken], eval_episodes=0, episodes_per_step=32)
    with pytest.raises(EnvError, match=r"step 1: all \d+ episodes of faulty.*none was played before.*nan"):
        train(TrainConfig(**config))


def test_a_resumed_run_knows_which_environments_it_has_played(tiny_folder, tmp_path):
    # The environment fails from step 2 on, and a run may lose it for two steps, whether or not it is resumed.
    Faulty.played = 0
    config = options(
        tiny_folder, tmp_path, env=[EASY, "faulty:Faulty-v0(nan_after=4)"], eval_episodes=0, steps=5,
        save_every=1,
    )  # fmt: skip
    with pytest.raises(EnvError, match=r"step 4: all \d episodes of .* .for 3 steps in a row"):
        train(TrainConfig(**config))
    with pytest.raises(EnvError, match=r"step 4: all \d episodes of .* .for 3 steps in a row"):
        train(TrainConfig(**config))  # resumes from step 3


def test_failed_episodes_do_not_change_what_is_learned_from_the_others(tiny_folder, tmp_path):
    # Every second seed fails, so the statistics cover only the other half.
    config = options(
        tiny_folder, tmp_path, env=["faulty:Faulty-v0(nan_every=2)"], trace_every=1, trace_episodes=8, steps=1
    )
    metrics = train(TrainConfig(**config)).history[0]
    played = [e for e in read_traces(tmp_path / "traces.jsonl") if e.trainable and e.metadata["step"] == 1]
    played = [e for e in played if e.metadata["request"].startswith("step")]
    assert metrics["rebn/turns"] == sum(len(episode.turns) for episode in played)
    advantages = [turn.advantage for episode in played for turn in episode.turns]
    assert sum(advantages) == pytest.approx(0, abs=1e-6)


def test_when_all_episodes_fail_the_state_before_is_saved(tiny_folder, tmp_path, capsys):
    words = arguments(tiny_folder, tmp_path, env=["faulty:Faulty-v0(nan_after=16)"], steps=5, eval_episodes=0)
    assert_one_line(capsys, words, "step 3: no episode is trainable: 8 of 8 episodes", "reward nan")
    (checkpoint,) = list_checkpoints(tmp_path)
    assert checkpoint.name == "step-000002"
    assert [metrics["step"] for metrics in load_state(checkpoint)["history"]] == [1, 2]
    Faulty.played = -1000  # repaired
    assert main(words) == 0
    assert len(read_metrics(tmp_path)) == 5


def test_a_failed_environment_is_not_reused(tiny_folder, tmp_path):
    config = options(tiny_folder, tmp_path, env=["faulty:Faulty-v0(nan_every=2)"], eval_episodes=0)
    train(TrainConfig(**config))
    assert len(Faulty.made) > 8  # each failure uses up one instance
    assert {env.closed for env in Faulty.made} == {1}


@pytest.mark.parametrize(("limit", "warnings"), [(32, 1), (31, 0)])
def test_a_default_limit_that_cuts_turns_triggers_a_warning(limit, warnings, tiny_folder, tmp_path, caplog):
    config = options(
        tiny_folder, tmp_path, max_tokens_per_turn=limit, temperature=50.0, steps=1, episodes_per_step=104,
        eval_episodes=0,
    )  # fmt: skip
    train(TrainConfig(**config))  # at this temperature hardly any response ends by itself
    said = [record.getMessage() for record in caplog.records]
    assert len(said) == warnings
    assert all("cut at 32 tokens" in one and "raise max_tokens_per_turn" in one for one in said)


# -- the end ----------------------------------------------------------------------------------


def test_ctrl_c_is_reported_in_one_line_and_closes_everything(tiny_folder, tmp_path, capsys, caplog):
    words = arguments(
        tiny_folder, tmp_path, env=["faulty:Faulty-v0(interrupt_after=10)"], eval_episodes=0, save_every=1
    )
    assert main(words) == 130
    assert capsys.readouterr().err == "gem-core: interrupted\n"
    gc.collect()  # an abandoned task would warn now
    assert caplog.records == []
    assert Faulty.made
    assert all(env.closed for env in Faulty.made)
    assert Faulty.steps_after_interrupt == 0  # no episode continued
    assert [path.name for path in list_checkpoints(tmp_path)] == ["step-000001"]


def test_an_error_of_the_model_ends_all_episodes(tiny_folder, tmp_path, monkeypatch, caplog):
    from gem_lab._engines.sampling import BatchingPolicy

    def fail(self, requests):
        raise RuntimeError("out of memory")

    monkeypatch.setattr(BatchingPolicy, "sample", fail)
    with pytest.raises(RuntimeError, match="out of memory"):
        train(TrainConfig(**options(tiny_folder, tmp_path, env=["faulty:Faulty-v0"])))
    gc.collect()
    assert caplog.records == []
    assert all(env.closed for env in Faulty.made)


class NeverAsked:
    """A policy for environments that fail before their first turn."""

    async def generate(self, prompt_ids, *, max_tokens, request_id):
        raise AssertionError("there is no turn")


def test_failed_episodes_are_left_to_the_trainer_to_report(tiny_folder, tmp_path, tokenizer, caplog):
    from gem_chat import AppendContext
    from gem_core._tasks import evaluation_tasks

    config = TrainConfig(**options(tiny_folder, tmp_path))
    players = {"": (NeverAsked(), AppendContext(tokenizer))}
    rollouts = Rollouts(config, players, 5)
    try:
        episodes = rollouts.play(evaluation_tasks(config.sources[:1], 3), players, name="test")
    finally:
        rollouts.close()
    assert not any(episode.trainable for episode in episodes)
    assert caplog.records == []


def test_evaluation_that_fails_as_a_whole_stops_before_training(tiny_folder, tmp_path):
    config = TrainConfig(**options(tiny_folder, tmp_path, env=["faulty:Faulty-v0(nan_every=1)"]))
    with pytest.raises(
        EnvError, match=r"evaluation of faulty:Faulty-v0\(nan_every=1\): no episode is trainable: 4 of 4"
    ):
        train(config)
    assert read_metrics(tmp_path) == []


def test_evaluation_that_fails_as_a_whole_after_training_is_reported(tiny_folder, tmp_path, caplog):
    # It fails after 4 episodes of the first evaluation and 8 of training.
    env = "faulty:Faulty-v0(nan_after=12)"
    outcome = train(TrainConfig(**options(tiny_folder, tmp_path, env=[env], steps=1, curve=True)))
    assert outcome.after == {env: {"gem/error_rate": 1.0, "gem/retry_rate": 0.0}}
    assert json.loads((tmp_path / "evaluation.json").read_text())["after"] == outcome.after
    assert (tmp_path / "curve.png").exists()
    assert math.isnan(outcome.mean("after", "gem/success"))
    assert f"evaluation of {env}: 4 of 4 episodes cannot be trained on" in caplog.text


def test_reporter_is_closed_whatever_happens(tiny_folder, tmp_path):
    from gem_lab.train._report import TrainReporter

    class Closing(TrainReporter):
        closed = 0

        def close(self):
            self.closed += 1

    reporter = Closing()
    with pytest.raises(Exception, match="no such model folder"):
        train(TrainConfig(**options(tmp_path / "nothing", tmp_path / "run")), reporter)
    assert reporter.closed == 1
    train(TrainConfig(**options(tiny_folder, tmp_path, env=[EASY], steps=1, eval_episodes=0)), reporter)
    assert reporter.closed == 2

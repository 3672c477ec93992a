"""The reference trainer with a tiny vision-language model, up to the evaluation of its folder."""

from __future__ import annotations

import json
import shutil

import pytest

pytest.importorskip("PIL", reason="needs the extra 'vision'")
pytest.importorskip("torch", reason="needs the extra 'train'")
pytest.importorskip("transformers", reason="needs the extra 'train'")

import gem_core
from gem_chat._vision import is_processor
from gem_core.errors import ConfigError
from gem_core.images import image_urls
from gem_core.rollout import read_traces
from gem_lab._engines.loading import load_processor
from gem_lab.train import TinyOptions, TrainConfig, save_tiny, train
from tests.train.painted import Shades

ENV = "test:Shades-v0"
gem_core.register(ENV, Shades)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Folder of a model that knows the format of an answer but not which answers are right."""
    target = tmp_path_factory.mktemp("vision") / "tiny"
    options = TinyOptions(
        env=(ENV,), hidden_size=32, layers=1, warm_start_steps=80, warm_start_tokens=4096,
        warm_start_batch=512, warm_start_learning_rate=1e-2, corpus_episodes=16, vocab_size=512,
    )  # fmt: skip
    save_tiny(target, options)
    return target


def config(folder, out, **options):
    given = {
        "model": str(folder), "env": [ENV], "out": str(out), "steps": 16, "episodes_per_step": 128,
        "learning_rate": 5e-3, "eval_episodes": 64, "max_tokens_per_turn": 8, "warmup_steps": 1,
        "minibatches": 2, "kl": 0.0, "save_every": 16, "trace_every": 8, "threads": 1, "curve": False,
    }  # fmt: skip
    return TrainConfig(**{**given, **options})


@pytest.mark.long
def test_it_learns_to_look_and_its_folder_can_be_evaluated(folder, tmp_path):
    outcome = train(config(folder, tmp_path / "run"))
    before, after = outcome.before[ENV]["gem/success"], outcome.after[ENV]["gem/success"]
    assert before < 0.75
    assert after > 0.9, [round(step["gem/success"], 2) for step in outcome.history]
    shown = [
        image_urls(turn.observation) for e in read_traces(outcome.folder / "traces.jsonl") for turn in e.turns
    ]
    assert all(len(urls) == 1 for urls in shown)
    assert "Is more of it light or dark?" in (outcome.folder / "episodes.txt").read_text()

    from gem_lab.eval import EvalConfig, evaluate

    assert is_processor(load_processor(str(outcome.checkpoint)))
    run = evaluate(
        EvalConfig(
            f"hf:{outcome.checkpoint}", [ENV], episodes=32, out=str(tmp_path / "eval"), max_tokens_per_turn=8
        )
    )
    assert run.summary["envs"][ENV]["success"]["mean"] > 0.9
    line = json.loads((tmp_path / "eval" / "episodes.jsonl").read_text().splitlines()[0])
    assert line["schema_version"] == 3


def test_torchvision_is_not_needed(folder, monkeypatch):
    class AutoImageProcessor:
        """The class as some versions of transformers define it without torchvision."""

        @staticmethod
        def from_pretrained(source):
            raise ImportError("AutoImageProcessor requires the Torchvision library")

    monkeypatch.setattr("transformers.AutoImageProcessor", AutoImageProcessor)
    assert is_processor(load_processor(str(folder)))


def test_a_run_that_is_resumed_sees_the_same(folder, tmp_path):
    short = {"steps": 2, "save_every": 1, "keep_checkpoints": 2, "episodes_per_step": 8, "eval_episodes": 0}
    first = train(config(folder, tmp_path / "run", **short))
    shutil.rmtree(first.checkpoint)
    again = train(config(folder, tmp_path / "run", **short))
    for name in ("train/loss", "train/entropy", "gem/success"):
        assert [step[name] for step in again.history] == [step[name] for step in first.history]


def test_a_text_model_rejects_images_at_the_start(tmp_path):
    options = TinyOptions(warm_start_steps=0, corpus_episodes=2, hidden_size=32, layers=1, vocab_size=512)
    save_tiny(tmp_path / "text", options)
    with pytest.raises(ConfigError, match=r"test:Shades-v0 shows images, but this context supports text"):
        train(config(tmp_path / "text", tmp_path / "run"))

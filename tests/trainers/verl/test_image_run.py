"""The loss of verl's own trainer receives what the engine sampled from a tiny vision-language model."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
import torch
from transformers import AutoTokenizer

import gem_core
from gem_chat._vision import ImageProcessor
from gem_core.rollout import read_traces
from gem_lab._engines.loading import load_model, load_processor
from gem_lab.train import TinyOptions, save_tiny
from gem_lab.train._batches import policy_gradient
from tests.train.painted import Shades
from tests.trainers import evidence
from tests.trainers.verl import harness
from tests.trainers.verl.spied import updates as updates_of

TORCHVISION = os.environ.get("GEM_CORE_TORCHVISION")
pytestmark = [
    pytest.mark.skipif(not TORCHVISION, reason="needs torchvision in a folder; `nox -s verl-full` has it"),
    pytest.mark.timeout(1200),
    pytest.mark.full,
]
ENVS = ("test:Shades(turns=2)", "test:Shades(turns=1)")
"""Rows of unequal length, because verl 0.9.1 cannot split the positions of a batch of equally long rows."""
gem_core.register("test:Shades", Shades)


@pytest.fixture(scope="module")
def seeing(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Folder of a tiny model that answers in the right format and ends a turn with a token that verl knows.

    As in `warm`, each row of its embedding has a token.
    """
    folder = tmp_path_factory.mktemp("model") / "seeing"
    save_tiny(folder, TinyOptions(env=ENVS, vocab_size=512, warm_start_steps=80, corpus_episodes=50))
    tokenizer = AutoTokenizer.from_pretrained(folder)
    tokenizer.add_tokens([f"<unused {number}>" for number in range(-len(tokenizer) % 64)])
    tokenizer.save_pretrained(folder)
    for path in (*folder.glob("*.json"), *folder.glob("*.jinja")):
        path.write_text(path.read_text().replace("<|end|>", "<|im_end|>"))
    return folder


def run_verl(folder: Path, model: Path, *overrides: str) -> harness.Run:
    return harness.run_verl(
        folder,
        model,
        "trainer.v1.trainer_mode=gem_sync",
        f"data.train_files={list(ENVS)}",
        f"data.val_files={list(ENVS)}",
        "trainer.total_training_steps=2",
        "trainer.val_before_train=False",
        f"+gem.traces={folder}/traces",
        *overrides,
    )


@pytest.fixture(autouse=True)
def with_torchvision(monkeypatch: pytest.MonkeyPatch) -> None:
    beside = Path(__file__).resolve().parent / "torchvision_cpu"
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(beside), str(TORCHVISION)]))


def test_two_steps_with_images(tmp_path: Path, seeing: Path) -> None:
    run = run_verl(tmp_path, seeing, "actor_rollout_ref.rollout.load_format=auto").check()
    processor = load_processor(str(seeing))
    tokenizer, image_processor = processor.tokenizer, ImageProcessor(processor)
    played = evidence.played(run.spy, tokenizer)
    traces = {tuple(e.rows()[0].token_ids): e for e in read_traces(tmp_path / "traces" / "train.jsonl")}
    model = load_model(str(seeing), torch.device("cpu"), "float32")
    updates = updates_of(run.spy)
    assert len(updates) == 2
    for update in updates:
        mine = {evidence.name_in(row.prompt, tokenizer): row for row in update.rows}
        assert len(mine) == len(update.rows) > 0
        advantages = evidence.oracle([played[name].rewards for name in mine], evidence.GAMMA)
        episodes = []
        for (name, row), wanted in zip(mine.items(), advantages, strict=True):
            # The engine never samples placeholders of images, whose small probability the actor counts.
            evidence.assert_row_is_right(row, played[name], wanted, gap=0.05)
            episode = traces[tuple(played[name].token_ids)]
            assert (
                len(episode.images(len(episode.turns) - 1))
                == len(episode.turns)
                == episode.env_kwargs["turns"]
            )
            for turn, advantage in zip(episode.turns, wanted, strict=True):
                turn.advantage = advantage
            episodes.append(episode)
        evidence.load_weights(model, update.weights)
        gradient = list(policy_gradient(model, episodes, image_processor=image_processor).values())
        evidence.assert_same_direction(update.gradients, gradient)


def test_an_engine_without_image_support_is_rejected(tmp_path: Path, seeing: Path) -> None:
    run = run_verl(tmp_path, seeing)  # by default verl first fills the engine with dummy weights
    assert run.code
    assert "set actor_rollout_ref.rollout.load_format=auto" in run.output

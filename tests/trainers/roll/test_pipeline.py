"""Copied and dropped rows in ROLL's own batch filling, mini-batches, cache of log-probs, and metrics."""

from __future__ import annotations

from itertools import product
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from gem_roll import _pipeline
from gem_roll._failures import FAILED
from gem_roll._options import GemOptions
from gem_roll._pipeline import ReBNAgenticPipeline
from gem_roll._rows import EPISODE_JSON, object_array
from roll.pipeline.agentic import agentic_pipeline
from roll.pipeline.agentic.agentic_actor_worker import ActorWorker
from roll.pipeline.agentic.agentic_pipeline import AgenticPipeline, compute_train_data_metrics

from gem_core.errors import EnvError
from gem_core.rollout import Episode, Turn
from gem_core.rollout._sources import SourceLedger
from gem_core.trainers._failures import pack_outline
from tests.trainers.roll.configs import small_config
from tests.trainers.roll.test_advantages import batch

EPOCHS = 3
TURN = Turn([1], [2], None, 1.0, "", "", "stop")
MODES = ("copy", "delete", "auto", "random_sample")


def pipeline_of(folder: Path, update: int, micro: int, mode: str) -> Any:
    """Return the pipeline, without Ray, of a config whose update has `update` rows."""
    training = {"per_device_train_batch_size": micro, "gradient_accumulation_steps": update // micro}
    changed = {
        "ppo_epochs": EPOCHS,
        "batch_adjust_mode": mode,
        "actor_train": {"training_args": training, "infer_batch_size": 1},
    }
    made: Any = ReBNAgenticPipeline.__new__(ReBNAgenticPipeline)
    made._ledger = SourceLedger()
    made.pipeline_config = small_config(folder, changed)
    made.gem_options = GemOptions.from_config(made.pipeline_config)
    made.actor_train = SimpleNamespace(dp_size=1)
    return made


def collected(count: int, failed: int) -> Any:
    """Return rows of episodes as ROLL passes them to `adjust_batch`; some episodes were dropped earlier."""
    data = batch([[0.5, float(number)] for number in range(count)], rows="episode", own=True)
    data.batch["input_ids"] = torch.ones_like(data.batch["gem_turn_ids"])
    data.non_tensor_batch["sample_uuid"] = object_array([f"t{number}_{number}" for number in range(count)])
    data.non_tensor_batch["episode_scores"] = object_array([0.5 + number for number in range(count)])
    if failed:
        broken = Episode("test:Raises", 0, [], False, False, "env_error", trainable=False)
        data.meta_info[FAILED] = [pack_outline(broken)] * failed
    return data


def ratios(config: Any, data: Any) -> list[torch.Tensor]:
    """Return PPO's ratio of each token with a response, per micro-batch, in ROLL's order over all epochs.

    The weights do not change, so each ratio is 1. As in ROLL, log-probs are 0 where the mask is.
    """
    worker = SimpleNamespace(pipeline_config=config, _logprobs_cache={})
    training, found = config.actor_train.training_args, []
    size = training.per_device_train_batch_size * training.gradient_accumulation_steps
    updates = data.make_iterator(size, config.ppo_epochs, seed=42, dataloader_kwargs={"shuffle": True})
    for update in updates:
        for rows in update.make_iterator(training.per_device_train_batch_size, epochs=1):
            mask = rows.batch["response_mask"][:, 1:]
            logprobs = -2.0 * mask
            old = ActorWorker.get_old_log_probs_with_cache(worker, rows, logprobs)
            found.append((logprobs - old).exp()[mask])
    return found


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("micro", [1, 2, 4, 8])
def test_the_ratio_is_1_in_every_epoch(mode: str, micro: int, tmp_path: Path) -> None:
    """Updates that do not divide the rows, one update's worth of them, and failed episodes."""
    copied = 0
    for rows, failed in product((1, 3, 5, 8, 11), (0, 3)):
        if rows > 8 and (failed or mode == "copy"):
            continue  # two updates, for which ROLL computes the old log-probs before the first
        made = pipeline_of(tmp_path, 8, micro, mode)
        assert not made.pipeline_config.enable_old_logprobs_recompute
        adjusted = made.adjust_batch(collected(rows, failed), mode)
        assert len(adjusted) == 8
        has_response = adjusted.batch["response_mask"].any(1)
        assert int(has_response.sum()) == min(rows, 8)
        copied += 8 - min(rows, 8)
        removed = adjusted.meta_info["metrics"].get("system/batch_remove_count", 0)
        assert removed == max(rows - 8, 0)
        found = ratios(made.pipeline_config, adjusted)
        assert len(found) == EPOCHS * 8 // micro
        tokens = torch.cat(found)
        assert len(tokens) == EPOCHS * int(adjusted.batch["response_mask"][:, 1:].sum())
        assert torch.equal(tokens, torch.ones_like(tokens))
    assert copied == 2 * (7 + 5 + 3)


def test_the_metrics_of_the_training_data_leave_copies_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Run ROLL's metrics as ROLL's `run` looks them up, with and without copies in the batch."""
    found = {}
    for size in (3, 8):
        made = pipeline_of(tmp_path, size, 1, "copy")
        adjusted = made.adjust_batch(collected(3, failed=1), "copy")
        adjusted.batch["prompt_mask"] = torch.zeros_like(adjusted.batch["response_mask"])
        adjusted.batch["attention_mask"] = torch.ones_like(adjusted.batch["response_mask"])
        rewards = adjusted.batch["scores"][:, 1:] * adjusted.batch["response_mask"][:, 1:]
        adjusted.batch["token_level_rewards"] = rewards
        _pipeline.use_advantages(adjusted, None)

        def run(self: Any, adjusted: Any = adjusted, size: int = size) -> None:
            found[size] = agentic_pipeline.compute_train_data_metrics(adjusted)

        monkeypatch.setattr(AgenticPipeline, "run", run)
        made.run()
    assert found[3] == found[8]
    assert found[8]["critic/score/mean"] == found[8]["critic/rewards/mean"] == 1.5
    assert found[8]["tokens/response_length/min"] == 4
    assert agentic_pipeline.compute_train_data_metrics is compute_train_data_metrics


def test_an_environment_of_the_mix_that_always_fails_ends_the_run(tmp_path: Path) -> None:
    made = pipeline_of(tmp_path, 8, 1, "copy")
    outline = pack_outline(Episode("good", 0, [TURN], True, False, "terminated"))
    for failed in (0, 8):
        data = collected(3, failed)
        data.non_tensor_batch[EPISODE_JSON] = object_array([outline] * 3)
        data.meta_info["global_step"] = failed
        if failed:
            with pytest.raises(EnvError, match=r"step 8: all 8 episodes of test:Raises are lost"):
                made.adjust_batch(data, "copy")
        else:
            assert made.adjust_batch(data, "copy").meta_info["metrics"]["gem/filled"] == 5

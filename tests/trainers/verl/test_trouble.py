"""Broken environments and datasets in verl's own trainer."""

from __future__ import annotations

import json
import os
from collections import Counter
from pathlib import Path
from typing import Any

import pyarrow
import pyarrow.parquet
import pytest
from gem_verl._rows import verl_row
from gem_verl._trainer import GemTrainerSync

from gem_core.errors import ConfigError, UnknownEnv
from gem_core.rollout import read_traces
from gem_core.tasks import TaskRow
from gem_lab import main
from tests.trainers import evidence
from tests.trainers.verl import harness
from tests.trainers.verl.configs import verl_config
from tests.trainers.verl.spied import metrics_of, updates

pytestmark = [
    pytest.mark.skipif(not os.environ.get("GEM_CORE_VERL"), reason="runs the trainer: `nox -s verl` does"),
    pytest.mark.timeout(1200),
]
GUESS = "game:GuessTheNumber-v0-easy"


@pytest.mark.full
def test_a_run_survives_environments_that_misbehave(
    tmp_path: Path, warm: Path, warm_tokenizer: Any, model: Any
) -> None:
    run = harness.run_verl(
        tmp_path,
        warm,
        "trainer.v1.trainer_mode=gem_sync",
        f"data.train_files=['{GUESS}','test:Raises','test:Hangs','test:Endless']",
        f"data.val_files=['{GUESS}']",
        "data.seed=5",  # 5 tasks of GuessTheNumber, 3 that raise, 2 that hang, 2 that never end
        "data.train_max_samples=12",
        "data.train_batch_size=12",
        "actor_rollout_ref.actor.ppo_mini_batch_size=12",
        "trainer.total_training_steps=1",
        "trainer.val_before_train=False",
        "+gem.step_timeout=5",
        f"+gem.traces={tmp_path}/traces",
    ).check()
    traces = list(read_traces(tmp_path / "traces" / "train.jsonl"))
    ends = Counter((episode.env_id, episode.stop_reason) for episode in traces if episode.env_id != GUESS)
    assert set(ends) == {
        ("test:Raises", "env_error"),
        ("test:Hangs", "env_error"),
        ("test:Endless", "token_budget"),
    }
    assert {episode.error and episode.error.partition(" (")[0] for episode in traces} == {
        None,
        "step() failed: RuntimeError: the environment broke",
        "step() did not return within 5 s",
    }
    (update,), (metrics,) = updates(run.spy), metrics_of(run)
    failed = ends["test:Raises", "env_error"] + ends["test:Hangs", "env_error"]
    assert metrics["gem/error_rate"] == pytest.approx(failed / 24)
    assert sum(row.is_pad for row in update.rows) == failed
    mine = evidence.assert_update_is_right(
        update, evidence.played(run.spy, warm_tokenizer), warm_tokenizer, model
    )
    assert len(mine) == 24 - failed
    longest = max(len(row.response) for row in update.rows)
    assert 192 - 24 <= longest <= 192  # data.max_response_length
    assert metrics["rebn/turns"] == sum(len(episode.rewards) for episode in mine)


def file_with_an_unknown_environment(folder: Path) -> list[str]:
    """Return the overrides of a run on such a file."""
    rows = [
        verl_row(TaskRow(env_id=env_id, env_kwargs={}, seed=index, index=index))
        for index, env_id in enumerate([GUESS] * 4 + ["game:GuesTheNumber-v0-easy"])
    ]
    path = folder / "rows.parquet"
    pyarrow.parquet.write_table(pyarrow.Table.from_pylist(rows), path)
    return [f"data.train_files={path}", f"data.val_files={path}", "data.val_max_samples=-1"]


def trainer_of(model: Path, *overrides: str) -> GemTrainerSync:
    return GemTrainerSync(
        verl_config(
            "algorithm.adv_estimator=rebn",
            "trainer.v1.trainer_mode=gem_sync",
            "data.train_batch_size=4",
            "data.dataloader_num_workers=0",
            f"actor_rollout_ref.model.path={model}",
            *overrides,
        )
    )


UNKNOWN = "unknown environment 'game:GuesTheNumber-v0-easy'. Did you mean game:GuessTheNumber-v0-easy"


def test_an_unknown_environment_in_a_file_is_found_before_a_process_starts(
    tmp_path: Path, tiny: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(GemTrainerSync, "_init_resource_pool_mgr", lambda self: pytest.fail("too late"))
    with pytest.raises(UnknownEnv) as caught:
        trainer_of(tiny, *file_with_an_unknown_environment(tmp_path)).init()
    assert str(caught.value).startswith(UNKNOWN)


def test_an_option_that_the_chat_template_rejects_is_found_before_a_process_starts(
    tmp_path: Path, tiny: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(GemTrainerSync, "_init_resource_pool_mgr", lambda self: pytest.fail("too late"))
    words = ["export", "--to", "verl", "--env", GUESS, "--num", "8", "--out", str(tmp_path / "game.parquet")]
    assert main(words) == 0
    files = [f"data.{split}_files={tmp_path}/game.parquet" for split in ("train", "val")]
    with pytest.raises(ConfigError, match="date='today': expected a day"):
        trainer_of(tiny, *files, "+gem.date=today").init()


def test_evaluation_items_in_the_training_file_are_found_before_a_process_starts(
    tmp_path: Path, tiny: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(GemTrainerSync, "_init_resource_pool_mgr", lambda self: pytest.fail("too late"))
    for split in ("train", "eval"):
        words = ["export", "--to", "verl", "--env", "service:Shop-v0", "--num", "8", "--split", split]
        assert main([*words, "--out", str(tmp_path / f"{split}.parquet")]) == 0
    with pytest.raises(ConfigError, match="is for evaluation only"):
        trainer_of(
            tiny, f"data.train_files={tmp_path}/eval.parquet", f"data.val_files={tmp_path}/eval.parquet"
        ).init()
    with pytest.raises(pytest.fail.Exception, match="too late"):  # accepted
        trainer_of(
            tiny, f"data.train_files={tmp_path}/train.parquet", f"data.val_files={tmp_path}/eval.parquet"
        ).init()


@pytest.mark.full
@pytest.mark.parametrize("mode", ["gem_sync", "sync"])
def test_an_unknown_environment_in_a_file_stops_the_run(tmp_path: Path, warm: Path, mode: str) -> None:
    run = harness.run_verl(
        tmp_path,
        warm,
        f"trainer.v1.trainer_mode={mode}",
        *file_with_an_unknown_environment(tmp_path),
        gem=[word for word in harness.GEM if "custom_cls" not in word],
    )
    assert run.code == 1
    assert f"UnknownEnv: {UNKNOWN}" in run.output
    engine = run.spy / "engine.jsonl"
    if mode == "gem_sync":
        assert not engine.exists()  # reported before an engine starts
    else:
        assert [json.loads(line) for line in engine.read_text().splitlines()] == []  # before it plays

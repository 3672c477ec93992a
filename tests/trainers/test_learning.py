"""The results of the learning runs are complete and comparable."""

from __future__ import annotations

import asyncio
import gzip
import sys
from pathlib import Path
from statistics import fmean

import pytest

from gem_lab.consistency._learning import compare_learning, read_runs
from tests.trainers import learning
from tests.trainers.learning import Given
from tests.trainers.processes import ROOT

NAMES = {
    "verl": "verl",
    "openrlhf": "OpenRLHF",
    "oat": "Oat",
    "rl2": "RL2",
    "roll": "ROLL",
    "trl": "TRL",
}
"""Names of the trainers on the page."""


def write(out: Path, trainer: str, seed: int, after: float) -> None:
    given = Given("letters", "rebn", seed, out / "runs.jsonl.gz")
    steps = [{"gem/success": 0.5, "memory": 1.0}] * given.budget.steps
    learning.write_run(
        given,
        trainer=trainer,
        version=f"{trainer} 1.0",
        steps=steps,
        before=0.3,
        after=after,
    )


def test_runs_are_read_back_and_compared(tmp_path: Path) -> None:
    for seed in learning.SEEDS:
        write(tmp_path, "reference", seed, 0.5)
        write(tmp_path, "verl", seed, 0.52)
    runs = read_runs(tmp_path / "runs.jsonl.gz")
    assert len(runs) == 2 * len(learning.SEEDS)
    assert runs[0].model == learning.model_hash(learning.MODELS / "letters")
    (found,) = compare_learning(runs)
    assert found.equal
    assert runs[0].success == [0.5] * learning.BUDGETS["letters"].steps
    assert b"memory" not in gzip.decompress((tmp_path / "runs.jsonl.gz").read_bytes())


def test_a_run_that_ended_early_is_not_written(tmp_path: Path) -> None:
    with pytest.raises(AssertionError, match="1 steps, expected"):
        learning.write_run(
            Given("game", "rebn", 0, tmp_path / "runs.jsonl"),
            trainer="verl",
            version="1",
            steps=[{}],
            before=0.3,
            after=0.5,
        )
    assert not list(tmp_path.rglob("*"))


def test_the_fault_reaches_the_update(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    pytest.importorskip("torch", reason="needs the extra 'train'")
    from gem_core.rollout import run_episode
    from gem_core.tasks import EnvChoice
    from gem_lab.train._batches import Batch
    from gem_lab.train._tiny import RandomPlayer
    from gem_lab.train._trainer import Learner
    from tests.trainers.reference.learn import config, discount_per_token

    given = Given("doors", "per-token", 0, tmp_path / "runs.jsonl")
    learner = Learner(config(given, str(tmp_path)), str(given.model), None)
    env = EnvChoice.parse(given.budget.env).make()
    player = RandomPlayer(env, learner.tokenizer, learner.tokenizer.eos_token_id)
    episodes = [asyncio.run(run_episode(env, player, learner.context, seed=seed)) for seed in range(4)]
    for episode in episodes:
        episode.metadata["group"] = 0
    updates: list[Batch] = []
    monkeypatch.setattr(Learner, "_update", lambda self, step, batch, targets: updates.append(batch) or {})
    learner.learn(1, episodes)
    monkeypatch.setattr(Batch, "with_advantages", Batch.with_advantages)  # so that it is restored
    discount_per_token(given.budget.gamma)
    learner.learn(1, episodes)
    spreads = []
    for batch in updates:
        turns = [batch.advantages[batch.turn_ids == turn] for turn in range(3 * len(episodes))]
        assert {len(turn) for turn in turns} == {20}
        spreads.append(max(float(turn.max() - turn.min()) for turn in turns))
    correct, faulty = spreads
    assert correct == 0  # one advantage per turn
    assert faulty > 0.5


@pytest.mark.parametrize("trainer", learning.TRAINERS)
def test_the_recorded_runs_learned_and_their_controls_did_not(trainer: str) -> None:
    path = ROOT / learning.RESULTS
    runs = [*read_runs(path), *read_runs(path.with_name("earlier.jsonl.gz"))]
    runs = [run for run in runs if run.trainer == trainer and run.task.startswith("game")]
    learned = [run.after - run.before for run in runs if run.variant == "rebn"]
    control = [run.after - run.before for run in runs if run.variant == "control"]
    assert fmean(learned) > 0.15
    assert fmean(control) < 0.05


def test_the_page_has_the_verdicts_and_the_fault_differs() -> None:
    found = compare_learning(read_runs(ROOT / learning.RESULTS))
    verdicts = {(each.task, each.trainer, each.variant): each for each in found}
    faults = {task: each.equal for (task, _, variant), each in verdicts.items() if variant == "per-token"}
    assert faults == {"game": False, "game-gamma-0.9": None, "doors": False}
    page = (ROOT / "docs/trainers/consistency.md").read_text()
    for trainer, name in NAMES.items():
        compared = [verdicts.get((task, trainer, "rebn")) for task in ("game", "letters", "doors")]
        cells = [each.verdict if each else "not run" for each in compared]
        assert f"| {name} | {' | '.join(cells)} |" in page


def test_the_summary_matches_the_recorded_runs(tmp_path: Path) -> None:
    pytest.importorskip("matplotlib", reason="needs the extra 'train'")
    from tests.trainers import learning_summary

    recorded = (ROOT / learning.RESULTS).parent
    learning_summary.main(recorded, tmp_path)
    assert (tmp_path / "summary.md").read_text() == (recorded / "summary.md").read_text()
    assert (tmp_path / "curves.png").stat().st_size > 10_000


def test_the_command_line(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "argv", ["learn", "--on", "letters", "--seed", "3", "--control"])
    given = learning.arguments("Does it learn?")
    assert Path(Given("doors", "rebn", 0, given.out).env.rpartition(":")[0]).is_absolute()
    assert (given.name, given.seed, given.variant, given.out) == ("letters", 3, "control", learning.RESULTS)
    assert given.budget.env == "rg:letter_counting"
    assert (given.model / "model.safetensors").exists()


def test_no_run_is_planned_twice() -> None:
    for trainer in learning.TRAINERS:
        runs = learning.planned(trainer)
        assert len(set(runs)) == len(runs)
        for name in ("game", "letters", "doors"):
            seeds = [seed for task, variant, seed in runs if (task, variant) == (name, "rebn")]
            assert seeds == list(learning.SEEDS)

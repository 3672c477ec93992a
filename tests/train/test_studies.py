"""The runner of learning studies in benchmarks/, its statistics, and the studies of the catalog."""

from __future__ import annotations

import importlib
import json
import platform
import random
import re
import shutil
import signal
from dataclasses import replace
from statistics import fmean

import pytest

pytest.importorskip("torch", reason="needs the extra 'train'")

from gem_core.advantages import gae, get_estimator, rebn
from gem_core.errors import ConfigError
from gem_core.tasks import EnvChoice
from gem_lab.train import TrainConfig
from tests.docs.blocks import ROOT
from tests.train.helpers import EASY

NAMES = sorted(path.stem for path in (ROOT / "benchmarks" / "studies" / "catalog").glob("[a-z]*.py"))


@pytest.fixture(autouse=True)
def benchmarks(monkeypatch, own_registry):
    monkeypatch.syspath_prepend(str(ROOT / "benchmarks"))


def module(name):
    return importlib.import_module(name)


@pytest.fixture
def study():
    studies = module("studies")
    return studies.Study(
        title="A toy",
        question="Does it run?",
        tasks={"easy": studies.Task(EASY)},
        arms={"a": {"estimator": "centered"}, "control": {"estimator": "rebn", "zero_advantages": True}},
        tuned_like={"control": "a"},
        baseline="a",
        options={
            "steps": 2, "episodes_per_step": 8, "minibatches": 1, "kl": 0.0, "max_tokens_per_turn": 8,
            "eval_episodes": 6, "eval_every": 1,
        },
        grid={"learning_rate": (0.01, 0.02)},
        tuning_seeds=(0,),
        seeds=(100, 101),
        models=(0,),
    )  # fmt: skip


@pytest.fixture
def runner(study, tiny_folder, tmp_path):
    shutil.copytree(tiny_folder, tmp_path / "runs" / "models" / "easy-0")

    def make(**changes):
        return module("studies.runner").Runner("toy", study, tmp_path / "runs", jobs=0, **changes)

    return make


def test_a_study_tunes_runs_resumes_and_draws(runner, study, tmp_path, capsys):
    assert not runner(deadline=0.0).run()  # the time is up before the first run
    assert runner().records() == []
    assert runner().run()
    lines = capsys.readouterr().out.splitlines()
    assert [line.split(":")[0] for line in lines] == [
        *(f"tuning {n}/2" for n in (1, 2)), *(f"evaluation {n}/4" for n in (1, 2, 3, 4))
    ]  # fmt: skip

    records = runner().records()
    tuning, complete = (
        [record for record in records if record.phase == phase] for phase in ("tuning", "evaluation")
    )
    assert [record.config["learning_rate"] for record in tuning] == [0.01, 0.02]
    best = max(tuning, key=lambda record: record.curve("gem/return")[-1]).config["learning_rate"]
    assert {record.config["learning_rate"] for record in complete} == {best}
    assert [(record.name, record.seed) for record in complete] == [
        ("a", 100), ("control", 100), ("a", 101), ("control", 101)
    ]  # fmt: skip
    for record in complete:
        assert [evaluation["step"] for evaluation in record.evaluations] == [0, 1, 2]
        raw = record.raw[EASY]
        assert raw["success"].count("1") / 6 == pytest.approx(record.after["gem/success"])
        assert sum(raw["return"]) / 6 == pytest.approx(record.evaluations[-1]["gem/return"], abs=1e-3)
        assert record.cpu_s >= 0
        if record.name == "control":
            assert record.before == record.after

    # A run that is lost is repeated, alone, with the same results.
    path = tmp_path / "runs" / "records" / f"{complete[0].run}.json"
    path.unlink()
    assert runner().run()
    assert len(capsys.readouterr().out.splitlines()) == 1
    again = json.loads(path.read_text())
    assert (again["after"], again["steps"]) == (complete[0].after, complete[0].steps)
    # Records of other options do not count.
    other = module("studies.runner").Runner(
        "toy", replace(study, overrides={"gamma": 0.5}), tmp_path / "runs", jobs=0
    )
    assert other.records() == []

    module("studies.page").draw("toy", study, records, tmp_path / "page")
    page = (tmp_path / "page" / "summary.md").read_text()
    control = next(line for line in page.splitlines() if line.startswith("| control |"))
    assert control.split(" | ")[1:3] == [f"{best:g}", "2"]
    assert (tmp_path / "page" / "curves.png").stat().st_size > 10_000


def test_a_killed_process_is_reported_without_a_traceback(monkeypatch, tmp_path, capsys):
    """Each worker of the pool kills itself, as the kernel does when memory runs out."""
    program, runner = module("study"), module("studies.runner")
    monkeypatch.setattr(runner, "_make_model", signal.raise_signal)
    monkeypatch.setattr(runner.Runner, "_models", lambda self: [signal.SIGKILL])
    folders = ["--folder", str(tmp_path / "runs"), "--out", str(tmp_path / "out")]
    assert program.main(["rebn", "--toy", "--jobs", "1", *folders]) == 1
    assert "probably because memory ran out" in capsys.readouterr().err


def test_a_recorded_run_is_repeated_and_compared(runner, study, tmp_path, monkeypatch, capsys):
    program, records = module("study"), module("records")
    runner().run()
    recorded = runner().records()
    monkeypatch.setattr(program, "load_study", lambda name: study)
    capsys.readouterr()

    def repeat(known):
        records.write_records(tmp_path / "out" / records.RUNS, known)
        folders = ["--folder", str(tmp_path / "runs"), "--out", str(tmp_path / "out")]
        code = program.main(["rebn", *folders, "--jobs", "0", "--run", recorded[-1].run])
        shutil.rmtree(tmp_path / "runs" / "repeated")
        return code, capsys.readouterr().out

    (tmp_path / "out").mkdir()
    shutil.copytree(tmp_path / "runs" / "models", tmp_path / "runs" / "repeated" / "models")
    code, text = repeat(recorded)
    assert code == 0
    assert f"{recorded[-1].run}: the same results as recorded\n" in text
    shutil.copytree(tmp_path / "runs" / "models", tmp_path / "runs" / "repeated" / "models")
    code, text = repeat([*recorded[:-1], replace(recorded[-1], after={"gem/success": 0.125})])
    assert code == 1
    assert "results that differ from those recorded\n" in text
    assert "after gem/success 0.125" in text


@pytest.mark.skipif(platform.machine() not in ("x86_64", "AMD64"), reason="AVX2 is for x86 processors")
def test_runs_use_the_same_instructions_on_all_processors(study, tmp_path, monkeypatch):
    runner = module("studies.runner")
    for name in runner.ENVIRONMENT:
        monkeypatch.setenv(name, "")  # restored after the test
    with runner.Runner("toy", study, tmp_path, jobs=1)._pool() as pool:
        assert ", AVX2, " in pool.submit(module("records").machine).result()


def test_recorded_runs_need_no_model_and_count_only_with_the_same_options(study, tmp_path):
    record, runner = module("records").Record, module("studies.runner")
    study = replace(study, grid={}, tuned_like={})
    records = [
        record(run.arm, run.seed, "", "", {}, {}, {}, config=run.options(study), run=run.id)
        for run in runner.Runner("toy", study, tmp_path, jobs=0).evaluation_runs()
    ]
    assert runner.Runner("toy", study, tmp_path, jobs=0, known=records).run()
    assert not (tmp_path / "models").exists()
    # A record of an earlier version may lack an option.
    del records[0].config["eval_every"]
    assert runner.Runner("toy", study, tmp_path, jobs=0, known=records).records() == records[1:]


@pytest.mark.parametrize("name", NAMES)
def test_every_run_of_a_study_has_valid_options(name, tmp_path):
    study, runner = module("studies").load_study(name), module("studies.runner")
    module("studies.estimators").register()
    for variant in (study, study.toy()):
        for task in variant.tasks:
            for arm in variant.arms:
                for point in variant.points():
                    run = runner.Run(task, arm, "evaluation", variant.seeds[0], point)
                    config = TrainConfig(**run.options(variant))
                    assert config.env == [variant.tasks[task].env]
    if study.grid:
        assert len(study.seeds) >= 10


@pytest.mark.parametrize("name", NAMES)
def test_each_arm_of_a_study_can_be_chosen_alone(name, tmp_path, monkeypatch):
    program, study = module("study"), module("studies").load_study(name)
    chosen = []
    monkeypatch.setattr(program, "draw", lambda _, study, *__: chosen.append(study))
    for arm in study.arms.keys() - study.tuned_like.keys():
        program.main([name, "--draw", "--out", str(tmp_path), "--arms", arm])
        assert {*chosen[-1].arms} == {arm}
        assert not chosen[-1].pairs


def test_the_parts_of_rebn_multiply_to_rebn():
    parts = module("studies.estimators")
    rewards = [[0.0, 1.0], [0.25], [0.0, 0.0, -0.1]]
    centered, scaled, whole = (
        [value for episode in function(rewards, gamma=0.9) for value in episode]
        for function in (parts.centered, parts.scaled, rebn)
    )
    mean = sum((0.9, 1.0, 0.25, -0.081, -0.09, -0.1)) / 6
    assert centered == pytest.approx([g - mean for g in (0.9, 1.0, 0.25, -0.081, -0.09, -0.1)])
    ratio = [s / g for s, g in zip(scaled, (0.9, 1.0, 0.25, -0.081, -0.09, -0.1), strict=True)]
    assert whole == pytest.approx([c * r for c, r in zip(centered, ratio, strict=True)])
    assert len({round(r, 9) for r in ratio}) == 1
    with pytest.raises(ConfigError, match="truncation='mask' is not available"):
        parts.centered(rewards, truncated=[False] * 3)


def test_normalized_gae_has_mean_0_and_deviation_1():
    rewards, values = [[0.0, 1.0], [0.25]], [[0.5, 0.25], [0.125]]
    module("studies.estimators").register()
    estimate = get_estimator("normalized_gae")
    advantages, plain = (
        [value for episode in function(rewards, values=values, gamma=0.9, lam=0.5) for value in episode]
        for function in (estimate, gae)
    )
    assert sum(advantages) == pytest.approx(0)
    assert sum(value**2 for value in advantages) / 3 == pytest.approx(1, rel=1e-3)
    assert sorted(range(3), key=plain.__getitem__) == sorted(range(3), key=advantages.__getitem__)


def test_an_unfinished_study_compares_the_seeds_that_all_arms_have(study, tmp_path):
    record, page = module("records").Record, module("studies.page")
    study = replace(
        study, tasks={"a": study.tasks["easy"], "b": study.tasks["easy"]}, metric="gem/return",
        arms={"one": {}, "two": {}}, tuned_like={}, baseline="one", grid={}, pairs=[("one", "two")],
    )  # fmt: skip
    records = [
        record(
            arm, seed, "", "", {"gem/return": 0.0}, {"gem/return": value}, {"gem/return": [value]},
            config=dict(study.options), task=task, phase="evaluation",
        )
        for task, arm, seed, value in [
            ("a", "one", 100, 0.0), ("a", "two", 100, 0.5), ("a", "one", 101, 0.25),
            ("b", "one", 100, 0.5), ("b", "two", 100, 1.0),
        ]
    ]  # fmt: skip
    page.draw("toy", study, records, tmp_path)
    overall = (tmp_path / "summary.md").read_text().partition("## All tasks")[2].splitlines()
    rows = [line for line in overall if line.startswith(("| one", "| two"))]
    assert rows[0].startswith("| one | 0.250 (")
    assert rows[1].endswith("| +0.500 (+0.500 to +0.500) |")
    assert (tmp_path / "summary.md").read_text().count("| one minus two | -0.500 |") == 2
    with pytest.raises(ValueError, match="unknown arm 'three'"):
        replace(study, pairs=[("one", "three")])
    # A task that lacks an arm is left out of the overall table, and one without runs has no section.
    page.draw("toy", study, records[:-1], tmp_path)
    assert "IQM over 1 task and" in (tmp_path / "summary.md").read_text()
    assert headings(tmp_path) == [f"## a: `{EASY}`", f"## b: `{EASY}`"]  # the environment alone is ambiguous
    page.draw("toy", replace(study, panels=[("gem/return", "return")]), records[:3], tmp_path)
    assert headings(tmp_path) == [f"## `{EASY}`"]


def headings(folder):
    return [line for line in (folder / "summary.md").read_text().splitlines() if line.endswith(f"`{EASY}`")]


def test_a_page_has_the_changes_on_all_evaluation_environments(study, tmp_path):
    record, page = module("records").Record, module("studies.page")
    a, b = "game:GuessTheNumber-v0-easy", "game:Hangman-v0-easy"
    task = module("studies").Task
    study = replace(
        study, tasks={"first": task(a), "second": task(b)}, metric="gem/return", arms={"one": {}},
        tuned_like={}, baseline="", grid={},
    )  # fmt: skip
    changes = {"first": {a: 0.5, b: -0.25}, "second": {b: 0.75, a: 0.125}}
    records = [
        record(
            "one", seed, "", "", {"gem/return": 0.0}, {"gem/return": 0.0}, {"gem/return": [0.0]},
            config=dict(study.options), task=trained, phase="evaluation",
            evaluation={
                "before": {env: {"gem/return": 0.25} for env in on},
                "after": {env: {"gem/return": 0.25 + change} for env, change in on.items()},
            },
        )
        for seed in (100, 101)
        for trained, on in changes.items()
    ]  # fmt: skip
    page.draw("toy", study, records, tmp_path)
    lines = (tmp_path / "summary.md").read_text().partition("## Changes on all")[2].splitlines()
    start = lines.index("| trained on | first | second |")
    assert lines[start + 2 : start + 4] == [
        "| first | +0.500 (+0.500 to +0.500) | -0.250 (-0.250 to -0.250) |",
        "| second | +0.125 (+0.125 to +0.125) | +0.750 (+0.750 to +0.750) |",
    ]


def test_a_figure_counts_episodes_if_steps_differ_in_size_and_shows_intervals(study, tmp_path, monkeypatch):
    record, page = module("records").Record, module("studies.page")
    saved = []
    monkeypatch.setattr(page, "save_figure", lambda figure, path: saved.append(figure))
    study = replace(
        study, arms={"small": {}, "large": {}}, tuned_like={}, baseline="", grid={}, metric="gem/return",
        panels=[("gem/return", "return")],
    )  # fmt: skip

    def axis(sizes, seeds):
        records = [
            record(
                arm, seed, "", "", {"gem/return": 0.0}, {"gem/return": 0.0}, {"gem/return": [seed / 100] * 4},
                config={**study.options, "episodes_per_step": size}, task="easy", phase="evaluation",
            )
            for arm, size in sizes.items()
            for seed in seeds
        ]  # fmt: skip
        page.draw("toy", study, records, tmp_path)
        return saved[-1].axes[0]

    shown = axis({"small": 16, "large": 64}, range(4))
    assert shown.get_xlabel() == "episode"
    assert [list(line.get_xdata()) for line in shown.lines] == [[16, 32, 48, 64], [64, 128, 192, 256]]
    assert len(shown.collections) == 2
    low, high = shown.collections[0].get_datalim(shown.transData).intervaly
    assert (low + high) / 2 == pytest.approx(0.015)
    assert (high - low) / 2 == pytest.approx(3.182 * 0.01291 / 2, rel=1e-3)  # t with 3 degrees of freedom
    assert "Bands: 95% t interval" in (tmp_path / "summary.md").read_text()

    shown = axis({"small": 16, "large": 16}, range(2))  # two runs say more than an interval
    assert shown.get_xlabel() == "step"
    assert [list(line.get_xdata()) for line in shown.lines] == [[1, 2, 3, 4]] * 6
    assert not shown.collections
    assert "Bands" not in (tmp_path / "summary.md").read_text()


def test_tasks_may_share_an_initial_model(study, tmp_path):
    runner = module("studies.runner")
    task = study.tasks["easy"]
    same = {name: replace(task, model="shared") for name in ("one", "two")}
    study = replace(study, tasks={**same, "own": task})
    plan = runner.Runner("toy", study, tmp_path, jobs=0)
    folders = [runner.model_folder(folder, of, task, seed) for of, folder, task, seed in plan._models()]
    assert sorted(folder.name for folder in folders) == ["own-0", "shared-0"]


def test_the_note_on_long_episodes_says_what_random_moves_reach():
    task = module("studies").load_study("long").tasks["2048"]
    returns, turns = [], []
    with EnvChoice.parse(task.env).make() as env:
        for seed in range(300):
            env.reset(seed=seed)
            moves, rewards, done = random.Random(seed), [], False
            while not done:
                move = moves.choice(("up", "down", "left", "right"))
                _, reward, terminated, truncated, _ = env.step(f"\\boxed{{{move}}}")
                rewards.append(reward)
                done = terminated or truncated
            returns.append(sum(rewards))
            turns.append(len(rewards))
    found = [float(number) for number in re.findall(r"\d+(?:\.\d+)?", task.note)]
    assert found == [pytest.approx(fmean(returns), abs=0.02), pytest.approx(fmean(turns), abs=4)]


def test_the_noise_of_a_gradient(tiny_folder, monkeypatch):
    gradients = module("studies.gradients")
    for name, size in (("BATCHES", 3), ("GROUPS", 2), ("GROUP_SIZE", 4)):
        monkeypatch.setattr(gradients, name, size)
    options = {"env": [EASY], "estimator": "grpo", "gamma": 0.9}
    batches = gradients._play(tiny_folder, EASY, "append")
    assert [len(episodes) for episodes in batches] == [8, 8, 8]
    assert [len({episode.seed for episode in episodes}) for episodes in batches] == [2, 2, 2]
    first = gradients.noise(tiny_folder, options)["noise"]
    assert 0.5 < first < 1.5  # 8 episodes of a random policy
    assert gradients.noise(tiny_folder, {**options, "estimator": "reinforce"})["noise"] != first
    # Equal batches have no noise, and opposite ones no signal.
    monkeypatch.setattr(gradients, "_play", lambda *arguments: [batches[0]] * 3)
    assert gradients.noise(tiny_folder, options)["noise"] == pytest.approx(0, abs=1e-6)
    signs = iter((1, -1, 0))
    gradient = gradients._gradient
    monkeypatch.setattr(gradients, "_gradient", lambda *arguments: next(signs) * gradient(*arguments))
    assert gradients.noise(tiny_folder, options)["noise"] == pytest.approx(1 + (1 / 3) / (2 / 3))


def test_statistics_over_seeds():
    stats = module("studies.stats")
    assert stats.iqm([[0, 1, 2, 3, 4, 5, 6, 100]]) == 3.5
    assert stats.iqm([[0, 1], [3, 100]]) == 2
    low, high = stats.iqm_interval([[0, 1, 2, 3, 4, 5, 6, 100]])
    assert 0.5 <= low < 3.5 < high <= 100
    assert stats.iqm_interval([[2, 2], [2, 2]]) == (2, 2)
    # Pairs are resampled together, so a constant difference has no spread, although the values have.
    assert stats.iqm_difference([[1, 5, 9]], [[0, 4, 8]]) == pytest.approx((1, 1, 1))
    assert stats.mean_of_last([1, 2, 3, 4, 5, 6, 7, 9], 4) == 8
    assert stats.mean_of_last([5], 4) == 5
    assert stats.area([0, 10, 30], [0.0, 1.0, 1.0]) == pytest.approx(25 / 30)

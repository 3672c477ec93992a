"""The reduced exam: verdicts of all estimators, planted faults, and the results of a first study."""

from __future__ import annotations

import itertools
import json
import runpy

import numpy as np
import pytest

from gem_core.advantages import rebn, returns
from gem_core.errors import ConfigError, UnknownName
from gem_lab.exam import Exam, _run, run
from gem_lab.exam._bias import compare
from gem_lab.exam._certificates import BIASED, LARGEST, REASONS, UNBIASED, UNDECIDED, VANISHING
from gem_lab.exam._exact import gradient
from gem_lab.exam._inputs import Candidate
from gem_lab.exam._measure import enumerate_gradients
from gem_lab.exam._store import Store
from gem_lab.exam._tasks import get_task
from tests.advantages.builtin import BUILTIN

SMALL = {"tasks": ["stop", "tool"], "stages": ["initial"], "batch_sizes": [64, 256], "budget": 20_000}

VERDICTS = {
    "dr_grpo": UNBIASED,
    "gae": UNBIASED,
    "gdpo": BIASED,
    "gigpo": BIASED,
    "gigpo(normalization='mean')": BIASED,
    "grpo": BIASED,
    "maxrl": BIASED,
    "mt_grpo": BIASED,
    "mt_grpo(compared='return')": UNBIASED,
    "opo": BIASED,
    "rae": UNBIASED,
    "rebn": VANISHING,
    "rebn(statistics='group')": BIASED,
    "reinforce": UNBIASED,
    "reinforce_plus_plus": VANISHING,
    "reinforce_plus_plus_baseline": VANISHING,
    "remax": UNBIASED,
    "rloo": UNBIASED,
}


@pytest.fixture(scope="module")
def exam() -> Exam:
    return run(aggregations=["token-sum"], **SMALL)


@pytest.mark.once
def test_every_estimator_has_its_certificate(exam: Exam) -> None:
    found = {c.estimator: c.verdict for c in exam.certificates}
    assert {name.partition("(")[0] for name in found} == set(BUILTIN)
    for name, verdict in found.items():
        assert name in VERDICTS, f"check that {name!r} is {verdict!r}, and write it in VERDICTS of this test"
        assert verdict == VERDICTS[name], name
        assert REASONS.get(name), (
            f"say why {name!r} is {verdict!r} in REASONS of gem_lab/exam/_certificates.py"
        )
    assert found.keys() == VERDICTS.keys() == REASONS.keys()
    assert exam.skipped.keys() <= {"maxrl on tool", "maxrl on slippery"}


def discounted_per_token(turn_rewards, *, gamma, lengths):
    """A planted fault: the discount of a turn depends on the response tokens of the later turns."""
    advantages = []
    for rewards, tokens in zip(turn_rewards, lengths, strict=True):
        result = np.zeros(len(rewards))
        for turn in range(len(rewards)):
            gaps = np.append(0, np.cumsum(tokens[turn + 1 :]))
            result[turn] = (rewards[turn:] * 0.99**gaps).sum()
        advantages.append(result)
    pooled = np.concatenate(advantages)
    return [(a - pooled.mean()) / (pooled.std() + 1e-8) for a in advantages]


def baseline_per_turn_index(turn_rewards, *, gamma):
    """A planted fault: every turn is charged the mean reward of its index."""
    columns = itertools.zip_longest(*turn_rewards)
    means = [np.mean([reward for reward in column if reward is not None]) for column in columns]
    return rebn([rewards - means[: len(rewards)] for rewards in turn_rewards], gamma=gamma)


@pytest.mark.once
def test_a_function_has_the_verdict_of_its_estimator() -> None:
    assert run(rebn, aggregations=["token-sum"], **SMALL).certificates[0].verdict == VANISHING


@pytest.mark.once
@pytest.mark.parametrize("faulty", [discounted_per_token, baseline_per_turn_index])
def test_a_planted_fault_changes_the_verdict(faulty) -> None:
    certificate = run(faulty, aggregations=["token-sum"], **SMALL).certificates[0]
    assert certificate.verdict == BIASED
    assert certificate.bias_low > 0.02


def spoils_its_inputs(turn_rewards, *, values, lengths, state_keys, gamma=1.0):
    for given in (turn_rewards, values, lengths):
        for of_episode in given:
            of_episode *= 0
    for keys in state_keys:
        keys.clear()
    return turn_rewards


@pytest.mark.once
def test_an_estimator_that_computes_in_place_changes_nothing_for_others() -> None:
    settings = {**SMALL, "tasks": ["stop"]}
    together = run([spoils_its_inputs, "reinforce", "gae"], **settings)
    alone = run(["reinforce", "gae"], **settings)
    for name in ("reinforce", "gae"):
        assert together.select(estimator=name) == alone.select(estimator=name)


@pytest.mark.parametrize(
    ("result", "message"),
    [
        (None, "the advantages of odd is a NoneType: expected a list"),
        ([], r"odd returned advantages for \[\] turns: expected one per turn"),
        (float("nan"), "odd: an advantage of episode 0 is not finite"),
    ],
)
def test_what_an_estimator_must_return(result, message) -> None:
    def odd(turn_rewards, *, gamma=1.0):
        return [rewards * result for rewards in turn_rewards] if isinstance(result, float) else result

    with pytest.raises(ConfigError, match=message):
        run(odd, **SMALL)


@pytest.mark.once
def test_small_batches_are_enumerated_and_sampling_agrees() -> None:
    task = get_task("stop")
    policy = task.policy()
    candidates = [Candidate.of(name) for name in ("rebn", "grpo", "rloo", "reinforce")]
    exact = gradient(task, policy)
    settings = {"gamma": 1.0, "aggregations": ["token-sum", "turn-mean"]}
    measured = enumerate_gradients(task, policy, candidates, batch_size=2, **settings)
    for name in ("rloo", "reinforce"):
        assert compare(measured.gradients[name, "token-sum"], exact).bias == 0
        np.testing.assert_allclose(measured.gradients[name, "token-sum"].blocks[0], exact.ravel(), atol=1e-12)
    sampled = {
        "tasks": ["stop"],
        "stages": ["initial"],
        "batch_sizes": [2],
        "group_size": 2,
        "budget": 40_000,
    }
    found = run("rebn", enumerated_sizes=[2], **sampled)
    assert [r.batch_size for r in found.select(aggregation="token-sum", batches=0)] == [2]
    for aggregation in settings["aggregations"]:
        known = compare(measured.gradients["rebn", aggregation], exact)
        (row,) = [r for r in found.select(aggregation=aggregation, batch_size=2) if r.batches]
        assert known.bias > 0.1
        assert row.bias_low - 0.02 < known.bias < row.bias_high + 0.02


@pytest.mark.once
def test_the_documented_numbers_of_the_stop_task(exam: Exam) -> None:
    rows = {(r.estimator, r.batch_size): r for r in exam.select(task="stop") if r.batches}
    assert rows["grpo", 64].bias == pytest.approx(0.07, abs=0.015)
    assert rows["grpo", 256].bias == pytest.approx(0.07, abs=0.015)
    assert rows["rebn", 64].bias == pytest.approx(0.01, abs=0.005)
    assert rows["rebn", 64].snr > 1.3 * rows["reinforce", 64].snr
    assert rows["rloo", 64].bias_high < 0.02
    groups = {}
    for size in (8, 64):
        settings = {**SMALL, "tasks": ["stop"], "batch_sizes": [64], "group_size": size}
        found = run(["mt_grpo", "grpo"], aggregations=["token-sum"], **settings)
        groups |= {(r.estimator, size): r for r in found.results if r.batches}
    assert groups["mt_grpo", 8].cosine > 0.9
    assert abs(groups["mt_grpo", 64].cosine) < 0.15
    assert groups["grpo", 64].bias < 0.02


def test_workers_do_not_change_the_results() -> None:
    settings = {"tasks": ["stop"], "stages": ["initial"], "batch_sizes": [8], "budget": 2000}
    assert run(["rebn", "remax"], **settings) == run(["rebn", "remax"], workers=2, **settings)


@pytest.mark.once
def test_an_interrupted_exam_continues_from_its_finished_parts(tmp_path, monkeypatch) -> None:
    settings = {"tasks": ["stop"], "stages": ["initial"], "batch_sizes": [8, 64], "budget": 2000}
    whole = run(["rebn", "grpo"], **settings)
    measure, calls = _run._measure, []

    def interrupted(job):
        calls.append(job)
        if len(calls) == 3:
            raise KeyboardInterrupt
        return measure(job)

    monkeypatch.setattr(_run, "_measure", interrupted)
    with pytest.raises(KeyboardInterrupt):
        run(["rebn", "grpo"], resume=tmp_path, **settings)
    assert len(list(tmp_path.glob("*.npz"))) == 2
    shares: list[float] = []
    assert run(["rebn", "grpo"], resume=tmp_path, advance=shares.append, **settings) == whole
    assert len(calls) == 3 + 2
    assert shares == [0.75, 1.0]
    assert run(["rebn", "grpo"], resume=tmp_path, **settings) == whole
    assert len(calls) == 5
    run(["rebn", "grpo"], resume=tmp_path, **{**settings, "seed": 1})
    assert len(calls) == 9
    source = tmp_path / "changed.py"
    source.write_text("def f(rewards):\n    return rewards\n")
    paths = [Store(tmp_path, [Candidate.of(function)]).path("x") for function in _versions(source)]
    assert len(set(paths)) == 2
    scope: dict = {}
    exec("def g(rewards): return rewards", scope)
    with pytest.raises(ConfigError, match="'g' has no source file; resume needs one for each estimator"):
        run(scope["g"], resume=tmp_path, **settings)


def _versions(source):
    """Yield a function from a file, before and after the file changes."""
    scope = runpy.run_path(str(source))
    yield scope["f"]
    source.write_text(source.read_text() + "# changed\n")
    yield scope["f"]


@pytest.mark.once
def test_the_size_of_a_group_can_be_swept() -> None:
    settings = {"tasks": ["stop"], "stages": ["initial"], "aggregations": ["token-sum"], "budget": 20_000}
    found = run(["grpo", "rloo"], batch_sizes=[16, 64], group_size=[2, 16], **settings)
    rows = {(r.estimator, r.batch_size, r.group_size): r for r in found.results if r.batches}
    assert len(rows) == 8
    assert rows["grpo", 64, 16].bias_high < rows["grpo", 64, 2].bias_low
    assert found.certificate("grpo").verdict == BIASED
    assert found.certificate("rloo").verdict == UNBIASED
    with pytest.raises(ConfigError, match="batch_sizes=8: expected a multiple of group_size=16"):
        run("rebn", batch_sizes=[8], group_size=[8, 16])


@pytest.mark.once
def test_controls_leave_no_noise_in_estimators_that_subtract_something_independent() -> None:
    names = ("reinforce", "gae", "remax", "rloo", "dr_grpo", "rae", "mt_grpo(compared='return')")
    found = run(names, tasks=["guess", "chain-dense"], stages=["late"], batch_sizes=[8], budget=2000,
                aggregations=["token-sum"])  # fmt: skip
    assert max(row.bias_high for row in found.results) < 1e-6
    assert {certificate.verdict for certificate in found.certificates} == {UNBIASED}


def half(turn_rewards):
    """An unbiased estimator that no control matches: returns in every second episode."""
    return [2 * (index % 2) * g for index, g in enumerate(returns(turn_rewards))]


def test_too_little_data_for_a_small_bound_is_not_decided() -> None:
    settings = {"tasks": ["guess"], "stages": ["late"], "batch_sizes": [8], "aggregations": ["token-sum"]}
    certificate = run(half, budget=100, **settings).certificates[0]
    assert certificate.verdict == UNDECIDED
    assert certificate.bias > LARGEST
    assert str(certificate).startswith("not decided (below ")


def test_a_discount_has_three_references() -> None:
    found = run(["reinforce", "rloo"], tasks=["slippery"], stages=["halfway"], batch_sizes=[64], gamma=0.8,
                aggregations=["token-sum"], budget=5000)  # fmt: skip
    rows = {row.estimator: row for row in found.results if row.batches}
    assert rows["reinforce"].cosine_per_turn == pytest.approx(1.0, abs=1e-6)
    assert rows["rloo"].cosine_discounted == pytest.approx(1.0, abs=1e-3)
    assert rows["reinforce"].cosine < 0.9999
    assert rows["reinforce"].cosine_discounted < 0.9999


@pytest.mark.once
def test_functions_of_rewards_take_the_exam_in_five_lines() -> None:
    def centered(turn_rewards, *, gamma):
        gs = returns(turn_rewards, gamma)
        return [g - np.concatenate(gs).mean() for g in gs]

    result = run(centered, tasks=["stop"], stages=["initial"], batch_sizes=[64, 256], budget=20_000)
    assert result.certificate("centered").verdict == VANISHING
    assert "centered (token-sum): bias falls as 1/B" in str(result)


def test_wrong_arguments_are_errors() -> None:
    with pytest.raises(UnknownName, match="rebn"):
        run("rebnn")
    with pytest.raises(ConfigError, match="multiple of group_size=8"):
        run("rebn", batch_sizes=[12])
    with pytest.raises(ConfigError, match="enumerated_sizes=0"):
        run("rebn", enumerated_sizes=[0])
    with pytest.raises(ConfigError, match="stages='middle'"):
        run("rebn", stages=["middle"])
    with pytest.raises(ConfigError, match="unknown input 'critic'"):
        run(lambda rewards, *, critic: rewards)
    with pytest.raises(ConfigError, match="expected one per turn"):
        run(lambda rewards: [r[:1] for r in rewards], tasks=["stop"], budget=100)
    with pytest.raises(ConfigError, match="use workers=1"):
        run(lambda rewards: rewards, workers=2)
    with pytest.raises(ConfigError, match="accepts the rewards of no task"):
        run("maxrl", tasks=["slippery"], budget=2000)
    with pytest.raises(ConfigError, match="different names"):
        run(["rebn", "rebn"])


def test_the_command_prints_a_table_and_json(capsys) -> None:
    from gem_lab import main

    argv = ["exam", "rebn", "reinforce", "--tasks", "stop", "--stages", "initial", "--batch-sizes", "8",
            "128", "--budget", "3000", "--workers", "1"]  # fmt: skip
    assert main(argv) == 0
    shown = capsys.readouterr().out
    assert max(map(len, shown.splitlines())) <= 80
    assert "bias falls as 1/B" in shown
    assert main([*argv, "--json"]) == 0
    document = json.loads(capsys.readouterr().out)
    assert [c["estimator"] for c in document["certificates"][:1]] == ["rebn"]
    assert document["config"]["batch_sizes"] == [8, 128]
    assert main(["exam", "rebn", "--batch-sizes", "eight"]) == 2
    assert "expected a whole number of at least 1" in capsys.readouterr().err

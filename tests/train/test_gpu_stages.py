"""tools/gpu.py and benchmarks/language_model.py at toy size, on the CPU."""

from __future__ import annotations

import asyncio
import importlib
import json
import shutil

import pytest

pytest.importorskip("torch", reason="needs the extra 'train'")

from gem_core.errors import GemError
from tests.docs.blocks import ROOT


@pytest.fixture
def tool(monkeypatch, own_registry):
    for folder in ("benchmarks", "tools"):
        monkeypatch.syspath_prepend(str(ROOT / folder))
    monkeypatch.setenv("STUDY_COMMIT", "abc1234")
    return importlib.import_module("gpu")


def stage(tool, name, state):
    return tool.main([name, "--toy", "--device", "cpu", "--jobs", "0", "--state", str(state)])


def test_the_comparison_with_the_cpu_finds_no_difference_on_the_cpu(tool, tmp_path):
    assert stage(tool, "A", tmp_path) == 0
    result = json.loads((tmp_path / "A.json").read_text())
    assert result["gradient"] == 0
    assert result["advantages"] == {"torch.float32": 0, "torch.bfloat16": 0}


def test_the_comparison_with_the_cpu_fails_if_the_device_computes_other_advantages(tool, monkeypatch):
    from gem_core import advantages

    original, dtypes = advantages.rebn.tensors, []

    def imprecise(rewards, mask, **options):
        result = original(rewards, mask, **options)
        dtypes.append(rewards.dtype)
        return result._replace(advantages=result.advantages * (1 if len(dtypes) % 2 else 1.01))

    monkeypatch.setattr(advantages.rebn, "tensors", imprecise)
    assert not tool.compare_with_cpu("cpu")["passed"]


def test_a_stage_continues_on_another_machine_from_the_packed_state(tool, tmp_path, monkeypatch, capsys):
    monkeypatch.setitem(tool.STUDIES, "B", ("summaries",))  # the one with the fewest runs
    monkeypatch.setenv("OUT", str(tmp_path / "out"))
    (tmp_path / "out").mkdir()
    assert stage(tool, "B", tmp_path / "first") == 0
    assert "evaluation 4/4" in capsys.readouterr().out
    records = sorted((tmp_path / "first" / "toy-summaries" / "records").iterdir())
    assert {json.loads(path.read_text())["commit"] for path in records} == {"abc1234"}

    (tmp_path / "second").mkdir()
    shutil.copy(tmp_path / "out" / "state.tar.gz", tmp_path / "second")
    assert stage(tool, "B", tmp_path / "second") == 0
    assert "evaluation" not in capsys.readouterr().out.split("#")[0]  # nothing was left to run
    for path in records:
        copy = tmp_path / "second" / "toy-summaries" / "records" / path.name
        assert copy.read_text() == path.read_text()


def test_records_come_first_and_models_are_whole_when_the_state_is_too_large(tool, tmp_path, monkeypatch):
    files = {
        "rebn/models/large/model": 70, "rebn/models/large/gem_tiny.json": 1, "rebn/models/small/model": 9,
        "rebn/records/b.json": 50, "rebn/records/c.json": 40,
    }  # fmt: skip
    for name, size in files.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text("x" * size)
    monkeypatch.setattr(tool, "LIMIT", 100)
    tool.pack(tmp_path)
    (tmp_path / "other").mkdir()
    shutil.move(tmp_path / "state.tar.gz", tmp_path / "other")
    tool.unpack(tmp_path / "other")
    other = tmp_path / "other" / "rebn"
    assert sorted(path.name for path in other.rglob("*") if path.is_file()) == ["b.json", "c.json", "model"]
    assert not (other / "models" / "large").exists()


def test_the_consistency_tests_of_every_trainer_are_collected_or_named_as_missing(tool, tmp_path, capfd):
    code = stage(tool, "G", tmp_path)
    output = capfd.readouterr().out
    trainers = {path.parent.name for path in (ROOT / "tests" / "trainers").glob("*/test_consistency.py")}
    assert len(trainers) >= 6
    for trainer in trainers:
        assert f"tests/trainers/{trainer}/" in output
    collected = "::test_" in output
    assert code == (0 if collected else 5)
    assert ("No trainer is installed, so no test ran." in output) == (not collected)


def test_a_language_model_learns_the_format_and_then_with_rebn(tool, tmp_path):
    assert stage(tool, "H", tmp_path) == 0
    folder = tmp_path / "toy-language_model"
    record = json.loads((folder / "guess" / "record.json").read_text())
    assert record["config"]["estimator"] == "rebn"
    env = record["config"]["env"][0]
    assert record["evaluation"]["before"].keys() == record["evaluation"]["after"].keys() == {env}
    assert record["fingerprints"].keys() == {env}
    start = folder / "guess" / "start" / "model.safetensors"
    assert start.read_bytes() != (tmp_path / "toy-model" / "model.safetensors").read_bytes()
    assert f"`{env}`" in (folder / "results" / "summary.md").read_text()
    written = (folder / "guess" / "record.json").stat().st_mtime_ns
    assert stage(tool, "H", tmp_path) == 0  # a finished part is not repeated
    assert (folder / "guess" / "record.json").stat().st_mtime_ns == written


def test_the_supervised_start_predicts_only_what_all_answers_share(tool, tiny_folder, monkeypatch):
    from gem_core.tasks import EnvChoice
    from gem_lab._engines.loading import load_model, load_processor
    from gem_lab.train._batches import TokenScores
    from gem_lab.train._tiny import random_play

    language_model = importlib.import_module("language_model")
    assert language_model.format_lengths([[1, 2, 7, 5, 9], [1, 2, 8, 9], [1, 2, 9]]) == (2, 1)
    assert language_model.format_lengths([[1, 2], [1, 2]]) == (2, 0)  # no token counts twice
    with pytest.raises(GemError, match="no token"):
        language_model.format_lengths([[1], [2]])

    def scores(network, batch):
        return TokenScores(-batch.token_ids * batch.response_mask, None, None, None)

    monkeypatch.setattr(language_model, "score_tokens", scores)
    with EnvChoice.parse("game:GuessTheNumber-v0-easy").make() as env:
        episodes = asyncio.run(random_play(env, load_processor(tiny_folder), "test", episodes=6))
    responses = [turn.response_ids for episode in episodes for turn in episode.turns]
    assert len({tuple(response) for response in responses}) > 1
    network = load_model(tiny_folder, "cpu", "float32")
    predicted = [response[0] + response[-1] for response in responses]
    loss = language_model.format_loss(network, episodes, 1, 1)
    assert float(loss) == pytest.approx(sum(predicted) / (2 * len(predicted)))
    loss = language_model.format_loss(network, episodes, 0, 1)
    assert float(loss) == pytest.approx(responses[0][-1])  # all answers end in the same way

"""Which command lines are accepted, and which are rejected before anything starts."""

from __future__ import annotations

import dataclasses
import json
import os
import warnings
from importlib import metadata
from pathlib import Path
from unittest import mock

import gem_openrlhf.agent
import pytest
from gem_openrlhf import _SUPPORTED, _train_ppo_ray
from gem_openrlhf._options import OPENRLHF_FLAGS, VARIABLE, GemOptions, estimator_names
from openrlhf.trainer.ray.ppo_actor import ActorPPOTrainer

from gem_core import register
from gem_core.errors import ConfigError, GemError, UnsupportedTrainer
from tests.support import ImageEnv
from tests.trainers.openrlhf.args import AGENT, experience_maker, parse
from tests.trainers.openrlhf.conftest import GUESS
from tests.trainers.openrlhf.data import write_rows

REBN = ("--algo.advantage.estimator", "rebn")
DDOF = ("--gem.estimator_options", '{"ddof": 1}')


def test_flags_become_options_of_ours_and_stay_flags_of_theirs() -> None:
    args = parse(*REBN, "--gem.max_turns", "8", "--gem.date", "2026-01-31", "--algo.advantage.gamma", "0.9")
    assert args.algo.advantage.estimator == "rebn"
    assert args.algo.advantage.gamma == 0.9
    assert args.critic.model_name_or_path is None
    assert (args.gem.max_turns, args.gem.date, args.gem.context) == (8, "2026-01-31", "append")


def test_every_option_is_a_flag() -> None:
    names = {field.name for field in dataclasses.fields(GemOptions)} - {*OPENRLHF_FLAGS}
    assert set(vars(parse(*REBN).gem)) == names


def test_an_estimator_of_a_module_works_by_name(capsys: pytest.CaptureFixture[str]) -> None:
    module = ("--gem.modules", "tests.trainers.own_estimator")
    for name in ("against_the_best", "gem_against_the_best"):
        flags = ("--algo.advantage.estimator", name, "--rollout.n_samples_per_prompt", "2", *module)
        args = parse(*flags, "--gem.estimator_options", '{"scale": 2}')
        options = GemOptions.load({**vars(args.gem), "estimator": name})
        choice = options.estimator_choice(name)
        assert (choice.estimator.name, choice.options) == ("against_the_best", {"scale": 2})
        assert options.needs == ("group_ids",)
        again = GemOptions.load(json.loads(options.to_text()))  # as in Ray's workers
        assert again.estimator_choice(name) == choice
    with pytest.raises(ConfigError, match=r"compares the episodes of a task; .*n_samples_per_prompt=1"):
        parse("--algo.advantage.estimator", "against_the_best", *module)
    with pytest.raises(ConfigError, match=r"unknown option '--gem\.estimator_options\.scale' of rebn"):
        parse(*REBN, "--gem.estimator_options", '{"scale": 0}')
    options = GemOptions.load(vars(parse(*REBN, "--gem.estimator_options", '{"truncation": "mask"}').gem))
    assert options.estimator_choice("rebn").truncation == "mask"


def test_the_declared_estimators_are_openrlhfs(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        parse("--algo.advantage.estimator", "none")
    message = capsys.readouterr().err
    names = {name.strip(" '") for name in message.partition("choose from")[2].strip(" ()\n").split(",")}
    assert {name for name in names if name not in estimator_names()} == set(_SUPPORTED.own_estimators)


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ((*REBN, "--reward.clip_range", "-1", "1"), r"--reward\.clip_range=.*: clips the summed reward"),
        ((*REBN, "--reward.overlong_buffer_len", "8"), r"--reward\.overlong_buffer_len=8\.0: changes"),
        ((*REBN, "--reward.stop_properly_penalty_coef", "0"), r"--reward\.stop_properly_penalty_coef"),
        (
            (*REBN, "--algo.advantage.no_std_norm"),
            r"no_std_norm=True: has no effect on rebn; use gem_reinforce",
        ),
        (
            ("--algo.advantage.estimator", "gem_gdpo", "--algo.kl.init_coef", "0.1"),
            r"init_coef=0\.1: gem_gdpo reads the components",
        ),
        ((*REBN, "--rollout.temperature", "0"), r"--rollout\.temperature=0\.0: expected a number above 0"),
        ((*REBN, "--rollout.top_p", "1.5"), r"--rollout\.top_p=1\.5: expected a number above 0 and up to 1"),
        (
            (*REBN, "--rollout.batch_size", "0"),
            r"--rollout\.batch_size=0: expected a whole number of at least 1",
        ),
        (
            (*REBN, "--data.max_samples", "-1"),
            r"--data\.max_samples=-1: expected a whole number of at least 1",
        ),
        ((*REBN, "--train.max_epochs", "0"), r"--train\.max_epochs=0: expected a whole number"),
        ((*REBN, "--eval.temperature", "-1"), r"--eval\.temperature=-1\.0: expected a number of at least 0"),
        ((*REBN, "--actor.adam.lr", "-0.1"), r"--actor\.adam\.lr=-0\.1: expected a number of at least 0"),
        ((*REBN, "--actor.eps_clip", "nan"), r"--actor\.eps_clip=nan: expected a finite number"),
        ((*REBN, "--algo.advantage.gamma", "1.5"), r"gamma=1\.5: expected a number from 0 to 1"),
        (
            (*REBN, "--algo.dynamic_filtering_enable", "--rollout.n_samples_per_prompt", "2", *AGENT),
            r"dynamic_filtering_enable .*estimator_options .*scope.*trained",
        ),
        (("--algo.advantage.estimator", "gem_rloo"), r"n_samples_per_prompt=1 every advantage would be 0"),
        (("--algo.advantage.estimator", "gem_rloo", *DDOF), r"'--gem.estimator_options.ddof' of rloo"),
        (("--algo.advantage.estimator", "reinforce", *DDOF), r"no effect on .* reinforce"),
        (
            ("--algo.advantage.estimator", "rloo", "--ds.lora.rank", "4"),
            r"--ds\.lora\.rank=4: OpenRLHF sends",
        ),
        (
            ("--algo.advantage.estimator", "rloo", "--gem.context", "rebuild"),
            r"--gem\.context=rebuild: .* own estimators take each row for a sample; use rebn",
        ),
        (("--algo.advantage.estimator", "gae", "--gem.rows", "turn"), r"--gem\.rows=turn: .* use rebn"),
        ((*REBN, "--gem.max_turns", "0"), r"--gem\.max_turns=0: expected a whole number"),
        ((*REBN, "--gem.template_kwargs", "[1]"), r"--gem\.template_kwargs='\[1\]': expected a JSON object"),
        ((*REBN, "--gem.modules", "json", "no_such_module"), r"--gem\.modules no_such_module: .*PYTHONPATH"),
    ],
)
def test_options_that_cannot_be_honored_are_rejected(words: tuple[str, ...], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        parse(*words)


def test_filtering_is_accepted_when_the_statistics_cover_the_rest(tmp_path: Path) -> None:
    rows = ("--data.prompt_dataset", str(write_rows(tmp_path / "rows.jsonl", [GUESS], 2)))
    many = ("--algo.dynamic_filtering_enable", "--rollout.n_samples_per_prompt", "2", *AGENT)
    trained = ("--gem.estimator_options", '{"scope": "trained"}')
    assert "trained" in parse(*REBN, *many, *rows, *trained).gem.estimator_options


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("--algo.advantage.estimator", "rebm"), "invalid choice: 'rebm'.*group_norm.*rebn"),
        ((*REBN, "--gem.max_trns", "8"), "unrecognized arguments: --gem.max_trns 8"),
        ((*REBN, "--no.such.flag"), "unrecognized arguments: --no.such.flag"),
    ],
)
def test_unknown_flags_are_errors_of_openrlhfs_parser(
    words: tuple[str, ...], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    import re

    with pytest.raises(SystemExit, match="2"):
        parse(*words)
    assert re.search(message, capsys.readouterr().err)


def test_wrong_rows_show_before_anything_starts(tmp_path: Path) -> None:
    rows = write_rows(tmp_path / "rows.jsonl", [GUESS], 3)
    assert parse(*REBN, *AGENT, "--data.prompt_dataset", str(rows)).data.label_key == "label"
    lines = rows.read_text().splitlines()
    for wrong, message in (
        (lines[2].replace("GuessTheNumber", "GuesTheNumber"), "GuessTheNumber-v0"),
        (lines[2].replace("{}", '{\\"max_numbr\\": 5}'), "max_numbr"),
        ('{"input": "", "label": "a text"}', "names no task"),
    ):
        rows.write_text("\n".join([*lines[:2], wrong]))
        with pytest.raises(GemError, match=f"line 3: .*{message}"):
            parse(*REBN, *AGENT, "--data.prompt_dataset", str(rows))


def test_the_command_says_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    argv = ["train_ppo_ray", *REBN, "--reward.overlong_buffer_len", "8"]
    with (
        mock.patch.dict(os.environ),
        mock.patch("sys.argv", argv),
        pytest.raises(SystemExit, match="2"),
    ):
        _train_ppo_ray.main()
    (line,) = [line for line in capsys.readouterr().err.splitlines() if "gem_openrlhf" in line]
    assert line.startswith("gem_openrlhf: --reward.overlong_buffer_len")


def test_another_version_is_rejected(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("importlib.metadata.version", lambda name: "0.10.4")
    with pytest.raises(UnsupportedTrainer, match=r"OpenRLHF 0\.10\.4 is not supported.*>=0\.11\.0,<0\.12"):
        gem_openrlhf._SUPPORTED.require()


def pretend_version(monkeypatch: pytest.MonkeyPatch, version: str) -> None:
    real = metadata.version
    monkeypatch.setattr(metadata, "version", lambda name: version if name == "openrlhf" else real(name))


def test_a_newer_version_with_the_same_interface_works_and_warns_once(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    pretend_version(monkeypatch, "0.99")
    with pytest.warns(UserWarning, match=r"gem_openrlhf: OpenRLHF 0\.99 is newer than the tested versions"):
        gem_openrlhf._SUPPORTED.require()
    with warnings.catch_warnings():
        warnings.filterwarnings("error", message="gem_openrlhf")
        gem_openrlhf._SUPPORTED.require()
        assert parse(*REBN).algo.advantage.estimator == "rebn"


def test_another_interface_is_rejected_before_anything_starts(monkeypatch: pytest.MonkeyPatch) -> None:
    pretend_version(monkeypatch, "0.99")
    monkeypatch.setattr(ActorPPOTrainer, "training_step", lambda self, batch: None)
    with pytest.raises(
        UnsupportedTrainer,
        match=r"OpenRLHF 0\.99 .*training_step takes \(self, batch\): expected \(self, exp",
    ):
        parse(*REBN)


def test_options_travel_to_rays_workers(monkeypatch: pytest.MonkeyPatch) -> None:
    options = GemOptions.load({"max_turns": 8, "estimator": "rebn", "wrappers": "spy"})
    job = _train_ppo_ray.with_runtime_env({"metadata": {}, "runtime_env": {"env_vars": {"A": "1"}}}, options)
    assert job["metadata"] == {}
    assert job["runtime_env"]["worker_process_setup_hook"] == "gem_openrlhf.hooks.setup"
    assert job["runtime_env"]["env_vars"]["A"] == "1"
    monkeypatch.setenv(VARIABLE, job["runtime_env"]["env_vars"][VARIABLE])
    assert GemOptions.from_environment() == options
    with pytest.raises(ConfigError, match=r"worker_process_setup_hook=mine: let that"):
        _train_ppo_ray.with_runtime_env({"runtime_env": {"worker_process_setup_hook": "mine"}}, options)


@pytest.mark.parametrize("text", ["[]", "{", '{"max_trns": 8}', '{"estimator": "reinforce"}'])
def test_a_wrong_variable_is_named(text: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(VARIABLE, text)
    with pytest.raises(ConfigError, match=r"GEM_OPENRLHF"):
        GemOptions.from_environment()


def test_the_variable_chooses_the_estimator_where_the_flag_cannot(monkeypatch: pytest.MonkeyPatch) -> None:
    maker = experience_maker("--algo.advantage.estimator", "reinforce", environment={"estimator": "rebn"})
    assert maker.advantage_estimator == maker.args.algo.advantage.estimator == "rebn"
    words = ("--algo.advantage.estimator", "reinforce", "--algo.advantage.no_std_norm")
    with pytest.raises(ConfigError, match="no_std_norm"):
        experience_maker(*words, environment={"estimator": "rebn"})
    assert json.loads(GemOptions.load({"estimator": "rebn"}).to_text())["estimator"] == "rebn"


def test_images_are_rejected_with_the_reason(tmp_path: Path) -> None:
    register("test:OpenRlhfImages", ImageEnv)
    rows = write_rows(tmp_path / "rows.jsonl", ["test:OpenRlhfImages"], 1)
    with pytest.raises(
        ConfigError, match=r"line 1: test:OpenRlhfImages shows images, but .*max_images_per_prompt N"
    ):
        parse(*REBN, *AGENT, "--data.prompt_dataset", str(rows))

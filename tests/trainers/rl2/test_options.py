"""Supported configs are accepted, and others are rejected in one line."""

from __future__ import annotations

import copy
import json
import warnings
from contextlib import nullcontext
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from gem_rl2 import _ENV_PATH
from gem_rl2._options import check_config, choose_estimator, plays_gem, prepare, read_options
from gem_rl2._rows import check_file, task_of, write
from gem_rl2._upstream import SPLITS, find
from omegaconf import OmegaConf

from gem_core import register
from gem_core.errors import ConfigError
from gem_core.tasks import EnvChoice, TaskRow, make_tasks
from gem_core.trainers import _options as options
from gem_lab import main
from tests.support import ImageEnv
from tests.trainers.items import KINDS, check_epochs, check_eval_tasks, source_of
from tests.trainers.rl2.configs import compose_config, gem_config

GUESS = "game:GuessTheNumber-v0-easy"
INDEX = find().is_index
SECTION = "rollout" if INDEX else "rollout.train"
RESPONSES = "train_data.responses_per_prompt" if INDEX else "rollout.train.responses_per_prompt"
PATH = "train_data.path" if INDEX else "rollout.train.path"


def test_a_plain_gem_config_is_fine() -> None:
    config, upstream = gem_config("+gem.template_kwargs.enable_thinking=false", "+gem.modules=[json]")
    check_config(config, upstream)
    options = read_options(config)
    assert options.template_kwargs == {"enable_thinking": False}
    assert options.modules == ("json",)


def test_a_mean_over_rows_is_rejected_because_rl2_fails_with_it() -> None:
    from RL2.utils.functions import aggregate_values

    losses = torch.ones(1, 2)
    for inputs, fails in ((losses, False), ((losses, losses > 0), True)):  # RL2's updates take such a pair
        with pytest.raises(TypeError, match="finfo") if fails else nullcontext():
            aggregate_values(inputs, losses, "sequence", 2, 1)
    for option in ("actor.avg_level", "critic.avg_level"):
        with pytest.raises(ConfigError, match=f"{option}=sequence: RL2 fails in its first update"):
            check_config(*gem_config("actor.avg_level=token", f"{option}=sequence"))


@pytest.mark.parametrize("name", ["against_the_best", "gem_against_the_best"])
def test_an_estimator_of_a_module_works_by_name(name: str) -> None:
    words = ["+gem.modules=[tests.trainers.own_estimator]", f"adv.estimator={name}", f"+adv.{name}.scale=2"]
    config, upstream = gem_config(*words, f"{RESPONSES}=2", f"{SECTION}.dynamic_filtering=false")
    check_config(config, upstream)
    choice = choose_estimator(config.adv)
    assert (choice.estimator.name, choice.options) == ("against_the_best", {"scale": 2})
    with pytest.raises(ConfigError, match="responses_per_prompt=1 every advantage would be 0"):
        check_config(*gem_config(*words, f"{RESPONSES}=1"))


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["+adv.rebn.statistics=env"], r"rebn needs env_ids .*RL2 does not supply"),
        (["+adv.rebn.truncation=mask"], r"unknown option 'adv.rebn.truncation' of rebn"),
        (["adv.estimator=rebm"], r"adv.estimator: unknown estimator 'rebm'. Did you mean rebn"),
        (["adv.gamma=1.5"], "adv.gamma=1.5: expected a number from 0 to 1"),
        (
            ["+adv.rebn.dof=1"],
            "unknown option 'adv.rebn.dof' of rebn. Did you mean ddof",
        ),
        (["+adv.rebn.scope=all"], "adv.rebn.scope='all'"),
        (["adv.norm_var=true"], "adv.norm_var=True: has no effect on rebn"),
        (["adv.global_norm=true"], "adv.global_norm=True: has no effect"),
        (["adv.lamda=0.9"], "adv.lamda=0.9: has no effect"),
        ([f"{RESPONSES}=2"], rf"{SECTION}.dynamic_filtering=True: drops groups.*scope=trained"),
        (["adv.estimator=gem_grpo"], "gem_grpo compares .*responses_per_prompt=1 every advantage would be 0"),
        (["adv.estimator=gem_rloo"], "gem_rloo compares .*responses_per_prompt=1 every advantage would be 0"),
        (["actor.update_per_rollout=5"], "update_per_rollout=5 cannot cut the 8 episodes"),
        (["+gem.max_turn=3"], r"unknown option 'gem.max_turn'.*max_turns"),
        (["+gem.context=rebuild", "actor.update_per_rollout=4"], "more than 9 episodes"),
        ([f"{PATH}=null"], rf"{PATH} is not set; `gem-core export"),
    ],
)
def test_unsupported_options_are_rejected(words: list[str], message: str) -> None:
    config, upstream = gem_config(*words)
    with pytest.raises(ConfigError, match=message) as caught:
        check_config(config, upstream)
    assert "\n" not in str(caught.value)


SAMPLING = f"{SECTION}{'.train_' if INDEX else '.'}sampling_params"
MISTAKES: dict[str, tuple[tuple[Any, ...], str]] = {
    PATH: (("nosuch.jsonl", "train@./nosuch.parquet", "/nosuch"), "there is no such file; `gem-core export"),
    "rollout.env_path": (("nosuch.py", "", ".", 3, ["a.py"]), "expected the path of a Python file, or null"),
    RESPONSES: ((0, -1, None, "four"), "expected a whole number of at least 1"),
    PATH.replace("path", "prompts_per_rollout"): ((0, -4, 1.5), "expected a whole number of at least 1"),
    "actor.update_per_rollout": ((0, -1, 1.5), "expected a whole number of at least 1"),
    "actor.max_length_per_device": ((0, None), "expected a whole number of at least 1"),
    "actor.model_name": ((None,), "expected a model's name or folder"),
    f"{SAMPLING}.temperature": ((0, -1, None), "expected a number above 0"),
    f"{SAMPLING}.max_new_tokens": ((0, -3), "expected a whole number of at least 1, or None"),
    "trainer.test_freq": ((0,), "expected a whole number of at least 1, or None"),
    "trainer.save_freq": ((0,), "expected a whole number of at least 1, or None"),
    "trainer.n_epochs" if INDEX else "trainer.total_steps": (
        (0, -1),
        "expected a whole number of at least 1",
    ),
    "adv.rebn": ((3, [1], "ddof"), "expected a JSON object"),
}


def test_values_with_which_rl2_would_fail_late() -> None:
    config, upstream = gem_config()
    for option, (values, message) in MISTAKES.items():
        for value in values:
            changed = copy.deepcopy(config)
            OmegaConf.update(changed, option, value, force_add=True)
            OmegaConf.resolve(changed)
            with pytest.raises(ConfigError, match=message) as caught:
                check_config(changed, upstream)
            assert (value if option == PATH else f"{option}=") in str(caught.value)


def test_rows_that_are_too_few(tmp_path: Path) -> None:
    path, held = tmp_path / "train.jsonl", tmp_path / "held.txt"
    test = f"{find().data_section(SPLITS[1])}.path"
    write(make_tasks([EnvChoice(GUESS)], 7), path)
    words = [f"{PATH}={path}", f"{PATH.replace('path', 'prompts_per_rollout')}=8"]
    if INDEX:
        with pytest.raises(ConfigError, match=r"=8, but train_data\.path has only 7 rows"):
            check_config(*gem_config(*words))
    else:
        check_config(*gem_config(*words))
    for wrong, message in (
        ([f"{test}=null"], rf"{test} is not set, and .*RL2 fails"),
        ([f"{test}={held}"], r"held.txt: expected a name that ends with .jsonl, .json, "),
        ([f"{test}={tmp_path / 'none.jsonl'}"], "none.jsonl has no rows"),
        ([f"{PATH}=''"], f"{PATH}=: expected the path of one file"),
    ):
        held.touch()
        (tmp_path / "none.jsonl").touch()
        with pytest.raises(ConfigError, match=message):
            check_config(
                *gem_config(f"{PATH}={path}", f"{PATH.replace('path', 'prompts_per_rollout')}=7", *wrong)
            )
    json_lines, array = tmp_path / "lines.json", tmp_path / "array.json"
    json_lines.write_text(path.read_text())
    array.write_text(json.dumps([json.loads(line) for line in path.read_text().splitlines()]))
    assert (check_file(str(json_lines)), check_file(str(array)), check_file("*.jsonl")) == (7, None, None)


@pytest.mark.parametrize(
    "words",
    [
        [f"{RESPONSES}=2", "+adv.rebn.scope=trained"],
        [f"{RESPONSES}=2", f"{SECTION}.dynamic_filtering=false"],
        [f"{RESPONSES}=2", "adv.estimator=gem_grpo"],
        ["actor.update_per_rollout=4"],
        ["+gem.context=rebuild", "actor.update_per_rollout=3"],
        ["adv.estimator=reinforce", "adv.norm_var=true", f"{RESPONSES}=2"],
    ],
)
def test_supported_options_are_accepted(words: list[str]) -> None:
    check_config(*gem_config(*words))


def test_options_that_would_be_ignored_are_rejected() -> None:
    own = f"rollout.env_path={__file__}"
    config, upstream = gem_config(own, "+gem.modules=[json]")
    check_config(config, upstream)
    config, upstream = gem_config(own, "+gem.max_turns=3")
    with pytest.raises(ConfigError, match=rf"gem.max_turns has no effect: {own}"):
        check_config(config, upstream)


def test_a_response_has_to_end() -> None:
    for split in SPLITS:
        option = f"{find().sampling_section(split)}.ignore_eos"
        config, upstream = gem_config(f"+{option}=true", f"{SECTION}.dynamic_filtering=false")
        with pytest.raises(ConfigError, match=rf"{option}=True: a response would go on after its end"):
            check_config(config, upstream)


@pytest.mark.imports("index")
@pytest.mark.parametrize(
    ("words", "message"),
    [
        (
            ["rollout.max_turns=8", "+rollout.train_sampling_params.skip_special_tokens=true"],
            "=True: set rollout.train_sampling_params.skip_special_tokens=false",
        ),
        (["rollout.train_sampling_params.no_stop_trim=false"], "no_stop_trim=true"),
        (["+gem.max_tokens_per_turn=9"], "set rollout.train_sampling_params.max_new_tokens"),
        (["+gem.max_turns=9"], "rollout.max_turns=8 turns; raise rollout.max_turns"),
        (["+gem.on_env_error=retry"], "on_env_error=retry: this version of RL2 .* or mask"),
    ],
)
def test_options_that_texts_cannot_support_are_rejected(words: list[str], message: str) -> None:
    config, upstream = gem_config(*words)
    with pytest.raises(ConfigError, match=message):
        check_config(config, upstream)


def test_the_launcher_fills_in_options_with_one_possible_value() -> None:
    config, upstream = compose_config(), find()
    assert not plays_gem(config)
    prepare(config, upstream)
    assert config.rollout.env_path == _ENV_PATH
    assert plays_gem(config)
    for split in SPLITS:
        params = upstream.sampling_params(config, split)
        assert params.get("skip_special_tokens", True) is not INDEX
    own = compose_config(f"rollout.env_path={__file__}")
    prepare(own, upstream)
    assert not plays_gem(own)
    assert "skip_special_tokens" not in upstream.sampling_params(own, "train")


def test_rows_are_written_read_and_checked(tmp_path: Path) -> None:
    sources = [EnvChoice.parse(f"{GUESS}(max_number=5)"), EnvChoice.parse(GUESS)]
    tasks = list(make_tasks(sources, 8))
    path = tmp_path / "train.jsonl"
    write(tasks, path)
    rows = [json.loads(line) for line in path.read_text().splitlines()]
    assert [task_of(row["extra_info"]) for row in rows] == tasks
    check_file(str(path))
    check_file(f"train@{path}")
    check_file("org/no-such-dataset")
    check_config(*gem_config(f"{PATH}={path}"))
    with pytest.raises(ConfigError, match=r"end it with \.jsonl"):
        write(tasks, tmp_path / "train.txt")


def test_rows_that_cannot_be_played_are_rejected(tmp_path: Path) -> None:
    path = tmp_path / "train.jsonl"
    row = json.dumps({"extra_info": {"env_id": GUESS, "seed": 1}})
    for bad, message in (
        ('{"prompt": "Guess."}', "line 2: the row has a 'prompt'"),
        ('{"extra_info": {"seed": 1}}', "line 2: extra_info of a dataset row: env_id is missing"),
        ("[]", "line 2: "),
        ("{", "line 2: "),
    ):
        path.write_text(f"{row}\n{bad}\n")
        with pytest.raises(ConfigError, match=message):
            check_file(str(path))
    write([TaskRow(env_id="game:GuessTheNumbre-v0", env_kwargs={}, seed=1, index=0)], path)
    with pytest.raises(ConfigError, match=r"line 1: .*GuessTheNumber-v0"):
        check_file(str(path))
    write([TaskRow(env_id=GUESS, env_kwargs={"color": 1}, seed=1, index=0)], path)
    with pytest.raises(ConfigError, match="color"):
        check_config(*gem_config(f"{PATH}={path}"))


def test_images_are_rejected_with_the_reason(tmp_path: Path) -> None:
    register("test:Rl2Images", ImageEnv)
    path = tmp_path / "train.jsonl"
    write([TaskRow(env_id="test:Rl2Images", env_kwargs={}, seed=1, index=0)], path)
    with pytest.raises(ConfigError, match="test:Rl2Images shows images, but RL2's rows cannot hold"):
        check_file(str(path))


@pytest.mark.parametrize("kind", KINDS)
def test_an_epoch_plays_every_item_once(tmp_path: Path, kind: str) -> None:
    """Read the tasks with RL2's own dataset class."""
    import datasets
    from RL2.datasets import RLDataset

    source = source_of(kind, tmp_path)

    def read(*words: str) -> list[TaskRow]:
        path = tmp_path / "tasks.jsonl"
        assert main(["export", "--to", "rl2", "--env", source.label, "--out", str(path), *words]) == 0
        config = SimpleNamespace(path=str(path), responses_per_prompt=2)
        if INDEX:
            data = RLDataset(config, None)
            first, rows = data.collate_fn([data[0]]), [data[index] for index in range(len(data))]
        else:
            data = RLDataset(config, None, datasets.load_dataset("json", data_files=str(path), split="train"))
            first = [sample.sample for sample in data[0].samples]
            rows = [data[index].samples[0].sample for index in range(len(data))]
        assert len(first) == 2
        assert len({str(row) for row in first}) == 1  # samples share the item
        return [task_of(row["extra_info"]) for row in rows]

    check_epochs(source, read())
    check_eval_tasks(source, read("--split", "eval"))


def test_a_file_of_evaluation_items_is_not_trained_on(tmp_path: Path) -> None:
    source, path = source_of("service", tmp_path), str(tmp_path / "val.jsonl")
    write(make_tasks([source], 4, split="eval"), path)
    check_file(path)
    with pytest.raises(
        ConfigError, match=r"val.jsonl, line 1: item \d+ of service:Shop-v0 is for evaluation only"
    ):
        check_config(*gem_config(f"{PATH}={path}"))
    check_config(*gem_config(f"{find().data_section(SPLITS[1])}.path={path}"))
    write([TaskRow(env_id=source.env_id, env_kwargs={}, seed=1, index=0, item=None)], path)
    with pytest.raises(ConfigError, match="the row names no item of service:Shop-v0"):
        check_file(path, for_training=True)


def test_a_config_is_composed_by_the_rules_of_the_installed_hydra(tmp_path: Path) -> None:
    (tmp_path / "part").mkdir()
    (tmp_path / "part" / "small.yaml").write_text("size: 1\nname: ${kind}-1\n")
    (tmp_path / "main.yaml").write_text("defaults: [part: small, _self_]\nkind: a\npart: {size: 2}\n")
    with warnings.catch_warnings():
        warnings.simplefilter("error")  # hydra warns where no version is named
        config = options.compose_config(tmp_path, "main", ["+part.steps=3", "kind=b"])
    assert config == {"kind": "b", "part": {"size": 2, "name": "b-1", "steps": 3}}

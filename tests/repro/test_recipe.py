"""Valid recipes, options that each trainer rejects, and the options of the reference trainer."""

from __future__ import annotations

import inspect
import json
from pathlib import Path
from typing import Any

import gem_oat._repro
import gem_openrlhf._repro
import gem_rl2._repro
import gem_roll._repro
import gem_trl._repro
import gem_verl._repro
import pytest

from gem_core import _registration
from gem_core.advantages import estimator as declare
from gem_core.advantages import get_estimator, list_estimators
from gem_core.errors import ConfigError, GemError
from gem_lab import load_trainer, main
from gem_lab._cli import FAILED, MISTAKE, OK, build_parser
from gem_lab.eval._viewer import write_page
from gem_lab.repro import Recipe, write_reference
from gem_lab.repro._settings import read_settings
from gem_lab.repro._writers import load_recipe_writer
from gem_lab.train import TrainConfig
from gem_lab.train._config import SUPPLIES
from tests.repro.recipes import FULL, GUESS, MASTERMIND, PLAIN, recipe, started_by
from tests.support import ScriptedEnv

WRITERS: dict[str, Any] = {
    "reference": write_reference,
    "verl": gem_verl._repro.write,
    "openrlhf": gem_openrlhf._repro.write,
    "oat": gem_oat._repro.write,
    "rl2": gem_rl2._repro.write,
    "roll": gem_roll._repro.write,
    "trl": gem_trl._repro.write,
}


def test_a_file_of_yaml_is_read(tmp_path: Path) -> None:
    pytest.importorskip("yaml", reason="needs PyYAML")
    path = tmp_path / "recipe.yaml"
    path.write_text(
        f"env: {GUESS}\nmodel: m\nlearning_rate: 1e-6\nestimator_options: {{eps: 1e-9}}\nmax_turns: null\n"
    )
    found = Recipe.load(path)
    assert (found.env, found.model) == ([GUESS], "m")
    assert (found.learning_rate, found.estimator_options, found.max_turns) == (1e-6, {"eps": 1e-9}, None)
    (tmp_path / "m").mkdir()
    assert Recipe.load(path).model == str(tmp_path / "m")
    path.write_text("env: [")
    with pytest.raises(ConfigError, match="not YAML"):
        Recipe.load(path)


def test_a_date_and_numbers_in_yaml_are_read(tmp_path: Path) -> None:
    pytest.importorskip("yaml", reason="needs PyYAML")
    path = tmp_path / "recipe.yaml"
    path.write_bytes(
        f"\ufeffenv: {GUESS}\r\nmodel: m\r\ndate: 2026-01-31\r\nharness_timeout: 1e3\r\n".encode()
    )
    found = Recipe.load(path)
    assert (found.date, found.harness_timeout) == ("2026-01-31", 1000)


@pytest.mark.parametrize("kind", ["yaml", "json"])
def test_an_option_that_is_given_twice_is_an_error(kind: str, tmp_path: Path) -> None:
    pytest.importorskip("yaml", reason="needs PyYAML")
    path = tmp_path / f"recipe.{kind}"
    for options in ('"env": "x", "gamma": 1, "gamma": 0.9', '"template_kwargs": {"a": 1, "a": 2}'):
        path.write_text(f"{{{options}}}")
        with pytest.raises(ConfigError, match=r"recipe\.\w+: (gamma|a) is given twice"):
            Recipe.load(path)


def test_files_of_a_recipe_are_those_beside_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = tmp_path / "my recipes"
    for name in ("own.py", "template.jinja"):
        folder.mkdir(exist_ok=True)
        (folder / name).write_text("")
    (tmp_path / "other.py").write_text("")
    monkeypatch.chdir(tmp_path)
    env = ["own.py:A(n=1) as a=2", "other.py:B", f"{GUESS}=3"]
    given = {**PLAIN, "env": env, "chat_template": "template.jinja"}
    (folder / "recipe.json").write_text(json.dumps(given))
    found = Recipe.load("my recipes/recipe.json")
    assert found.env == [f"{folder}/own.py:A(n=1) as a=2", f"{tmp_path}/other.py:B=1", f"{GUESS}=3"]
    assert found.chat_template == str(folder / "template.jinja")


def test_yaml_without_its_package_says_what_to_do(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(__import__("sys").modules, "yaml", None)
    (tmp_path / "recipe.yaml").write_text("env: x")
    with pytest.raises(GemError, match="pip install pyyaml, or write the file as JSON"):
        Recipe.load(tmp_path / "recipe.yaml")


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"env": []}, "expected at least one environment"),
        ({"env": [GUESS, 3]}, "expected at least one environment"),
        ({"env": 5}, "env=5: expected at least one environment"),
        ({"wrappers": 5}, "wrappers=5: expected text"),
        ({"system_prompt": ["a"]}, "system_prompt=['a']: expected text, or None"),
        ({"step_timeout": "x"}, "step_timeout='x': expected a number above 0, or None"),
        ({"model": ""}, "model='': expected"),
        ({"gama": 1}, "unknown option 'gama'. Did you mean gamma"),
        ({"gamma": 1.5}, "gamma=1.5: expected a number from 0 to 1"),
        ({"gamma": "high"}, "gamma='high': expected a number"),
        ({"learning_rate": 0}, "learning_rate=0: expected"),
        ({"steps": 0}, "steps=0: expected a whole number of at least 1"),
        ({"seed": 1.5}, "seed=1.5: expected a whole number"),
        ({"max_tokens_per_turn": None}, "max_tokens_per_turn=None: expected a whole number"),
        ({"turns_per_step": 0}, "turns_per_step=0: expected"),
        ({"estimator": "rbn"}, "unknown estimator 'rbn'. Did you mean rebn"),
        ({"estimator": "gea"}, "unknown estimator 'gea'. Did you mean gae"),
        ({"critic_learning_rate": 1e-5}, "critic_learning_rate needs estimator=gae"),
        ({"estimator": "gae", "critic_learning_rate": 0}, "critic_learning_rate=0: expected"),
        ({"estimator": "grpo", "group_size": 1}, "with group_size=1 every advantage would be 0"),
        ({"estimator_options": {"dof": 1}}, "unknown option 'estimator_options.dof' of rebn"),
        ({"estimator_options": {"scope": "all"}}, "scope='all': expected collected or trained"),
        ({"estimator": "rloo", "estimator_options": {"scope": "trained"}}, "scope' of rloo"),
        ({"estimator_options": {"eps": "tiny"}}, "eps='tiny': expected a number"),
        ({"estimator_options": [1]}, "estimator_options=[1]: expected a JSON object"),
        ({"minibatches": 3}, "episodes_per_step=16: expected a multiple of minibatches=3 times group_size=2"),
        ({"gpus": 3}, "gpus=3 does not divide the 16 episodes"),
        ({"context": "whole"}, "expected append, template, or rebuild"),
        ({"system_prompt": "${HOME}"}, "system_prompt: trainers that use OmegaConf would resolve ${"),
        ({"env": [f"{GUESS}(a='${{b}}')"]}, "env: trainers that use OmegaConf would resolve ${"),
        ({"chat_template": "${{ message.content }}"}, "chat_template: trainers that use OmegaConf"),
        ({"template_kwargs": {"a": ["${b}"]}}, "template_kwargs: trainers that use OmegaConf"),
    ],
)
def test_options_that_no_trainer_supports_are_rejected(changed: dict[str, Any], message: str) -> None:
    with pytest.raises(GemError) as refusal:
        recipe(PLAIN, **changed)
    assert message in str(refusal.value)


@pytest.mark.parametrize(
    ("trainer", "changed", "messages"),
    [
        ("reference", FULL, ["traces", "gpus: it runs in one process"]),
        *(
            (trainer, {"estimator": "gae"}, ["estimator: gae needs a critic"])
            for trainer in WRITERS
            if trainer not in ("oat", "verl")
        ),
        ("verl", {"estimator": "gae", "context": "rebuild"}, ["context: gae needs one row per episode"]),
        ("oat", {"turns_per_step": None}, ["episodes_per_step: a step of Oat is a number of turns"]),
        ("oat", {"turns_per_step": 45, "minibatches": 2}, ["turns_per_step: 45 is not a multiple of 2"]),
        (
            "rl2",
            {"context": "rebuild", "minibatches": 8},
            ["minibatches: RL2 needs more than 49 episodes"],
        ),
        (
            "trl",
            {"context": "rebuild", "group_size": 1},
            ["group_size: TRL needs at least 2 episodes"],
        ),
        ("roll", {"env": [f"{GUESS}=2", MASTERMIND]}, ["env: ROLL gives each environment a whole number"]),
    ],
)
def test_a_trainer_rejects_by_name(
    trainer: str, changed: dict[str, Any], messages: list[str], tmp_path: Path
) -> None:
    with pytest.raises(ConfigError) as refusal:
        WRITERS[trainer](recipe(PLAIN, **changed), tmp_path / "out")
    assert all(message in str(refusal.value) for message in messages)
    assert not (tmp_path / "out").exists()


REJECTED: list[tuple[str, dict[str, Any], str]] = [
    *((name, {"estimator": "remax"}, "remax needs baselines") for name in WRITERS if name != "reference"),
    *((name, {"estimator": "gigpo"}, "gigpo needs state_keys") for name in ("rl2",)),
    *((name, {"estimator": "rae"}, "rae needs agent_ids") for name in ("rl2",)),
    ("oat", {"estimator": "reinforce_plus_plus_baseline"}, "needs group_ids"),
    ("oat", {"estimator": "gdpo"}, "gdpo needs group_ids"),
    ("oat", {"estimator_options": {"statistics": "env"}}, "rebn needs env_ids"),
    ("oat", {"estimator_options": {"truncation": "mask"}}, "unknown option 'estimator_options.truncation'"),
    ("rl2", {"estimator_options": {"statistics": "env"}}, "rebn needs env_ids"),
    ("rl2", {"estimator_options": {"truncation": "mask"}}, "unknown option 'estimator_options.truncation'"),
    ("verl", {"estimator": "grpo_passk"}, "verl has an estimator 'grpo_passk' of its own"),
    ("rl2", {"estimator": "needs_values"}, "needs_values needs values"),
]


def loaded_writer(trainer: str) -> Any:
    return write_reference if trainer == "reference" else load_recipe_writer(trainer)


@pytest.mark.parametrize(("trainer", "changed", "message"), REJECTED)
def test_an_estimator_that_the_trainer_would_reject_is_not_written(
    trainer: str, changed: dict[str, Any], message: str, tmp_path: Path
) -> None:
    declare(name="grpo_passk")(_own)
    declare(name="needs_values", critic_learns="return")(_with_values)
    with pytest.raises(ConfigError, match=message):
        loaded_writer(trainer)(recipe(PLAIN, **changed), tmp_path / "out")
    assert not (tmp_path / "out").exists()


@pytest.mark.once
@pytest.mark.parametrize("trainer", WRITERS)
@pytest.mark.parametrize("estimator", [*list_estimators(), "own"])
def test_what_is_written_is_what_the_trainer_supplies(trainer: str, estimator: str, tmp_path: Path) -> None:
    if trainer == "roll":
        pytest.importorskip("yaml", reason="needs PyYAML, in which ROLL's config is written")
    declare(name="own")(_with_groups)
    changed: dict[str, Any] = {"estimator": estimator}
    changed |= {"estimator_options": {"shift": 0.5}} if estimator == "own" else {}
    found = get_estimator(estimator)
    supplied: Any = (
        SUPPLIES if trainer == "reference" else load_trainer(trainer).supported.supplies_for(found)
    )
    accepted = found.missing({}, supplied) is None
    if estimator == "gae":
        accepted = trainer in ("verl", "oat")
    try:
        loaded_writer(trainer)(recipe(PLAIN, **changed), tmp_path)
    except ConfigError:
        assert not accepted
        return
    assert accepted
    text = "".join(path.read_text() for path in sorted(tmp_path.iterdir()) if path.name.startswith("run"))
    plain = trainer in ("reference", "oat", "trl")
    assert (estimator if plain else found.trainer_name) in text
    assert estimator != "own" or "shift" in text


def _own(turn_rewards: Any, *, gamma: float = 1.0) -> Any:
    return turn_rewards


def _with_values(turn_rewards: Any, *, values: Any, gamma: float = 1.0) -> Any:
    return turn_rewards


def _with_groups(turn_rewards: Any, *, group_ids: Any, gamma: float = 1.0, shift: float = 0.0) -> Any:
    return turn_rewards


def test_an_option_that_equals_the_estimators_default_is_omitted() -> None:
    made = recipe(PLAIN, estimator_options={"ddof": 0, "eps": 1e-8, "scope": "collected", "min_std": 1e-3})
    assert made.changed_estimator_options == {"min_std": 1e-3}


def test_the_index_version_of_rl2_is_excluded_by_name(tmp_path: Path) -> None:
    for changed, why in (
        ({"max_turns": None}, "max_turns: this version needs a number of turns"),
        ({"on_env_error": "retry"}, "on_env_error: this version keeps the responses of a failed episode"),
    ):
        gem_rl2._repro.write(recipe(PLAIN), tmp_path)
        assert (tmp_path / "run-0.0.2.sh").exists()
        notes = gem_rl2._repro.write(recipe(PLAIN, **changed), tmp_path)
        assert why in notes[-1]
        assert not (tmp_path / "run-0.0.2.sh").exists()


def test_the_reference_trainer_gets_all_options(tmp_path: Path) -> None:
    (tmp_path / "with space").mkdir()
    more: dict[str, Any] = {"step_timeout": 30.0, "on_env_error": "retry", "max_env_retries": 4}
    more |= {"system_prompt": "", "native_tools": False, "parse_special": True, "thoughts": "keep"}
    more |= {"date": "2026-01-31", "chat_template": "{{ messages }}", "harness_timeout": 5.0}
    given = recipe(PLAIN, wrappers="time_limit(max_turns=5)", on_length_cut="pass", minibatches=4, **more)
    write_reference(given, tmp_path / "with space")
    words = started_by(tmp_path / "with space/run.sh", "--threads", "2")
    args = vars(build_parser("train").parse_args(words[1:]))
    config = TrainConfig(
        **{k: v for k, v in args.items() if k in TrainConfig.__dataclass_fields__ and v is not None}
    )
    assert (config.env, config.model, config.seed) == ([GUESS], "Qwen/Qwen3-1.7B", 7)
    assert (config.estimator, config.gamma, config.learning_rate) == ("rebn", 0.9, 2e-6)
    assert (config.steps, config.episodes_per_step, config.group_size, config.minibatches) == (5, 16, 2, 4)
    assert (config.max_turns, config.max_tokens_per_turn, config.max_total_tokens) == (12, 320, 4096)
    assert (config.wrappers, config.on_length_cut, config.kl) == ("time_limit(max_turns=5)", "pass", 0)
    assert (config.eval_episodes, config.threads) == (0, 2)
    assert {name: getattr(config, name) for name in more} == more


def test_the_command(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip("yaml", reason="needs PyYAML, in which ROLL's config is written")
    file, out = tmp_path / "recipe.json", tmp_path / "out"
    file.write_text(json.dumps(PLAIN))
    assert main(["repro", str(file), "--out", str(out), "--json"]) == OK
    found = json.loads(capsys.readouterr().out)
    assert set(found) == set(WRITERS)
    assert all((Path(made["folder"]) / "run.sh").exists() for made in found.values())
    file.write_text(json.dumps({**PLAIN, "turns_per_step": None}))
    assert main(["repro", str(file), "--out", str(out)]) == FAILED
    assert "oat: Oat cannot run this recipe: episodes_per_step" in capsys.readouterr().out
    assert main(["repro", str(file), "--out", str(out), "--to", "oat"]) == MISTAKE
    assert "episodes_per_step" in capsys.readouterr().err
    file.write_text(json.dumps({**PLAIN, "env": f"{GUESS}(color=3)"}))
    assert main(["repro", str(file), "--out", str(out)]) == MISTAKE
    assert "color" in capsys.readouterr().err


class Painted(ScriptedEnv):
    shows_images = True


@pytest.mark.parametrize("trainer", WRITERS)
def test_images_are_rejected_if_the_trainer_does_not_support_them(
    trainer: str, tmp_path: Path, own_registry: None
) -> None:
    _registration.register("test:Painted", Painted)
    made = recipe(PLAIN, env="test:Painted")
    if trainer in ("reference", "verl"):
        WRITERS[trainer](made, tmp_path)
    else:
        with pytest.raises(ConfigError, match="env: test:Painted shows images"):
            WRITERS[trainer](made, tmp_path)


def test_every_default_of_gamma_is_the_same() -> None:
    """See tests/advantages/test_registry.py for the default of the estimators."""
    viewer = inspect.signature(write_page).parameters["gamma"].default
    assert Recipe(env=[GUESS], model="m").gamma == TrainConfig().gamma == viewer == 1.0
    assert build_parser("view").parse_args(["view", "traces.jsonl"]).gamma == 1.0


def test_settings_in_a_file_are_filled_in(tmp_path: Path) -> None:
    path = tmp_path / "recipe.json"
    path.write_text(
        json.dumps(
            {
                "lr": "$learning_rate",
                "clip": 0.2,
                "text": "${oc.env:HOME} $gamma",
                "+gem.*": "$rollout_options",
                "$estimator.*": "$changed_estimator_options",
                "nested": {"files": ["$env", 1], "micro": "$micro"},
            }
        )
    )
    chosen = recipe(PLAIN, estimator_options={"ddof": 1})
    assert read_settings(path, chosen, micro=4) == {
        "lr": 2e-6,
        "clip": 0.2,
        "text": "${oc.env:HOME} $gamma",
        "+gem.max_turns": 12,
        "rebn.ddof": 1,
        "nested": {"files": [[GUESS], 1], "micro": 4},
    }
    with pytest.raises(AttributeError, match="micro"):
        read_settings(path, chosen)


def test_shares_of_a_step() -> None:
    chosen = recipe(PLAIN, episodes_per_step=48, minibatches=2, gpus=2)
    assert (chosen.total_tasks, chosen.tasks_per_update, chosen.episodes_per_gpu) == (120, 12, 12)
    assert (chosen.micro_batch(8), chosen.micro_batch(2)) == (4, 2)
    assert (chosen.micro_batch(), chosen.micro_batches) == (4, 3)

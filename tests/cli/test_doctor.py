from __future__ import annotations

import importlib.metadata
import json
import sys

import numpy as np
import pytest

from gem_core.errors import ConfigError
from gem_core.trainers import Plan, SupportedTrainer, TrainerPlugin
from gem_core.trainers._plan import SourceRows
from gem_envs.sandbox import _levels
from gem_envs.sandbox._levels import LevelCheck, strongest
from gem_lab import _discovery, main


def doctor(capsys, code: int = 0) -> dict:
    assert main(["doctor", "--json"]) == code
    return json.loads(capsys.readouterr().out)


def plugin(monkeypatch, preflight=None, **changes) -> None:
    """Register a description that takes precedence over Oat's own."""
    described = {
        "name": "Oat", "package": "gem_oat", "distribution": "numpy", "versions": ">=1,<99",
        "hook": "python -m json.tool", "hook_modules": ("json.tool",), **changes,
    }  # fmt: skip
    monkeypatch.setitem(
        _discovery._registered, "oat", TrainerPlugin(SupportedTrainer(**described), preflight=preflight)
    )


def test_a_machine_without_namespaces_is_named(capsys, monkeypatch):
    check = LevelCheck("namespace", False, "unshare: Operation not permitted")
    monkeypatch.setitem(_levels._checks, "namespace", check)
    assert doctor(capsys)["sandbox"] == "process: unshare: Operation not permitted"


def trainer(report: dict, name: str) -> dict:
    return next(trainer for trainer in report["trainers"] if trainer["trainer"] == name)


def oat(report: dict) -> dict:
    return trainer(report, "oat")


@pytest.fixture(autouse=True)
def no_other_trainers(monkeypatch):
    for variable in ("ROLL_HOME", "RL2_HOME"):
        monkeypatch.delenv(variable, raising=False)


def test_this_environment(capsys):
    report = doctor(capsys)
    assert report["numpy"] == np.__version__
    assert report["python"] == sys.version.split()[0]
    assert report["sandbox"] == "{0.level}: {0.reason}".format(strongest())
    train = {
        package["requirement"].split(">")[0]: package["installed"] for package in report["extras"]["train"]
    }
    assert {"torch", "transformers", "rich"} <= set(train)
    assert [trainer["plugin"] for trainer in report["trainers"]] == [
        "gem_oat", "gem_openrlhf", "gem_rl2", "gem_roll", "gem_trl", "gem_verl",
    ]  # fmt: skip


def test_an_absent_trainer_is_not_a_failure_and_says_how_to_install(capsys):
    verl = trainer(doctor(capsys), "verl")
    assert (verl["name"], verl["installed"], verl["status"]) == ("verl", None, "absent")
    assert verl["plugin_imports"]
    assert any("pip install 'verl" in problem for problem in verl["problems"])


def test_a_trainer_whose_hook_is_open_is_ready(capsys, monkeypatch):
    plugin(monkeypatch)
    found = oat(doctor(capsys))
    assert (found["status"], found["installed"], found["problems"]) == ("ready", np.__version__, [])
    assert found["hook_registered"]


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({"versions": ">=90,<99"}, "is not supported; supported versions: >=90,<99"),
        ({"hook_modules": ("json.nothing",)}, "no json.nothing yet"),
        ({"entry_point": ("verl.plugins", "somebody-else")}, "no entry point 'somebody-else'"),
    ],
)
def test_an_installed_trainer_without_its_plugin_is_exit_1(changes, expected, capsys, monkeypatch):
    plugin(monkeypatch, **changes)
    found = oat(doctor(capsys, code=1))
    assert found["status"] == "broken"
    assert any(expected in problem for problem in found["problems"])
    assert main(["doctor"]) == 1
    assert expected in capsys.readouterr().out


def test_a_version_newer_than_the_tested_ones_is_ready_with_a_warning(capsys, monkeypatch):
    plugin(monkeypatch, versions=">=1,<1.1")
    report = oat(doctor(capsys))
    assert report["problems"] == []
    assert report["warning"].startswith(f"Oat {np.__version__} is newer than the tested versions (>=1,<1.1)")
    assert main(["doctor"]) == 0
    assert "is newer than the tested versions" in " ".join(capsys.readouterr().out.split())


def test_a_source_checkout_is_found_by_its_variable_or_on_the_import_path(capsys, monkeypatch, tmp_path):
    absent = {"distribution": "no-such-thing", "on_index": False, "home_variable": "OAT_HOME"}
    (tmp_path / "oatmeal" / "flakes").mkdir(parents=True)
    (tmp_path / "oatmeal" / "__init__.py").write_text("raise AssertionError('was imported')")
    plugin(monkeypatch, **absent, checkout_module="oatmeal.flakes")
    assert oat(doctor(capsys))["status"] == "absent"
    monkeypatch.syspath_prepend(tmp_path)
    assert oat(doctor(capsys))["installed"] == str(tmp_path)
    plugin(monkeypatch, **absent, checkout_module="oatmeal.other")  # an unrelated package of that name
    assert oat(doctor(capsys))["status"] == "absent"
    monkeypatch.setenv("OAT_HOME", str(tmp_path / "oatmeal"))
    assert oat(doctor(capsys))["installed"] == str(tmp_path / "oatmeal")


def test_a_plugin_that_does_not_import_is_named(capsys, monkeypatch):
    monkeypatch.setitem(sys.modules, "gem_oat", None)
    found = oat(doctor(capsys, code=1))
    assert (found["status"], found["plugin_imports"]) == ("broken", False)
    assert found["problems"][0].startswith("gem_oat:TRAINER cannot be imported: ModuleNotFoundError")


def test_verl_would_find_the_entry_point_of_this_installation(capsys):
    (entry_point,) = importlib.metadata.entry_points(group="verl.plugins", name="gem_core")
    assert entry_point.value == "gem_verl.plugin"
    problems = trainer(doctor(capsys), "verl")["problems"]
    assert not any("no entry point" in problem for problem in problems)


def test_a_source_tree_that_was_never_installed(capsys, monkeypatch):
    def missing(name):
        raise importlib.metadata.PackageNotFoundError(name)

    monkeypatch.setattr(importlib.metadata, "requires", missing)
    assert doctor(capsys)["extras"] == {}
    assert main(["doctor"]) == 0
    assert "runs from a source tree that is not installed" in capsys.readouterr().out


def check_gamma(arguments):
    """Check the arguments like a trainer that prints, has a parser of its own, and has the option gamma."""
    print("reading the config")
    if "--help" in arguments:
        sys.exit(2)
    values = dict(argument.split("=") for argument in arguments)
    if float(values["gamma"]) > 1:
        raise ConfigError(f"gamma={values['gamma']}: expected a number from 0 to 1")


@pytest.mark.parametrize(
    ("arguments", "problem"),
    [
        (["gamma=0.9"], None),
        (["gamma=1.2"], "gamma=1.2: expected a number from 0 to 1"),
        (["gama=1"], "KeyError: 'gamma'"),
        (["--help"], "its own parser stopped with the message above"),
    ],
)
def test_the_arguments_of_a_trainer_are_checked(arguments, problem, capsys, monkeypatch):
    plugin(monkeypatch, preflight=check_gamma)
    code = int(problem is not None)
    assert main(["doctor", "--trainer", "oat", "--json", "--", *arguments]) == code
    report = json.loads(capsys.readouterr().out)
    assert (report["status"], report["checked"], report["problem"]) == ("ready", True, problem)
    assert main(["doctor", "--trainer", "oat", "--", *arguments]) == code
    out, err = capsys.readouterr()
    assert (problem or "accepted Oat accepts these arguments; nothing was started") in out
    assert "reading the config" in err


@pytest.mark.parametrize(
    "program",
    [
        "python -m verl.trainer.main_ppo", "/usr/bin/python3.11 -u -m openrlhf.cli.train", "python train.py",
        "torchrun --nproc_per_node=2 -m RL2.trainer.ppo", "deepspeed --module openrlhf.cli.train",
        "env CUDA_VISIBLE_DEVICES=0 python3 -m trl.main", "",
    ],
)  # fmt: skip
def test_a_whole_command_may_be_given(program, capsys, monkeypatch):
    plugin(monkeypatch, preflight=lambda arguments: print(arguments))
    assert main(["doctor", "--trainer", "oat", "--", *program.split(), "-m", "gamma=0.9", "--lr", "1"]) == 0
    assert str(["-m", "gamma=0.9", "--lr", "1"]) in capsys.readouterr().err


def test_the_plan_of_a_run_is_shown(capsys, monkeypatch):
    source = SourceRows("train", "openai/gsm8k", "single_turn_agent", "verl's score", 747)
    plan = Plan([source], "rebn(gamma=0.9)", ["an episode has 1 turn"], ["top_p truncates"])
    plugin(monkeypatch, preflight=lambda arguments: plan)
    assert main(["doctor", "--trainer", "oat", "--", "gamma=0.9"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert [line for line in lines if line.startswith("plan ")] == [f"plan {line}" for line in plan.lines()]
    assert "747 rows of openai/gsm8k, played by single_turn_agent, rewarded by verl's score" in lines[-4]
    assert main(["doctor", "--trainer", "oat", "--json", "--", "gamma=0.9"]) == 0
    shown = json.loads(capsys.readouterr().out)["plan"]
    assert shown["sources"] == [source._asdict()]
    assert shown["notes"] == ["top_p truncates"]


def test_the_arguments_of_an_absent_trainer_are_not_checked(capsys, monkeypatch):
    plugin(monkeypatch, preflight=check_gamma, distribution="no-such-thing")
    assert main(["doctor", "--trainer", "oat", "--", "gamma=0.9"]) == 1
    out = capsys.readouterr().out
    assert out.startswith("absent ")
    assert "accepted" not in out


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--trainer", "oats"], "unknown trainer 'oats'. Did you mean oat?"),
        (["gamma=1"], "gamma=1: checking arguments requires --trainer NAME"),
        (["--trainer", "oat", "--", "gamma=1"], "gem_oat has no check of the trainer's arguments"),
    ],
)
def test_arguments_that_cannot_be_checked(words, message, capsys, monkeypatch):
    plugin(monkeypatch)
    assert main(["doctor", *words]) == 2
    assert message in capsys.readouterr().err


def test_requirements_of_other_python_versions_and_platforms_do_not_count(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "version_info", (3, 11))
    monkeypatch.setattr(sys, "platform", "win32")
    marked = [
        "numpy>=1.0; extra == 'one'",
        "old<9,>=2; (python_version < '3.11') and extra == 'one'",
        "older; (python_version < '3.12') and extra == 'two'",
        "loop>=1; (sys_platform != 'win32') and extra == 'two'",
    ]
    monkeypatch.setattr(importlib.metadata, "requires", lambda name: marked)
    required = {
        extra: [package["requirement"] for package in packages]
        for extra, packages in doctor(capsys)["extras"].items()
    }
    assert required == {"one": ["numpy>=1.0"], "two": ["older"]}

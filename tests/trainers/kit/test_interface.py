"""Interface checks, on classes with the shapes of trainers."""

from __future__ import annotations

import functools
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

from gem_core.errors import ConfigError, UnsupportedTrainer
from gem_core.trainers import SupportedTrainer, expect, expect_arguments, lazy_exports
from gem_core.trainers._interface import (
    expect_fields,
    expect_listed,
    expect_names,
    expect_one_of,
    expect_same,
    parameters_of,
)
from tests.trainers.kit.plugin import plugin_with

TRAINER = SupportedTrainer("Pytest", "gem_pytest", "pytest", versions=">=1,<99", hook="")


class Learner:
    def learn(self) -> Any:
        return self.step(self.rows, rate=0.1)  # type: ignore[attr-defined]

    def step(self, rows: Any, rate: float, _ray_trace_ctx: Any = None) -> Any:
        return rows

    @functools.wraps(step)
    def wrapped(self, *args: Any) -> Any:
        return args


@dataclass
class Sample:
    prompt: str
    reward: float


def module() -> ModuleType:
    made = ModuleType("trainer.core")
    made.Learner = Learner  # type: ignore[attr-defined]
    return made


def test_an_interface_that_holds_gives_the_function() -> None:
    assert expect(TRAINER, Learner, "step", "self", "rows", "rate") is Learner.step
    assert expect(TRAINER, module(), "Learner.step", "self", "rows", "rate") is Learner.step
    assert expect(TRAINER, Learner, "step", "self", exact=False) is Learner.step
    assert expect_one_of(TRAINER, Learner, "step", [("self",), ("self", "rows", "rate")]) is Learner.step
    assert parameters_of(Learner.wrapped) == ("self", "rows", "rate")


@pytest.mark.parametrize(
    ("name", "parameters", "message"),
    [
        ("step", ("self", "rows"), r"Learner\.step takes \(self, rows, rate\): expected \(self, rows\)"),
        ("step", ("self", "rate", "rows"), r"expected \(self, rate, rows\)"),
        ("stop", ("self",), r"Learner\.stop is missing: expected \(self\)"),
        ("step.inner", ("self",), r"Learner\.step\.inner is missing"),
    ],
)
def test_another_interface_is_rejected_with_the_version(
    name: str, parameters: tuple[str, ...], message: str
) -> None:
    with pytest.raises(UnsupportedTrainer, match=message) as caught:
        expect(TRAINER, Learner, name, *parameters)
    text = str(caught.value)
    assert text.startswith(f"gem_pytest: Pytest {pytest.__version__} has another interface: ")
    assert text.endswith("Supported versions: pytest>=1,<99")
    with pytest.raises(UnsupportedTrainer, match=r"trainer\.core\.Learner\."):
        expect(TRAINER, module(), f"Learner.{name}", *parameters)


def test_alternatives_are_all_named() -> None:
    with pytest.raises(UnsupportedTrainer, match=r"expected \(self\) or \(rows\)"):
        expect_one_of(TRAINER, Learner, "step", [("self",), ("rows",)])


def test_fields_of_a_row() -> None:
    expect_fields(TRAINER, Sample, ["prompt", "reward"])
    expect_fields(TRAINER, Sample, ["reward"], exact=False)
    with pytest.raises(UnsupportedTrainer, match=r"Sample has the fields prompt, reward: expected reward"):
        expect_fields(TRAINER, Sample, ["reward"])
    with pytest.raises(UnsupportedTrainer, match="expected images"):
        expect_fields(TRAINER, Sample, ["images"], exact=False)


def test_names_that_a_method_uses() -> None:
    expect_names(TRAINER, Learner, "learn", ["step", "rows"])
    with pytest.raises(UnsupportedTrainer, match=r"Learner\.learn does not use buffer, loss\. Supported"):
        expect_names(TRAINER, Learner, "learn", ["step", "loss", "buffer"])
    with pytest.raises(UnsupportedTrainer, match=r"Learner\.run does not use step\."):
        expect_names(TRAINER, Learner, "run", ["step"])


@pytest.mark.parametrize("versions", ["1.2", ">=1", "<2,>=1", ">=1,<=2"])
def test_versions_are_a_range(versions: str) -> None:
    with pytest.raises(ConfigError, match=r"expected a range such as '>=1\.2,<2'"):
        SupportedTrainer("Acme", "gem_acme", "acme", versions=versions, hook="")
    assert (TRAINER.minimum, TRAINER.below) == ("1", "99")


def test_lazy_exports_import_on_first_use() -> None:
    trainer = SupportedTrainer("Pytest", "gem_core", "pytest", versions=">=1,<99", hook="")
    load, names = lazy_exports(trainer, {"errors": ["ConfigError"]})
    assert load("ConfigError") is ConfigError
    assert {"ConfigError", "make"} <= set(names())
    with pytest.raises(AttributeError, match="no attribute 'Pool'; it has ConfigError"):
        load("Pool")
    with pytest.raises(AttributeError, match=r"no attribute '__path'$"):
        load("__path")
    missing = SupportedTrainer("X", "gem_x", "no-such-distribution", versions=">=1,<2", hook="")
    with pytest.raises(UnsupportedTrainer, match="is not installed"):
        lazy_exports(missing, {})[0]("Anything")


def test_a_replacement_takes_the_same_parameters() -> None:
    def wrap(original: Any) -> Any:
        @functools.wraps(original)
        def step(self: Any, rows: Any, rate: float) -> Any:
            return original(self, rows, rate)

        return step

    class Other(Learner):
        def step(self, rows: Any) -> Any:  # type: ignore[override]
            return rows

    expect_same(TRAINER, module(), "Learner.step", wrap(Learner.step))
    for name, replacement in (
        ("Learner.wrapped", wrap(Other.step)),  # not the function that it wraps
        ("Learner.step", Other.step),
        ("Learner.gone", wrap(None)),
        ("Learner", Other),
    ):
        with pytest.raises(UnsupportedTrainer, match=r"trainer\.core\.Learner\."):
            expect_same(TRAINER, module(), name, replacement)


def test_arguments_among_others() -> None:
    expect_arguments(TRAINER, module(), "Learner.step", ["rate"])
    with pytest.raises(
        UnsupportedTrainer, match=r"trainer.core.Learner.step has no argument pace and no size"
    ):
        expect_arguments(TRAINER, module(), "Learner.step", ["rate", "pace", "size"])
    with pytest.raises(UnsupportedTrainer, match=r"trainer.core.Actor is missing"):
        expect_arguments(TRAINER, module(), "Actor", ["rate"])


Actor = SimpleNamespace(__ray_metadata__=SimpleNamespace(modified_class=Learner))


@pytest.mark.parametrize(
    ("owners", "members", "problem"),
    [
        ("Learner Actor", {"step": "self rows ...", "learn": "self"}, None),
        ("Sample", {"fields": ["reward"]}, None),
        ("Learner", {"uses": {"learn": "step"}}, None),
        ("Learner", {"uses": {"learn": "step halt"}}, r"Learner.learn does not use halt"),
        ("Sample", {"fields": ["rewards"]}, r"Sample has the fields prompt, reward: expected rewards"),
        ("Actor", {"step": "self rows"}, r"Learner.step takes \(self, rows, rate\): expected \(self, rows\)"),
        ("Learner", {"stop": "self"}, r"Learner.stop is missing"),
        ("Critic", {}, r"test_interface.Critic is missing"),
    ],
)
def test_an_interface_in_a_file(
    owners: str,
    members: dict[str, Any],
    problem: str | None,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    owners = " ".join(f"{__name__}:{owner}" for owner in owners.split())
    trainer = plugin_with("interface.json", {"loop": {owners: members}}, tmp_path, monkeypatch)
    if problem is None:
        expect_listed(trainer, "loop")
    else:
        with pytest.raises(UnsupportedTrainer, match=problem):
            expect_listed(trainer, "loop")


@pytest.mark.parametrize(
    ("distribution", "versions", "problem"),
    [
        (
            "no-such-distribution",
            ">=1,<2",
            r"Acme is not installed: pip install 'no-such-distribution>=1,<2'",
        ),
        ("pytest", ">=99,<100", r"Acme .* is not supported; supported versions: >=99,<100"),
    ],
)
def test_an_interface_of_a_trainer_that_is_not_supported_is_not_read(
    distribution: str, versions: str, problem: str
) -> None:
    trainer = SupportedTrainer("Acme", "gem_no_such_package", distribution, versions=versions, hook="")
    with pytest.raises(UnsupportedTrainer, match=f"gem_no_such_package: {problem}"):
        expect_listed(trainer, "loop")

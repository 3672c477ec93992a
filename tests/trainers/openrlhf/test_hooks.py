"""How the plugin gets into OpenRLHF's processes."""

from __future__ import annotations

import importlib
import json
import os
import subprocess
import sys
import types
from typing import Any
from unittest import mock

import gem_openrlhf
import pytest
import torch
from gem_openrlhf import _failures, _hooks
from gem_openrlhf._experience_maker import GemExperienceMaker
from gem_openrlhf._failures import rollout_stats
from gem_openrlhf._labels import ROWS, played_of
from openrlhf.trainer.ppo_trainer import BasePPOTrainer
from openrlhf.trainer.ppo_utils import samples_generator
from openrlhf.trainer.ppo_utils.samples_generator import SamplesGenerator

from gem_core.errors import ConfigError, EnvError, UnsupportedTrainer
from tests.advantages.oracle import episode
from tests.trainers.openrlhf.args import experiences, parse
from tests.trainers.openrlhf.harness import CPU
from tests.trainers.openrlhf.test_estimators import response
from tests.trainers.processes import ROOT

REPLACED = ("RemoteExperienceMaker", "compute_eval_metrics", "prepare_datasets")


def module_like(**changes: Any) -> types.ModuleType:
    """Return a copy of OpenRLHF's module in which names that hooks replace are changed."""
    import openrlhf.trainer.ppo_trainer as original

    module = types.ModuleType(original.__name__)
    trainer = type("BasePPOTrainer", (BasePPOTrainer,), {})
    names = {name: getattr(original, name) for name in REPLACED}
    for name, value in {**names, "BasePPOTrainer": trainer, **changes}.items():
        setattr(module, name, value)
    return module


def test_names_are_replaced() -> None:
    module: Any = module_like()
    _hooks.install(module)
    assert module.RemoteExperienceMaker is GemExperienceMaker
    assert module.BasePPOTrainer._compute_rollout_stats is not BasePPOTrainer._compute_rollout_stats


def test_the_hook_waits_for_the_import(monkeypatch: pytest.MonkeyPatch) -> None:
    installed: list[types.ModuleType] = []
    monkeypatch.setattr(_hooks, "install", installed.append)
    monkeypatch.setattr(_hooks, "WRAPPERS", {"colorsys": {}})
    monkeypatch.delitem(sys.modules, "colorsys", raising=False)
    _hooks.setup()
    assert not installed
    import colorsys

    assert installed == [colorsys]
    _hooks.setup()
    assert installed == [colorsys, colorsys]


@pytest.mark.parametrize("name", [*REPLACED, "BasePPOTrainer"])
def test_another_interface_is_rejected(name: str) -> None:
    for other in (None, lambda samples: None):
        with pytest.raises(UnsupportedTrainer, match=rf"{name}.*Supported versions: openrlhf>="):
            _hooks.install(module_like(**{name: other}))


def test_evaluation_gets_metrics_for_each_environment() -> None:
    def original(eval_dataloader: Any, samples_list: Any, n_samples_per_prompt: int) -> dict[str, float]:
        return {"theirs": 1.0}

    module: Any = module_like(compute_eval_metrics=original)
    _hooks.install(module)
    samples = [experiences([response(episode(rewards))]) for rewards in ([1.0], [0.0, 3.0])]
    logs = module.compute_eval_metrics(None, samples, 1)
    assert logs["theirs"] == 1.0
    assert logs["eval_test_gem/return"] == 2.0
    assert logs["eval_test_gem/turns"] == 1.5


def test_unknown_names_list_what_exists() -> None:
    with pytest.raises(AttributeError, match="GemExecutor"):
        gem_openrlhf.GemExecuter  # noqa: B018


WORKER = """
import inspect, json, sys
from gem_openrlhf import _hooks as hooks
hooks.setup()
from ray import cloudpickle
kinds = [cloudpickle.loads(bytes.fromhex(line)) for line in sys.stdin.read().split()]
sync, generating, training = kinds
print(json.dumps([
    [base.__init__.__globals__["RemoteExperienceMaker"].__module__ for kind in (sync, training)
     for base in kind.__mro__ if base.__name__ == "BasePPOTrainer"],
    [inspect.unwrap(method).__globals__["compute_eval_metrics"].__globals__["__name__"]
     for method in (sync.evaluate, generating._run_eval)],
    [method.__wrapped__.__globals__["__name__"] for kind in (sync, training)
     for method in (kind._compute_rollout_stats,)],
]))
"""


def test_the_trainers_find_them_in_rays_workers() -> None:
    """Ray sends OpenRLHF's trainers by value, so the worker looks up the names that they use."""
    from openrlhf.trainer.ppo_trainer import PPOTrainer
    from openrlhf.trainer.ppo_trainer_async import GenerateSamplesActor, TrainingActor
    from ray import cloudpickle

    actors = (PPOTrainer, GenerateSamplesActor, TrainingActor)
    sent = [cloudpickle.dumps(actor.__ray_metadata__.modified_class).hex() for actor in actors]
    env = {
        **os.environ,
        "PYTHONPATH": os.pathsep.join([str(CPU), str(ROOT)]),
        "GEM_OPENRLHF_CPU": "openrlhf_cpu",
    }
    done = subprocess.run(
        [sys.executable, "-c", WORKER], input="\n".join(sent), env=env, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    makers, metrics, stats = json.loads(done.stdout.splitlines()[-1])
    assert makers == ["gem_openrlhf._experience_maker"] * 2
    assert metrics == ["gem_openrlhf._failures"] * 2
    assert stats == ["gem_openrlhf._failures"] * 2


FAILED = episode([5.0], trainable=False)


def played_samples(*rewards: float | None) -> list[Any]:
    """Return samples of one row each; None means a failed episode."""
    given = [FAILED if reward is None else episode([reward]) for reward in rewards]
    return [experiences([response(one, seed=seed)]) for seed, one in enumerate(given)]


def test_failed_episodes_are_not_in_the_metrics_of_a_rollout() -> None:
    class Trainer(BasePPOTrainer):
        _compute_rollout_stats = rollout_stats(BasePPOTrainer._compute_rollout_stats)

    trainer = Trainer.__new__(Trainer)
    samples = [
        *(experiences([response(one, finish="length")]) for one in (episode([1.0]), FAILED)),
        experiences([response(episode([3.0]))]),
    ]
    result = trainer._compute_rollout_stats(samples)
    assert result == trainer._compute_rollout_stats([samples[0], samples[2]])
    assert result["rollout/reward_mean"] == 2.0
    assert result["rollout/num_samples"] == 2.0
    assert result["rollout/truncated_rate"] == 0.5


def test_failed_episodes_are_not_in_the_metrics_of_an_evaluation() -> None:
    module: Any = module_like()
    _hooks.install(module)
    samples = played_samples(1.0, None, None, None, 0.0, 0.5)
    prompts = ["a", "a", "b", "b", "c", "c"]
    for sample, prompt in zip(samples, prompts, strict=True):
        sample.prompts = [prompt]
    rows = [(["here"], [prompt], [""], [None]) for prompt in "abc"]
    logs = module.compute_eval_metrics(rows, samples, 2)
    assert logs["eval_here_pass1"] == pytest.approx((1.0 + 0.25) / 2)
    assert logs["eval_here_pass2"] == pytest.approx((1.0 + 0.5) / 2)
    assert logs["eval_num_samples"] == 4
    assert logs["eval_test_gem/error_rate"] == 0.5
    assert module.compute_eval_metrics(rows, samples[2:4], 2)["eval_test_gem/error_rate"] == 1.0


def test_the_length_of_an_evaluated_episode_is_that_of_all_its_rows() -> None:
    module: Any = module_like()
    _hooks.install(module)
    samples = played_samples(1.0, 0.0)
    setattr(samples[0], ROWS, played_samples(2.0, 3.0))
    for number, sample in enumerate([*samples, *getattr(samples[0], ROWS)]):
        sample.prompts, sample.response_length = ["a"], torch.tensor([10.0**number])
    logs = module.compute_eval_metrics([(["here"], ["a"], [""], [None])], samples, 1)
    assert logs["eval_here_response_length_mean"] == (1101 + 10) / 2
    assert float(samples[0].response_length) == 1


class Generator(SamplesGenerator):  # type: ignore[misc]
    """OpenRLHF's generator with GEM's hook and a stub of its engines.

    Args:
        prompts: Returns of the samples of each prompt; None means a failed episode.
        words: Further flags.
    """

    _generate_vllm = _failures.generate(SamplesGenerator._generate_vllm)
    _process_response_into_experience = _failures.process_response(
        SamplesGenerator._process_response_into_experience
    )

    def __init__(self, *prompts: tuple[float | None, ...], words: tuple[str, ...] = ()) -> None:
        samples = str(len(prompts[0]))
        self.args = parse(
            "--algo.dynamic_filtering_enable", "--rollout.n_samples_per_prompt", samples, *words
        )
        self.prompts = [([""], [str(n)], [""], [None]) for n in range(len(prompts))]
        self.answers = {
            str(n): [
                response(FAILED if total is None else episode([total - 1.0, 1.0]), seed=n)
                for total in returns
            ]
            for n, returns in enumerate(prompts)
        }

    def _dispatch_prompts_to_vllm(self, prompts: list[str], labels: Any, **unused: Any) -> list[str]:
        return list(prompts)

    def collect(self, number: int, loader: Any = None) -> list[int]:
        """Return the seeds of the samples that pass the filter; `loader` yields the prompts, or the rest."""
        with mock.patch.multiple(
            samples_generator.ray, wait=lambda refs, **_: (refs[:1], refs[1:]), get=self.answers.get
        ):
            kept, _, _ = self._generate_vllm(loader or iter(self.prompts), number, dynamic_filtering=True)
        return [played.episode.seed for sample in kept for played in map(played_of, sample.labels) if played]


def test_failed_episodes_are_not_in_the_dynamic_filter() -> None:
    """Samples of prompts 2, 4, and 5 differ; those of 0 and of 1 are alike, and all samples of 3 failed."""
    half = (None, 1.0, 0.0)
    generator = Generator((1.0, 1.0, None), (None, 0.0, None), half, (None, None, None), half, half)
    assert generator.collect(3) == [2, 2, 2, 4, 4, 4, 5, 5, 5]


@pytest.mark.parametrize(
    ("returns", "limits", "kept"),
    [
        ((0.2, 0.8), None, True),  # an environment with graded rewards, which reports no success
        ((0.0, 0.0), None, False),
        ((1.0, 1.0), None, False),
        ((0.9, 1.2), None, False),
        ((-0.5, 0.5), None, False),
        ((-0.5, 0.5), ("-1", "1"), True),
        ((-2.0, -1.0), ("-1", "1"), False),
        ((3.0, 4.0), ("3", "4"), True),
        ((4.0, 4.0), ("3", "4"), False),
        ((None, 0.4), None, True),
        ((None, -0.4), None, False),
    ],
)
def test_the_dynamic_filter_compares_the_mean_return(
    returns: tuple[float | None, ...], limits: tuple[str, str] | None, kept: bool
) -> None:
    words = ("--algo.dynamic_filtering_range", *limits) if limits else ()
    middle = sum(map(float, limits or ("0", "1"))) / 2
    assert (0 in Generator(returns, (middle, middle), words=words).collect(2)) == kept


def test_a_filter_that_drops_every_prompt_is_an_error() -> None:
    generator = Generator((-1.0, -0.5), (2.0, 3.0), (1.0, None), (0.0, 0.0))
    message = (
        r"all 4 prompts: .* between 0 and 1, .* from -0\.75 to 2\.5; set --algo\.dynamic_filtering_range"
    )
    with pytest.raises(ConfigError, match=message):
        generator.collect(2)
    passes = Generator((0.0, 1.0), *[(0.0, 0.0)] * 3)
    loader = iter(passes.prompts)
    assert [len(passes.collect(1, loader)) for _ in range(2)] == [2, 0]  # an epoch may end without a prompt


def test_failures_alone_do_not_use_up_the_dataset() -> None:
    fails: tuple[float | None, ...] = (None, None, None)
    generator = Generator(fails, (1.0, 0.0, 0.0), *[fails] * 9)
    with pytest.raises(EnvError, match=r"2 prompts in a row: .* 6 of 6 .* test with seed 2: "):
        generator.collect(2)


@pytest.mark.parametrize(
    ("name", "method"),
    [
        ("trainer.ppo_utils.samples_generator", "SamplesGenerator._generate_vllm"),
        ("trainer.ray.ppo_actor", "ActorPPOTrainer.ppo_train"),
        ("trainer.ray.ppo_actor", "ActorPPOTrainer.training_step"),
        ("trainer.ray.ppo_critic", "CriticPPOTrainer.training_step"),
    ],
)
def test_the_other_replacements_check_the_interface(name: str, method: str) -> None:
    original = importlib.import_module(f"openrlhf.{name}")
    kind, function = method.split(".")
    copy = types.ModuleType(original.__name__)
    setattr(copy, kind, type(kind, (getattr(original, kind),), {}))
    _hooks.install(copy)
    assert getattr(getattr(copy, kind), function) is not getattr(getattr(original, kind), function)
    setattr(copy, kind, type(kind, (getattr(original, kind),), {function: lambda self: None}))
    with pytest.raises(UnsupportedTrainer, match=rf"{method}.*Supported versions: openrlhf>="):
        _hooks.install(copy)

"""How the plugin gets into OpenRLHF's processes."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import types
from typing import Any

import gem_openrlhf
import pytest
from gem_openrlhf import hooks
from gem_openrlhf.experience_maker import GemExperienceMaker

from gem_core.errors import UnsupportedTrainer
from tests.advantages.oracle import episode
from tests.trainers.openrlhf.args import experiences
from tests.trainers.openrlhf.harness import CPU
from tests.trainers.openrlhf.test_estimators import response
from tests.trainers.processes import ROOT


def module_like(**changes: Any) -> types.ModuleType:
    """OpenRLHF's module with the two names, changed."""
    import openrlhf.trainer.ppo_trainer as original

    module = types.ModuleType("copy")
    for name in ("RemoteExperienceMaker", "compute_eval_metrics"):
        setattr(module, name, changes.get(name, getattr(original, name)))
    return module


def test_two_names_are_replaced() -> None:
    module: Any = module_like()
    hooks.install(module)
    assert module.RemoteExperienceMaker is GemExperienceMaker


def test_the_hook_waits_for_the_import(monkeypatch: pytest.MonkeyPatch) -> None:
    installed: list[types.ModuleType] = []
    monkeypatch.setattr(hooks, "install", installed.append)
    monkeypatch.setattr(hooks, "MODULE", "colorsys")
    monkeypatch.delitem(sys.modules, "colorsys", raising=False)
    hooks.setup()
    assert not installed
    import colorsys

    assert installed == [colorsys]
    hooks.setup()
    assert installed == [colorsys, colorsys]


@pytest.mark.parametrize("name", ["RemoteExperienceMaker", "compute_eval_metrics"])
def test_another_interface_is_refused(name: str) -> None:
    for other in (None, lambda samples: None):
        with pytest.raises(UnsupportedTrainer, match=rf"{name}.*supported versions of OpenRLHF: >="):
            hooks.install(module_like(**{name: other}))


def test_evaluation_gets_metrics_for_each_environment() -> None:
    def original(eval_dataloader: Any, samples_list: Any, n_samples_per_prompt: int) -> dict[str, float]:
        return {"theirs": 1.0}

    module: Any = module_like(compute_eval_metrics=original)
    hooks.install(module)
    samples = [experiences([response(episode(rewards))]) for rewards in ([1.0], [0.0, 3.0])]
    logs = module.compute_eval_metrics(None, samples, 1)
    assert logs["theirs"] == 1.0
    assert logs["eval_test_gem/return"] == 2.0
    assert logs["eval_test_gem/turns"] == 1.5


def test_unknown_names_say_what_there_is() -> None:
    with pytest.raises(AttributeError, match="GemExecutor"):
        gem_openrlhf.GemExecuter  # noqa: B018


WORKER = """
import inspect, json, sys
from gem_openrlhf import hooks
hooks.setup()
from ray import cloudpickle
kinds = [cloudpickle.loads(bytes.fromhex(line)) for line in sys.stdin.read().split()]
sync, generating, training = kinds
print(json.dumps([
    [base.__init__.__globals__["RemoteExperienceMaker"].__module__ for kind in (sync, training)
     for base in kind.__mro__ if base.__name__ == "BasePPOTrainer"],
    [inspect.unwrap(method).__globals__["compute_eval_metrics"].func.__module__
     for method in (sync.evaluate, generating._run_eval)],
]))
"""


def test_the_trainers_find_them_in_rays_workers() -> None:
    """Ray sends OpenRLHF's trainers by value, so what they refer to is looked up in the worker."""
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
    makers, metrics = json.loads(done.stdout.splitlines()[-1])
    assert makers == ["gem_openrlhf.experience_maker"] * 2
    assert metrics == ["gem_openrlhf.hooks"] * 2

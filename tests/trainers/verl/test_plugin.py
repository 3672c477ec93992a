"""How verl's processes load the plugin."""

from __future__ import annotations

import asyncio
import importlib
import json
import os
import subprocess
import sys
from importlib import metadata

import gem_verl
import gem_verl._trainer
import pytest
import ray
from gem_verl._options import read_options
from gem_verl._rows import verl_row
from gem_verl._trainer import GemTrainerSync
from gem_verl.dataset import GemDataset
from verl.trainer.ppo.v1.agent_loop_tq import AgentLoopManagerTQ
from verl.trainer.ppo.v1.trainer_sync import PPOTrainerSync
from verl.utils.import_utils import load_class_from_fqn
from verl.utils.tensordict_utils import get_tensordict

from gem_core.errors import ConfigError, UnknownEnv, UnsupportedTrainer
from gem_core.tasks import TaskRow
from tests.rollout.tokenizers import bpe_tokenizer
from tests.trainers.verl.configs import verl_config


def python(code: str, **env: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", code], env={**os.environ, **env}, capture_output=True, text=True, check=True
    )


FROM_SOURCE = (
    "from importlib import metadata\n"
    "real = metadata.version\n"
    "metadata.version = lambda name: '0.10.0.dev' if name == 'verl' else real(name)\n"
)


def test_the_entry_point_registers_where_verl_looks() -> None:
    """Check also that a newer verl with the same interface works, with one warning."""
    done = python(
        f"{FROM_SOURCE}"
        "import json, sys, verl\n"
        "early = 'gem_verl.estimators' in sys.modules\n"
        "from verl.trainer.ppo.core_algos import ADV_ESTIMATOR_REGISTRY\n"
        "from verl.trainer.ppo.v1 import get_trainer_cls\n"
        "names = ('gem_sync', 'gem_colocate_async', 'gem_separate_async')\n"
        "modes = [get_trainer_cls(name).__module__ for name in names]\n"
        "import verl.experimental.agent_loop.agent_loop as loops\n"
        "from gem_verl import GemAgentLoopManager\n"
        "agent_loop = loops._agent_loop_registry['gem']\n"
        "print(json.dumps([early, sorted(ADV_ESTIMATOR_REGISTRY), modes, agent_loop]))",
        VERL_USE_EXTERNAL_MODULES="tests.trainers.own_estimator",
    )
    early, names, modes, agent_loop = json.loads(done.stdout.splitlines()[-1])
    assert (early, set(modes)) == (False, {"gem_verl._trainer"})
    assert {"against_the_best", "gem_against_the_best"} <= set(names)
    assert {"rebn", "gem_rebn", "gem_grpo", "rae", "gem_gae"} <= set(names)
    assert agent_loop == {"_target_": "gem_verl._loop.GemAgentLoop"}
    assert done.stderr.count("gem_verl: verl 0.10.0.dev is newer than the tested versions") == 1


def test_the_manager_may_be_the_first_module_that_a_process_imports() -> None:
    done = python(
        "import gem_verl._manager\n"
        "from verl.trainer.ppo.v1 import get_trainer_cls\n"
        "print(get_trainer_cls('gem_sync').__module__)"
    )
    assert "cannot be imported" not in done.stdout + done.stderr
    assert done.stdout.splitlines()[-1] == "gem_verl._trainer"


def test_the_manager_class_alone_is_enough() -> None:
    done = python(
        "from verl.utils.import_utils import load_class_from_fqn\n"
        "from verl.experimental.agent_loop.agent_loop import _agent_loop_registry\n"
        "load_class_from_fqn('gem_verl.GemAgentLoopManager', 'AgentLoopManager')\n"
        "from verl.trainer.ppo.core_algos import get_adv_estimator_fn\n"
        "print(_agent_loop_registry['gem']['_target_'], get_adv_estimator_fn('rebn') is not None)",
        VERL_USE_EXTERNAL_PLUGINS="none",
    )
    assert done.stdout.splitlines()[-1] == "gem_verl._loop.GemAgentLoop True"


def test_the_manager_rejects_before_it_plays() -> None:
    manager = load_class_from_fqn("gem_verl.GemAgentLoopManager", "AgentLoopManager")
    with pytest.raises(ConfigError, match="trainer_mode=gem_sync"):
        manager(verl_config("algorithm.adv_estimator=rebn", "+gem.rows=turn"), None)
    made = manager(verl_config("algorithm.adv_estimator=rebn"), None)
    assert isinstance(made.agent_loop_workers_class, ray.actor.ActorClass)


def test_the_manager_checks_a_batch_before_it_is_played() -> None:
    manager = load_class_from_fqn("gem_verl.GemAgentLoopManager", "AgentLoopManager")
    made = manager(verl_config("algorithm.adv_estimator=rebn"), None)
    rows = [
        verl_row(TaskRow(env_id=env_id, env_kwargs={}, seed=1, index=0))
        for env_id in ("game:GuessTheNumber-v0", "game:GuesTheNumber-v0")
    ]
    names = [row["agent_name"] for row in rows]
    batch = get_tensordict({"agent_name": names, "extra_info": [row["extra_info"] for row in rows]})
    with pytest.raises(UnknownEnv, match="GuesTheNumber"):
        made.generate_sequences(batch)


def test_a_reward_model_that_would_replace_the_rewards_of_environments_is_rejected(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    model = ("algorithm.adv_estimator=rebn", "reward.reward_model.enable=True")
    ours = verl_row(TaskRow(env_id="game:GuessTheNumber-v0", env_kwargs={}, seed=1, index=0))
    rows = {"agent_name": [ours["agent_name"]], "extra_info": [ours["extra_info"]]}
    manager = load_class_from_fqn("gem_verl.GemAgentLoopManager", "AgentLoopManager")
    monkeypatch.setattr(AgentLoopManagerTQ, "generate_sequences", lambda self, prompts: None)
    with pytest.raises(ConfigError, match="would replace the rewards of the environments"):
        manager(verl_config(*model), None).generate_sequences(get_tensordict(rows))
    manager(verl_config(*model), None).generate_sequences(get_tensordict({**rows, "agent_name": ["other"]}))
    apart = verl_config(*model, "reward.reward_model.enable_resource_pool=True")
    manager(apart, None).generate_sequences(get_tensordict(rows))

    def load(self: GemTrainerSync) -> None:
        self.train_dataset = self.val_dataset = GemDataset("game:GuessTheNumber-v0")

    monkeypatch.setattr(PPOTrainerSync, "_init_dataloader", load)
    trainer = GemTrainerSync.__new__(GemTrainerSync)
    mode = "trainer.v1.trainer_mode=gem_sync"
    trainer.config, trainer.gem_options = verl_config(*model, mode), read_options({})
    trainer.tokenizer, trainer.processor = bpe_tokenizer("chatml"), None
    with pytest.raises(ConfigError, match="would replace the rewards of the environments"):
        trainer._init_dataloader()
    trainer.config = verl_config(*model, "reward.reward_model.enable_resource_pool=True", mode)
    trainer._init_dataloader()


@pytest.mark.parametrize(
    "program", ["one_step_off_policy.ray_trainer", "fully_async_policy.fully_async_rollouter"]
)
def test_verls_other_programs_are_rejected(program: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, f"verl.experimental.{program}", sys)
    with pytest.raises(
        ConfigError, match=r"GemDataset: gem_verl supports verl's v1 trainer only .*gem_separate_async"
    ):
        GemDataset("game:GuessTheNumber-v0")


def test_the_error_in_another_worker_names_what_the_agent_loop_needs() -> None:
    from gem_verl._loop import GemAgentLoop

    with pytest.raises(
        UnsupportedTrainer, match=r"gem needs .*agent_loop_manager_class=gem_verl.GemAgentLoopM"
    ):
        asyncio.run(GemAgentLoop.run(None, {}))


def test_another_interface_is_rejected_with_the_version(monkeypatch: pytest.MonkeyPatch) -> None:
    real = metadata.version
    monkeypatch.setattr(metadata, "version", lambda name: "0.99" if name == "verl" else real(name))
    monkeypatch.setattr(PPOTrainerSync, "_step_once", lambda self, metrics: None)
    with pytest.raises(UnsupportedTrainer) as caught:
        importlib.reload(gem_verl._trainer)  # what the first import does
    message = str(caught.value)
    assert message.startswith("gem_verl: verl 0.99 has another interface: ")
    assert "._step_once takes (self, metrics): expected (self, metrics, timing_raw, sample_bat" in message
    assert message.endswith("Supported versions: verl>=0.9.1,<0.10")


def test_a_version_that_counts_failed_episodes_of_a_validation_is_rejected(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(gem_verl._SUPPORTED.__class__, "installed_version", lambda self: "0.9.0")
    problem = gem_verl._SUPPORTED.problem()
    assert problem == (
        "verl 0.9.0 is not supported; supported versions: >=0.9.1,<0.10 "
        "(0.9.0 has no validation metrics that skip an episode without a value)"
    )


def test_unknown_names_list_what_exists() -> None:
    with pytest.raises(AttributeError, match="GemAgentLoopManager"):
        gem_verl.GemAgentLopManager  # noqa: B018

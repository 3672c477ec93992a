"""Your own environment, trained by any of six trainers with ReBN.

    python own_env.py               # play it here: no trainer, no GPU
    python own_env.py train verl    # write what the trainer needs, and print the command that trains it

Append your own options to the printed command. The trainer's processes import this file: its folder is on
their path, and the command names the module.
"""

from __future__ import annotations

import json
import os
import shlex
import sys
from pathlib import Path
from random import Random

import gem_core
from gem_core.tasks import EnvChoice, make_tasks
from gem_envs import MoveResult, MoveVerdict, TurnBasedEnv
from gem_lab import load_trainer

ID = "example:Doubling"


class Doubling(TurnBasedEnv[int]):
    """A game of doubling a number three times: the last double wins, and a wrong answer loses."""

    state_fields = (*TurnBasedEnv.state_fields, "number")

    def new_game(self) -> None:
        """Draw a number from 1 to 9."""
        self.turn_limit = 3
        self.number = self.random.randint(1, 9)

    def rules(self) -> str:
        """Return the first observation."""
        return f"Start with {self.number}. Answer with its double in \\boxed{{}}, three times in a row."

    def parse(self, text: str) -> int | None:
        """Read a whole number; None if the text is not one."""
        return int(text) if text.isdecimal() and len(text) < 10 else None

    def play(self, move: int) -> MoveResult:
        """Pay a third of the reward for each double."""
        if move != 2 * self.number:
            return f"Wrong, the double of {self.number} is {2 * self.number}.", 0.0, "lost"
        self.number = move
        verdict: MoveVerdict = "solved" if self.turn == self.turn_limit else "continue"
        return f"Right. Now double {move}.", 1 / 3, verdict

    def random_move(self, random: Random) -> str:
        """Return any number."""
        return str(random.randint(1, 80))

    def best_move(self) -> str:
        """Return the double."""
        return str(2 * self.number)


gem_core.register(ID, Doubling)

FOLDER, MODULE = Path(__file__).resolve().parent, Path(__file__).stem
DATA = "doubling.jsonl"

VERL = [
    "python", "-m", "verl.trainer.main_ppo",
    "algorithm.adv_estimator=rebn",
    "algorithm.gamma=0.9",
    "trainer.v1.trainer_mode=gem_sync",
    "data.custom_cls.path=pkg://gem_verl.dataset",
    "data.custom_cls.name=GemDataset",
    f"data.train_files=['{ID}']",
    f"data.val_files=['{ID}']",
    "data.train_batch_size=64",
    "data.max_prompt_length=512",
    "data.max_response_length=1024",
    "actor_rollout_ref.model.path=Qwen/Qwen3-1.7B",
    "actor_rollout_ref.actor.ppo_mini_batch_size=64",
    "actor_rollout_ref.actor.use_dynamic_bsz=True",
    "actor_rollout_ref.rollout.log_prob_use_dynamic_bsz=True",
    "actor_rollout_ref.rollout.name=vllm",
    "actor_rollout_ref.rollout.n=2",
    "actor_rollout_ref.rollout.tensor_model_parallel_size=1",
    "trainer.n_gpus_per_node=1",
    "+gem.max_tokens_per_turn=256",
]  # fmt: skip
OPENRLHF = [
    "python3", "-m", "gem_openrlhf.train_ppo_ray",
    "--algo.advantage.estimator", "rebn",
    "--algo.advantage.gamma", "0.9",
    "--data.prompt_dataset", DATA,
    "--data.input_key", "input",
    "--data.label_key", "label",
    "--actor.model_name_or_path", "Qwen/Qwen3-1.7B",
    "--actor.num_gpus_per_node", "1",
    "--vllm.num_engines", "1",
    "--algo.kl.init_coef", "0",
    "--data.max_len", "1536",
    "--rollout.max_new_tokens", "256",
    "--rollout.batch_size", "64",
    "--rollout.n_samples_per_prompt", "2",
    "--train.agent_func_path", str(FOLDER / f"{MODULE}.py"),
]  # fmt: skip
OAT = [
    "python", "-m", "gem_oat.train",
    "--env-id", ID,
    "--modules", MODULE,
    "--gamma", "0.9",
    "--gpus", "1",
    "--collocate",
    "--vllm_gpu_ratio", "0.35",
    "--pretrain", "Qwen/Qwen3-0.6B",
    "--max_model_len", "4096",
    "--generate_max_length", "512",
    "--rollout_batch_size", "128",
    "--rollout_batch_size_per_device", "128",
    "--train_batch_size", "128",
    "--train_batch_size_per_device", "1",
    "--num-env", "16",
    "--learning_rate", "1e-6",
    "--beta", "0",
    "--max_train", "25600",
]  # fmt: skip
RL2 = [
    "torchrun", "--nproc_per_node=1", "-m", "gem_rl2.train",
    "adv.estimator=rebn",
    "adv.gamma=0.9",
    f"rollout.train.path={DATA}",
    "rollout.train.prompts_per_rollout=64",
    "rollout.train.sampling_params.max_new_tokens=256",
    "actor.model_name=Qwen/Qwen3-1.7B",
    "actor.max_length_per_device=8192",
    "trainer.project=gem",
    "trainer.experiment_name=doubling",
    "trainer.total_steps=200",
    f"+gem.modules=[{MODULE}]",
]  # fmt: skip
TRL = [
    "accelerate", "launch", "-m", "gem_trl.grpo",
    "--gem_env", ID,
    "--gem_modules", MODULE,
    "--gem_gamma", "0.9",
    "--gem_max_tokens_per_turn", "256",
    "--model_name_or_path", "Qwen/Qwen3-1.7B",
    "--output_dir", "doubling",
    "--use_vllm", "true",
    "--max_completion_length", "1024",
    "--learning_rate", "1e-6",
    "--max_steps", "200",
]  # fmt: skip
ROLL = {
    "defaults": ["rebn", "_self_"],  # integrations/roll/examples/rebn.yaml
    "exp_name": "gem_own_env",
    "custom_envs": {
        "gem": {"modules": [MODULE]},
        "Doubling": {
            "env_type": f"gem_core:{ID}",
            "env_manager_cls": "gem_roll.GemTrajEnvManager",
            "max_steps": 3,
            "max_tokens_per_step": 256,
            "agent_system_template": None,
            "agent_template": "{observation}",
        },
    },
    "train_env_manager": {"tags": ["Doubling"], "num_groups_partition": [64]},
    "val_env_manager": {"tags": ["Doubling"], "num_groups_partition": [128]},
}


def __getattr__(name: str) -> object:
    """Return the `AgentExecutor` that OpenRLHF's rollout workers look for in this file."""
    if name == "AgentExecutor":
        from gem_openrlhf import GemExecutor

        return GemExecutor
    raise AttributeError(name)


def play() -> None:
    """Play one episode with the best player."""
    env = gem_core.make(ID)
    observation, _ = env.reset(seed=0)
    done = False
    while not done:
        action = env.oracle_action()
        print(f"{observation}  ->  {action}")
        observation, reward, terminated, truncated, _ = env.step(action or "")
        done = terminated or truncated
    print(f"last reward {reward:.2f}")


def train(trainer: str) -> str:
    """Write what the trainer reads, and return its command line.

    Args:
        trainer: "verl", "openrlhf", "oat", "rl2", "roll", or "trl"; ROLL needs its checkout in ``ROLL_HOME``.
    """
    path = [str(FOLDER)]
    variables = {}
    if trainer == "verl":
        command, variables = VERL, {"VERL_USE_EXTERNAL_MODULES": MODULE}
    elif trainer == "openrlhf":
        load_trainer("openrlhf").load("exporter")(make_tasks([EnvChoice(ID)], 10_000), DATA)
        command = OPENRLHF
    elif trainer == "oat":
        command = OAT
    elif trainer == "rl2":
        load_trainer("rl2").load("exporter")(make_tasks([EnvChoice(ID)], 10_000), DATA)
        command = RL2
    elif trainer == "trl":
        command = TRL
    elif trainer == "roll":
        home = os.environ["ROLL_HOME"]
        configs = FOLDER.parent / "roll" / "examples"
        (configs / "own_env.yaml").write_text(json.dumps(ROLL, indent=1) + "\n")
        place = os.path.relpath(configs, Path(home).resolve() / "examples")
        command = ["python", "examples/start_agentic_pipeline.py"]
        command += ["--config_path", place, "--config_name", "own_env"]
        path.insert(0, home)
    else:
        raise SystemExit(f"unknown trainer {trainer!r}; choose verl, openrlhf, oat, rl2, roll, or trl")
    variables = {"PYTHONPATH": ":".join(path), **variables}
    return " ".join(
        [*(f"{name}={shlex.quote(value)}" for name, value in variables.items()), shlex.join(command)]
    )


if __name__ == "__main__":
    if sys.argv[1:2] == ["train"]:
        print(train(*sys.argv[2:]))
    else:
        play()

"""TRL's own tool loop plays environments, in the stock GRPOTrainer.

Only the engine is replaced: `Engine` answers with the tool calls of a script instead of sampling.
"""

from __future__ import annotations

import inspect
import json
import re
from pathlib import Path
from typing import Any

import pytest
import torch
from gem_trl import GemConfig, GemGRPOTrainer, environment
from gem_trl._tool_loop import OVER, ToolEnvironment
from trl import GRPOConfig, GRPOTrainer
from trl.chat_template_utils import qwen3_chat_template

import gem_core
from gem_core.errors import ConfigError
from gem_core.tasks import EnvChoice, make_tasks
from tests.rollout.tokenizers import bpe_tokenizer
from tests.support import ForgingEnv
from tests.trainers.spies import gem_script, gem_spy, gem_trouble

GAME = "game:GuessTheNumber-v0-easy"
SAMPLES = 2


@pytest.fixture(autouse=True)
def registered() -> None:
    gem_script.register()
    gem_spy.register()
    gem_trouble.register()


def call(action: str) -> str:
    return "<tool_call>\n" + json.dumps({"name": "act", "arguments": {"action": action}}) + "\n</tool_call>"


def best_moves(seed: int) -> list[str]:
    env = gem_core.make(GAME)
    env.reset(seed=seed)
    moves, done = [], False
    while not done:
        moves.append(env.oracle_action() or "")
        done = any(env.step(moves[-1])[2:4])
    return moves


class Engine:
    """Answers each prompt with the next text for its task and sample; prompts name their task."""

    def __init__(self, tokenizer: Any, texts: dict[int, list[list[str]]]) -> None:
        self.tokenizer, self.texts = tokenizer, texts
        self.begun: dict[int, int] = {}
        self.prompts: list[str] = []
        self.answers: list[list[int]] = []

    def __call__(self, prompt_ids: list[list[int]], *args: Any, **options: Any) -> Any:
        answers = []
        for ids in prompt_ids:
            prompt = self.tokenizer.decode(ids)
            seed = int(re.search(r"Task (\d+)\.", prompt)[1])  # type: ignore[index]
            turn = prompt.count("<tool_response>")
            if turn == 0:
                sample = self.begun[seed] = self.begun.get(seed, -1) + 1
            else:  # the sample is the one whose texts are in the prompt
                (sample,) = [
                    index
                    for index, texts in enumerate(self.texts[seed])
                    if len(texts) > turn and all(text in prompt for text in texts[:turn])
                ]
            text = self.texts[seed][sample][turn]
            answers.append(self.tokenizer.encode(text + "<|im_end|>", add_special_tokens=False))
            self.prompts.append(prompt)
        self.answers += answers
        return answers, None


class Watched(GRPOTrainer):  # type: ignore[misc]
    """Keeps the batches of the loss."""

    def _generate_and_score_completions(self, inputs: Any) -> Any:
        self.batch = super()._generate_and_score_completions(inputs)
        return self.batch


def tokenizer_with_tools() -> Any:
    return bpe_tokenizer("qwen3", qwen3_chat_template)


def trainer(
    folder: Path,
    dataset: Any,
    factory: Any,
    *,
    kind: Any = Watched,
    reward_funcs: Any = None,
    gem: GemConfig | None = None,
    **options: Any,
) -> Any:
    from transformers import LlamaConfig, LlamaForCausalLM

    tokenizer = tokenizer_with_tools()
    config = LlamaConfig(
        vocab_size=len(tokenizer), hidden_size=16, intermediate_size=16, num_hidden_layers=1,
        num_attention_heads=2, max_position_embeddings=4096, pad_token_id=tokenizer.pad_token_id,
        eos_token_id=tokenizer.eos_token_id,
    )  # fmt: skip
    settings: dict[str, Any] = {
        "output_dir": str(folder), "per_device_train_batch_size": len(dataset) * SAMPLES,
        "num_generations": SAMPLES, "max_completion_length": 3000, "max_steps": 1, "use_cpu": True,
        "bf16": False, "gradient_checkpointing": False, "report_to": "none", "save_strategy": "no",
        "disable_tqdm": True, "shuffle_dataset": False, "logging_steps": 1,
    }  # fmt: skip
    more = {} if gem is None else {"gem": gem, "reward_funcs": reward_funcs}
    return kind(
        LlamaForCausalLM(config),
        args=GRPOConfig(**settings | options),
        train_dataset=dataset,
        processing_class=tokenizer,
        environment_factory=factory,
        **more,
    )


def rows(batch: dict[str, torch.Tensor]) -> list[tuple[list[int], list[int]]]:
    """Return the completion and its mask of each row, in the order of the rollout."""
    found = []
    for ids, on, own in zip(
        batch["completion_ids"], batch["completion_mask"], batch["tool_mask"], strict=True
    ):
        width = int(on.sum())
        found.append((ids[:width].tolist(), own[:width].tolist()))
    return found


def test_the_stock_trainer_plays_an_environment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Solve a task, guess wrongly once, act after the end, and answer without a call."""
    monkeypatch.setenv("TRL_EXPERIMENTAL_SILENCE", "1")
    Guess = environment(GAME, wrappers="named")
    data = Guess.dataset(2)
    seeds = data["seed"]
    moves = {seed: best_moves(seed) for seed in seeds}
    texts = {
        seeds[0]: [[*map(call, moves[seeds[0]]), call("again"), "Done."], ["I do not call the tool."]],
        seeds[1]: [[call("no number"), "I give up."], [*map(call, moves[seeds[1]]), "Done."]],
    }
    made = trainer(tmp_path, data, Guess)
    engine = Engine(made.processing_class, texts)
    monkeypatch.setattr(made, "_generate_single_turn", engine)
    made.train()
    wrong = gem_core.make(GAME)
    wrong.reset(seed=seeds[1])
    penalty = wrong.step("no number")[1]
    returns = torch.tensor([[1.0, 0.0], [penalty, 1.0]])
    assert len(set(returns.flatten().tolist())) == 3
    wanted = (returns - returns.mean(1, keepdim=True)) / (returns.std(1, keepdim=True) + 1e-4)
    torch.testing.assert_close(made.batch["advantages"], wanted.flatten())
    logged = made.state.log_history[0]
    assert logged[f"rewards/{GAME}/mean"] == pytest.approx(float(returns.mean()))
    assert logged["tools/failure_frequency"] == 0
    assert any(OVER in prompt for prompt in engine.prompts)
    first = [prompt for prompt in engine.prompts if "<tool_response>" not in prompt]
    assert first[0] == first[1] != first[2] == first[3]  # the samples of a group play the same task
    sampled = sorted(token for answer in engine.answers for token in answer)
    kept = sorted(token for ids, own in rows(made.batch) for token, on in zip(ids, own, strict=True) if on)
    assert kept == sampled
    assert [made.environments[n].success for n in range(4)] == [True, False, False, True]
    assert made.environments[0].turns == len(moves[seeds[0]])


def test_a_failed_episode_has_no_reward(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TRL_EXPERIMENTAL_SILENCE", "1")
    Raises, Endless = (environment(f"test:{name}", wrappers="named") for name in ("Raises", "Endless"))
    from datasets import concatenate_datasets

    data = concatenate_datasets([Raises.dataset(1), Endless.dataset(1, seed=1)])
    again = [call("one"), call("two"), "Done."]
    texts = {seed: [again, ["Nothing."]] for seed in data["seed"]}
    made = trainer(tmp_path, data, {kind.__name__: kind for kind in (Raises, Endless)})
    monkeypatch.setattr(made, "_generate_single_turn", Engine(made.processing_class, texts))
    made.train()
    torch.testing.assert_close(
        made.batch["advantages"].sign(), torch.tensor([0.0, 0.0, 1.0, -1.0])
    )  # the failed one, the only other sample of its task, and two that can be compared
    assert made.state.log_history[0]["rewards/test:Endless/mean"] == 1.5


def test_an_estimator_of_gem_core_sees_the_turns_of_the_tool_loop(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The reward is that of the last turn; the answers of the tool are outside of the loss."""
    Guess = environment(GAME, wrappers="named")
    data = Guess.dataset(2)
    moves = {seed: best_moves(seed) for seed in data["seed"]}
    texts = {seed: [[*map(call, moves[seed]), "Done."], [call("no"), "I give up."]] for seed in moves}

    class Turns(Watched, GemGRPOTrainer):
        pass

    def tokens(completion_ids: Any, **_: Any) -> list[float]:
        return [float(len(ids)) for ids in completion_ids]

    made = trainer(
        tmp_path,
        data,
        Guess,
        kind=Turns,
        reward_funcs=[tokens],
        gem=GemConfig(estimator="reinforce", gamma=0.5),
    )
    monkeypatch.setattr(made, "_generate_single_turn", Engine(made.processing_class, texts))
    made.train()
    batch, counts = (
        made.batch,
        [len(moves[seed]) + 1 if good else 2 for seed in moves for good in (True, False)],
    )
    assert len(set(counts)) > 1
    for index, count in enumerate(counts):
        width = int(batch["completion_mask"][index].sum())
        own = batch["tool_mask"][index][:width].tolist()
        starts = [n for n, on in enumerate(own) if on and not (n and own[n - 1])]
        assert len(starts) == count
        values = batch["advantages"][index][:width].tolist()
        # TRL adds the environment's own reward, that of the episode, to the reward function's.
        total = width + made._scores[index, -1].item()
        assert [values[n] for n in starts] == pytest.approx(
            [total * 0.5 ** (count - 1 - t) for t in range(count)]
        )
        assert not any(value for value, on in zip(values, own, strict=True) if not on)


def test_a_slot_is_reused() -> None:
    slot = environment(GAME)()
    task, other = ({**task} for task in make_tasks([EnvChoice(GAME)], 2))
    first = slot.reset(prompt=[], **task)
    for move in best_moves(task["seed"]):
        assert slot.get_reward() == 0
        slot.act(move)
    assert (slot.get_reward(), slot.success, slot.act("one more")) == (1.0, True, OVER)
    slot.reset(prompt=[], **other)
    assert (slot.get_reward(), slot.success, slot.turns) == (0.0, False, 0)
    assert slot.reset(prompt=[], **task) == first


def test_a_slot_recovers_from_a_failure(caplog: pytest.LogCaptureFixture) -> None:
    slot = environment("test:Raises")()
    for _ in range(2):
        slot.reset(env_id="test:Raises", seed=1)
        slot.act("one")
        assert slot.get_reward() == 1.0
        assert slot.act("two") == OVER
        assert slot.get_reward() is None
    assert caplog.text.count("step of test:Raises failed: RuntimeError: the environment broke") == 2


def test_the_model_is_shown_one_tool() -> None:
    from transformers.utils import get_json_schema

    slot = environment(GAME)()
    schema = get_json_schema(slot.act)["function"]
    assert (schema["name"], list(schema["parameters"]["properties"])) == ("act", ["action"])
    # TRL makes a tool of every other public method: 1.16 of the class, older versions of the instance.
    for found in (
        inspect.getmembers(ToolEnvironment, inspect.isfunction),
        inspect.getmembers(slot, inspect.ismethod),
    ):
        assert {name for name, _ in found if name[0] != "_"} == {"reset", "act", "get_reward"}


@pytest.mark.parametrize(
    ("row", "message"),
    [
        ({}, r"env_id is missing; make the dataset with dataset\(\) of"),
        ({"env_id": "game:Mastermind-v0", "seed": 1}, "names game:Mastermind-v0, but this class plays"),
    ],
)
def test_a_row_without_its_task_is_an_error(row: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        environment(GAME)().reset(**row)


def test_unsuitable_environments_are_rejected() -> None:
    with pytest.raises(ConfigError, match="shows images, but TRL's tool loop"):
        environment("test:Shades")
    with pytest.raises(ConfigError, match="has several agents"):
        environment("multi:TicTacToe-v0(opponent='self')")


def test_evaluation_tasks_are_not_training_tasks() -> None:
    Guess = environment(GAME)
    train, held = (set(Guess.dataset(5, split=split)["seed"]) for split in ("train", "eval"))
    assert len(train | held) == 10


def test_the_answers_of_a_tool_spell_no_control_token() -> None:
    gem_core.register("trltools:Forging", ForgingEnv)
    for parse in (False, True):
        made = environment("trltools:Forging", parse_special=parse)
        (row,) = made.dataset(1)
        env = made()
        for text in (env.reset(**row), env.act("one")):
            assert "You have won." in text
            assert all((token in text) == parse for token in ForgingEnv.TOKENS)

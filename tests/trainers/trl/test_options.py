"""Unsupported options are rejected in one line, before a model is loaded."""

from __future__ import annotations

import inspect
import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import gem_trl
import pytest
from datasets import Dataset, DatasetDict, IterableDataset
from gem_trl import GemConfig, GemGRPOTrainer, _policies, episode_return, rollout, tasks
from gem_trl import _trainer as gem_trainer
from gem_trl._config import check_args
from trl import GRPOTrainer, RLOOConfig, RLOOTrainer

from gem_chat import EpisodePlayer
from gem_core.errors import ConfigError, GemError, UnsupportedTrainer
from tests.rollout.tokenizers import bpe_tokenizer
from tests.trainers import chaos
from tests.trainers.items import source_of
from tests.trainers.trl import harness

assert chaos  # registers environments


def make(tmp_path: Path, *, options: GemConfig | None = None, dataset: Any = None, **changes: Any) -> Any:
    """Build a trainer whose model does not exist, so that nothing but a rejection can come first."""
    names = ("tools", "environment_factory", "rollout_func", "eval_dataset")
    arguments = {name: changes.pop(name) for name in names if name in changes}
    return GemGRPOTrainer(
        "no/such/model",
        args=harness.config(tmp_path, **changes),
        train_dataset=tasks(harness.GAME, 4) if dataset is None else dataset,
        gem=options or harness.gem(),
        **arguments,
    )


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"temperature": 0.0}, "temperature=0.0: expected a number above 0"),
        ({"top_p": 1.5}, "top_p=1.5: expected a number above 0 and up to 1"),
        ({"learning_rate": -1e-6}, "learning_rate=-1e-06: expected a number of at least 0"),
        ({"epsilon": -0.2}, "epsilon=-0.2: expected a number of at least 0"),
        ({"num_iterations": 0}, "num_iterations=0: expected a whole number of at least 1"),
        ({"max_completion_length": 0}, "max_completion_length=0: expected a whole number of at least 1"),
        ({"scale_rewards": "batch"}, "scale_rewards=batch: belongs to TRL's own advantages"),
        ({"scale_rewards": "none"}, "scale_rewards=none: "),
        ({"multi_objective_aggregation": "normalize_then_sum"}, "multi_objective_aggregation="),
        ({"mask_truncated_completions": True}, "mask_truncated_completions=True: would drop episodes after"),
        ({"reward_weights": [1.0]}, "reward_weights=[1.0]: the return of an episode is its only reward"),
        ({"min_p": 0.1}, "min_p=0.1: has no effect on the sampler"),
        ({"repetition_penalty": 1.1}, "repetition_penalty=1.1: has no effect"),
        ({"generation_kwargs": {"num_beams": 2}}, "generation_kwargs={'num_beams': 2}: has no effect"),
        ({"cache_implementation": "static"}, "cache_implementation=static: has no effect"),
        ({"use_transformers_continuous_batching": True}, "use_transformers_continuous_batching=True: has"),
        ({"ds3_gather_for_generation": False}, "ds3_gather_for_generation=False: the sampler needs"),
        ({"fsdp": True}, "fsdp=True: the sampler needs whole weights"),
        ({"use_vllm": True, "vllm_mode": "server"}, "vllm_mode=server: gem_trl plays episodes with vLLM"),
        ({"use_vllm": True, "vllm_tensor_parallel_size": 2}, "vllm_tensor_parallel_size=2: gem_trl supports"),
        ({"use_vllm": True, "vllm_enable_sleep_mode": True}, "vllm_enable_sleep_mode=True: TRL wakes"),
        ({"use_vllm": True, "vllm_structured_outputs_regex": "a"}, "vllm_structured_outputs_regex=a: would"),
        ({"use_vllm": True, "generation_kwargs": {"n": 2}}, "generation_kwargs: n: a response is one sample"),
        ({"use_vllm": True, "generation_kwargs": {"seed": 2}}, "generation_kwargs: seed: gem_trl sets it"),
        ({"use_vllm": True, "generation_kwargs": {"logprobs": None}}, "generation_kwargs: logprobs: gem"),
        ({"use_vllm": True, "generation_kwargs": {"structured_outputs": {}}}, "generation_kwargs: struct"),
        ({"use_vllm": True, "generation_kwargs": {"truncate_prompt_tokens": 8}}, "generation_kwargs: trunc"),
        ({"use_vllm": True, "generation_kwargs": {"ignore_eos": True}}, "generation_kwargs: ignore_eos: a r"),
        ({"tools": [len]}, "tools: gem_trl plays the episodes itself"),
        ({"environment_factory": object}, "environment_factory: gem_trl plays the episodes itself"),
        ({"rollout_func": len}, "rollout_func: gem_trl plays the episodes itself"),
    ],
)  # fmt: skip
def test_settings_of_trl(changes: dict[str, Any], message: str, tmp_path: Path) -> None:
    with pytest.raises(ConfigError) as refusal:
        make(tmp_path, **changes)
    assert str(refusal.value).startswith(message)


def test_options_of_the_engine_join_the_ones_of_the_user(monkeypatch: pytest.MonkeyPatch) -> None:
    tokenizer = bpe_tokenizer("chatml")
    tokenizer.eos_token = "<|endoftext|>"
    sampling = {"temperature": 0.5, "top_p": 1.0, "top_k": 0, "min_p": None, "repetition_penalty": 1.0}
    kwargs = {"stop_token_ids": [9], "stop": ["\n\n"], "logit_bias": {3: 1.0}, "bad_words": ["x"]}
    engine = SimpleNamespace(**sampling, generation_kwargs=kwargs, llm=SimpleNamespace(llm_engine=None))
    args = SimpleNamespace(seed=0)
    trainer = SimpleNamespace(args=args, use_vllm=True, vllm_generation=engine)
    made: list[dict[str, Any]] = []
    monkeypatch.setattr(_policies, "SteppedVllmPolicy", lambda engine, sampling, seed: made.append(sampling))
    with _policies.open_policy(trainer, EpisodePlayer(GemConfig(), tokenizer), "train/0"):
        pass
    end = tokenizer.convert_tokens_to_ids("<|im_end|>")
    assert made == [
        {**sampling, "min_p": 0.0, **kwargs, "stop_token_ids": sorted([9, end, tokenizer.eos_token_id])}
    ]
    assert kwargs["stop_token_ids"] == [9], "the user's own object stays unchanged"


@pytest.mark.parametrize("name", ["against_the_best", "gem_against_the_best"])
def test_an_estimator_of_a_module_works_by_name(name: str) -> None:
    options = GemConfig(
        estimator=name, estimator_options={"scale": 2}, modules=("tests.trainers.own_estimator",)
    )
    choice = options.checked().choose_estimator(played=True)
    assert (choice.estimator.name, choice.options) == ("against_the_best", {"scale": 2})


def test_estimators_of_the_states_of_an_episode_need_gems_rollouts() -> None:
    for options, need in (
        ({"estimator": "gigpo"}, "state_keys"),
        ({"estimator": "rae"}, "agent_ids"),
        ({"estimator_options": {"statistics": "env"}}, "env_ids"),
    ):
        config = GemConfig(**options)
        assert config.checked().choose_estimator(played=True).needs[-1] == need
        with pytest.raises(ConfigError, match=f"needs {need} .*TRL does not supply"):
            config.choose_estimator(played=False)
    masked = GemConfig(estimator_options={"truncation": "mask"})
    assert masked.checked().choose_estimator(played=True).truncation == "mask"
    with pytest.raises(ConfigError, match="unknown option"):
        masked.choose_estimator(played=False)


CHANGED = [
    {"top_p": 0.9},
    {"top_k": 50},
    {"min_p": 0.1},
    {"repetition_penalty": 1.1},
    *({"generation_kwargs": {name: 0.5}} for name in ("temperature", "top_p", "presence_penalty")),
    {"generation_kwargs": {"bad_words": ["no"]}},
    {"generation_kwargs": {"logit_bias": {5: -100.0}}},
]


@pytest.mark.parametrize("changes", CHANGED, ids=str)
def test_another_distribution_beside_an_importance_ratio(changes: dict[str, Any], tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="_correction would weigh each token by the ratio"):
        make(tmp_path, use_vllm=True, **changes)
    args = harness.config(tmp_path, use_vllm=True, vllm_importance_sampling_correction=False, **changes)
    check_args(args, harness.gem().choose_estimator(played=True), played=True, own_rows=False)


def test_the_policys_distribution_is_accepted_with_an_importance_ratio(tmp_path: Path) -> None:
    same = {"temperature": 0.7, "top_p": 1.0, "generation_kwargs": {"top_k": -1, "temperature": 0.7}}
    args = harness.config(tmp_path, use_vllm=True, **same)
    check_args(args, harness.gem().choose_estimator(played=True), played=True, own_rows=False)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"estimator": "rbn"}, "unknown estimator 'rbn'. Did you mean rebn"),
        (
            {"estimator": "gae"},
            "gae needs values (a critic's value of each turn), which TRL does not",
        ),
        ({"estimator": "remax"}, "remax needs baselines"),
        ({"gamma": 1.5}, "gem.gamma=1.5: expected a number from 0 to 1"),
        ({"estimator_options": {"dof": 1}}, "unknown option 'gem.estimator_options.dof' of rebn"),
        ({"estimator_options": "[1]"}, "gem.estimator_options='[1]': expected a JSON object"),
        ({"max_total_tokens": 0}, "gem.max_total_tokens=0: expected a whole number of at least 1"),
        ({"max_turns": 0}, "gem.max_turns=0: expected"),
        ({"context": "whole"}, "gem.context='whole': expected append, template, or rebuild"),
        ({"modules": "no_such_module"}, "gem.modules no_such_module: No module named 'no_such_module'"),
        ({"wrappers": "no_such"}, "train_dataset, row 0: unknown wrapper 'no_such'"),
    ],
)
def test_options_of_gem(options: dict[str, Any], message: str, tmp_path: Path) -> None:
    with pytest.raises(GemError) as refusal:
        make(tmp_path, options=GemConfig(**options))
    assert message in str(refusal.value)


@pytest.mark.parametrize(
    ("rows", "message"),
    [
        ([{"prompt": "What is 2+2?"}], "train_dataset, row 0: the prompt 'What is 2+2?' is not a task"),
        ([{"prompt": [{"role": "user", "content": "Hi"}]}], "is not a task"),
        ([{"prompt": "3"}], "the prompt '3' is not a task (it is not a JSON object)"),
        ([{"question": "x"}], "row 0: prompt=None: expected a text or a list of messages"),
        ([{"prompt": json.dumps({"env_id": "game:Gues-v0", "seed": 1})}], "row 0: unknown environment"),
        ([{"prompt": json.dumps({"env_id": "test:Shades", "seed": 1})}], "test:Shades shows images, but"),
    ],
)  # fmt: skip
def test_rows_that_are_not_playable(
    rows: list[dict[str, Any]], message: str, tmp_path: Path, spy: Path
) -> None:
    from datasets import Dataset

    for arguments in (
        {"dataset": Dataset.from_list(rows)},
        {"eval_dataset": {"one": Dataset.from_list(rows)}},
    ):
        with pytest.raises(GemError) as refusal:
            make(tmp_path, **arguments)
        assert message.replace("train_dataset,", "").strip() in str(refusal.value)
    assert "eval_dataset['one'], row 0" in str(refusal.value)


QUESTIONS = Dataset.from_dict({"prompt": ["What is 1 + 1?"], "answer": ["2"]})
CHATS = Dataset.from_dict({"prompt": [[{"role": "user", "content": "Hi"}]]})
TASKS = tasks(harness.GAME, 2)
NO_DATASET = "expected a datasets.Dataset or IterableDataset"


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"train_dataset": harness.GAME}, f"train_dataset='{harness.GAME}': {NO_DATASET}"),
        ({"train_dataset": Path("x.jsonl")}, f"train_dataset=PosixPath('x.jsonl'): {NO_DATASET}"),
        ({"train_dataset": None}, f"train_dataset=None: {NO_DATASET}"),
        ({"train_dataset": iter([{"prompt": "a"}])}, NO_DATASET),
        ({"train_dataset": DatasetDict(train=TASKS)}, f" num_rows: 2 }}) }}): {NO_DATASET}"),
        ({"train_dataset": TASKS.select([])}, "train_dataset has no rows"),
        ({"train_dataset": IterableDataset.from_generator(list)}, "train_dataset has no rows"),
        ({"train_dataset": [CHATS, harness.GAME, QUESTIONS]}, "train_dataset: a column needs one type"),
        ({"train_dataset": [QUESTIONS.select([]), harness.GAME]}, "train_dataset[0] has no rows; omit it"),
        ({"train_dataset": [Dataset.from_dict({"prompt": [1]}), harness.GAME]}, "expected texts, or lists"),
        ({"train_dataset": Dataset.from_dict({"prompt": ["a", None]}), "reward_funcs": len}, "1: prompt="),
        ({"eval_dataset": harness.GAME}, f"eval_dataset='{harness.GAME}': {NO_DATASET}"),
        ({"eval_dataset": {}}, f"eval_dataset={{}}: {NO_DATASET}"),
        ({"eval_dataset": {"one": None}}, f"eval_dataset['one']=None: {NO_DATASET}"),
        ({"eval_dataset": {"one": TASKS, "two": TASKS.select([])}}, "eval_dataset['two'] has no rows"),
        ({"eval_strategy": "epoch"}, "eval_strategy=epoch: there is no eval_dataset; add one, or omit it"),
        ({"reward_funcs": (len,)}, "reward_funcs=(<built-in function len>,): expected a function, a reward"),
        ({"reward_funcs": [None]}, "reward_funcs=[None]: expected a function, a reward model"),
    ],
)  # fmt: skip
def test_data_that_is_none(arguments: dict[str, Any], message: str, tmp_path: Path) -> None:
    settings = {name: arguments.pop(name) for name in list(arguments) if name.startswith("eval_strategy")}
    given = {"train_dataset": TASKS, "args": harness.config(tmp_path, **settings), **arguments}
    with pytest.raises(ConfigError) as refusal:
        GemGRPOTrainer("no/such/model", **given)
    assert message in str(refusal.value)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"envs": None}, "envs=None: expected one environment or more, such as 'game:Wordle-v0=2'"),
        ({"envs": []}, "envs=[]: expected one environment or more"),
        ({"envs": {harness.GAME: 2.0}}, f"envs={{'{harness.GAME}': 2.0}}: expected one environment or more"),
        ({"envs": [5]}, "5 is not an environment: expected an id"),
        ({"split": "test"}, "split='test': expected train or eval"),
        ({"seed": "1"}, "seed='1': expected a whole number"),
        ({"num": 0, "split": "eval"}, "num_tasks=0: expected a whole number of at least 1"),
    ],
)
def test_arguments_of_tasks(arguments: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError) as refusal:
        tasks(**{"envs": harness.GAME, "num": 2, **arguments})
    assert message in str(refusal.value)


def test_rows_of_evaluation_items_are_not_trained_on(tmp_path: Path) -> None:
    env = source_of("service", tmp_path).text
    held = tasks(env, 4, split="eval")
    with pytest.raises(ConfigError, match=r"train_dataset, row 0: item \d+ of .* is for evaluation only"):
        make(tmp_path, dataset=held)
    with pytest.raises(OSError, match="no/such/model"):
        make(tmp_path, dataset=tasks(env, 4), eval_dataset=held)


def test_a_task_in_a_stream_is_checked_when_it_is_played(tmp_path: Path) -> None:
    played = rollout(harness.gem())
    with pytest.raises(ConfigError, match=r"'hello' is not a task .*; make the rows with gem_trl.tasks"):
        played(["hello"], GRPOTrainer.__new__(GRPOTrainer))


def test_evaluation_items_in_a_stream_are_not_trained_on(tmp_path: Path) -> None:
    env = source_of("service", tmp_path).text
    rows = [tasks(env, 8)[0], *tasks(env, 7, split="eval")]
    stream = Dataset.from_list(rows).to_iterable_dataset()
    args = harness.config(tmp_path, max_steps=1)
    trainer = GemGRPOTrainer(harness.MODEL, args=args, train_dataset=stream, gem=harness.gem())
    with pytest.raises(
        ConfigError, match=r"a row of the training data: item \d+ of service:Shop-v0 is for evaluation"
    ):
        trainer.train()


def test_liger_with_the_loss_of_older_versions(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    args = harness.config(tmp_path)
    args.use_liger_kernel = True  # the constructor would import Liger
    monkeypatch.setattr(GRPOTrainer, "compute_liger_loss", None, raising=False)
    with pytest.raises(ConfigError, match="use_liger_kernel=True: the loss of Liger does not accept"):
        GemGRPOTrainer("no/such/model", args=args, train_dataset=tasks(harness.GAME, 4), gem=harness.gem())


@pytest.mark.parametrize("options", [{}, {"max_turns": 3}, "rebn"])
def test_options_are_a_config(tmp_path: Path, options: Any) -> None:
    args = harness.config(tmp_path)
    with pytest.raises(ConfigError, match=r"gem=.*: expected a GemConfig, such as GemConfig\(max_turns=8\)"):
        GemGRPOTrainer("no/such/model", args=args, train_dataset=tasks(harness.GAME, 4), gem=options)


def test_fsdp_from_accelerates_own_config(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    original = GRPOTrainer.__init__

    def sharded(self: Any, *args: Any, **kwargs: Any) -> None:
        original(self, *args, **kwargs)
        self.accelerator = SimpleNamespace(state=SimpleNamespace(fsdp_plugin=object()))

    sharded.__signature__ = inspect.signature(original)  # type: ignore[attr-defined]
    monkeypatch.setattr(GRPOTrainer, "__init__", sharded)
    with pytest.raises(ConfigError, match="FSDP: the sampler needs whole weights in each process"):
        GemGRPOTrainer(harness.MODEL, args=harness.config(tmp_path), train_dataset=tasks(harness.GAME, 4))


def test_reward_functions_beside_tasks(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="reward_funcs: the rows are tasks, whose reward is the return"):
        GemGRPOTrainer(
            "no/such/model", reward_funcs=episode_return, args=harness.config(tmp_path),
            train_dataset=tasks(harness.GAME, 4),
        )  # fmt: skip


def test_another_loss_of_trl(tmp_path: Path) -> None:
    class Another(GRPOTrainer):  # type: ignore[misc]
        def _compute_loss(self, model: Any, inputs: Any) -> Any:
            raise NotImplementedError

    Another.__module__ = "trl.experimental.another"

    class Mixed(GemGRPOTrainer, Another):
        pass

    with pytest.raises(UnsupportedTrainer, match="the loss of Another may not accept an advantage per token"):
        Mixed("no/such/model", args=harness.config(tmp_path), train_dataset=tasks(harness.GAME, 4))


def test_trainers_that_are_not_grpo(tmp_path: Path) -> None:
    with pytest.raises(TypeError, match="rollout_func"):
        RLOOTrainer(
            harness.MODEL, args=RLOOConfig(str(tmp_path), use_cpu=True, bf16=False),
            reward_funcs=episode_return, train_dataset=tasks(harness.GAME, 4), rollout_func=rollout(),
        )  # fmt: skip
    with pytest.raises(ConfigError, match=r"gem=3: expected a GemConfig"):
        rollout(3)  # type: ignore[arg-type]
    with pytest.raises(ConfigError, match=r"gem_trl.rollout: SimpleNamespace is not a GRPOTrainer"):
        rollout()([], SimpleNamespace())


def test_the_mask_of_the_loss_must_cover_the_responses(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    original = gem_trainer.Rollout.__call__

    def without_mask(self: Any, *args: Any) -> Any:
        columns = original(self, *args)
        del columns["env_mask"]
        return columns

    monkeypatch.setattr(gem_trainer.Rollout, "__call__", without_mask)
    with pytest.raises(ConfigError, match="TRL's mask of the loss does not cover exactly the responses"):
        harness.train(tmp_path, options=harness.gem(), max_steps=1)


def test_the_package_lists_what_it_exports() -> None:
    assert {"GemConfig", "GemGRPOTrainer", "episode_return", "rollout", "tasks"} <= set(dir(gem_trl))
    with pytest.raises(AttributeError, match="it has GemConfig, GemGRPOTrainer"):
        gem_trl.GemTrainer  # noqa: B018


def test_train_and_eval_tasks_never_share_a_task() -> None:
    train, evaluation = (
        tasks([harness.GAME, harness.OTHER], 20, seed=3),
        tasks(harness.GAME, 20, split="eval"),
    )
    assert set(train.column_names) == {"prompt"}
    seeds = [{json.loads(row["prompt"])["seed"] for row in data} for data in (train, evaluation)]
    assert not seeds[0] & seeds[1]
    assert tasks(harness.GAME, 3, seed=3)["prompt"] == tasks([harness.GAME], 3, seed=3)["prompt"]
    assert tasks(harness.GAME, 3, seed=3)["prompt"] != tasks(harness.GAME, 3, seed=4)["prompt"]

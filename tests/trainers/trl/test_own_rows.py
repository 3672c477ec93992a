"""Rows and reward functions of the user's own, beside environments and alone, in TRL's own trainer."""

from __future__ import annotations

import asyncio
import functools
from pathlib import Path
from typing import Any

import pytest
from datasets import Dataset
from gem_trl._dataset import is_task, mix, prompt_task, tasks
from gem_trl._playing import answer
from gem_trl._rewards import on_own_rows
from gem_trl._trainer import GemGRPOTrainer

from gem_core.errors import ConfigError, EnvError, GemError
from gem_core.rollout import Generation
from tests.advantages.oracle import standardized
from tests.trainers import chaos
from tests.trainers.evidence import GAMMA, Row, oracle
from tests.trainers.trl import harness

assert chaos  # registers environments

OWN = "train_dataset[0]"


def questions(count: int = 8, *, messages: bool = False, **columns: list[Any]) -> Dataset:
    """Return rows like those of a user: a prompt, and a column for the reward function."""
    texts = [f"<|user|>What is {n} + {n}?<|end|><|assistant|>" for n in range(count)]
    if messages:
        prompts: list[Any] = [
            [{"role": "system", "content": "Add."}, {"role": "user", "content": text}] for text in texts
        ]
    else:
        prompts = texts
    return Dataset.from_dict({"prompt": prompts, "answer": [str(2 * n) for n in range(count)], **columns})


def text_of(message: Any) -> str:
    """Return the text of a prompt or a completion in either form."""
    return message if isinstance(message, str) else str(message[-1]["content"])


def right(answer: str, prompt: str) -> bool:
    return f"What is {int(answer) // 2} + " in prompt


class Scores:
    """Reward functions in several forms, which check that each row comes with its own columns."""

    def __init__(self) -> None:
        self.totals: dict[tuple[int, ...], float] = {}
        self.calls = 0

    def digits(self, prompts: Any, completions: Any, completion_ids: Any, answer: Any, **other: Any) -> Any:
        """Score the tokens; give the answers to one question none."""
        self.calls += 1
        assert len(prompts) == len(completions) == len(completion_ids) == len(answer) > 0
        assert all(right(a, text_of(p)) for a, p in zip(answer, prompts, strict=True))
        assert all(
            type(p) is type(prompts[0]) and type(c) is type(p)
            for p, c in zip(prompts, completions, strict=True)
        )
        other["log_extra"]("answer", answer)
        scores = [
            None if a == "2" else float(sum(ids) % 7) for a, ids in zip(answer, completion_ids, strict=True)
        ]
        for ids, score in zip(completion_ids, scores, strict=True):
            if score is not None:
                self.totals[tuple(ids)] = score + 0.5 * len(ids)
        return scores

    async def length(self, prompts: Any, completion_ids: Any, answer: Any, **_: Any) -> Any:
        await asyncio.sleep(0)
        return [None if a == "2" else len(ids) for a, ids in zip(answer, completion_ids, strict=True)]


def test_reward_weights_are_those_of_the_users_functions(tmp_path: Path) -> None:
    with pytest.raises(
        ConfigError, match=r"reward_weights=\[1.0\]: expected one for each of 2 reward functions"
    ):
        GemGRPOTrainer(
            "no/such/model",
            reward_funcs=[Scores().digits, Scores().length],
            args=harness.config(tmp_path, reward_weights=[1.0]),
            train_dataset=[questions(4), harness.GAME],
        )


def rows_of(trainer: harness.Spied) -> list[Row]:
    return [row for loss in trainer.losses for row in harness.rows_of_loss(loss)]


@pytest.mark.parametrize("messages", [False, True], ids=["texts", "messages"])
def test_a_game_beside_rows_with_reward_functions(
    messages: bool, tmp_path: Path, tokenizer: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    harness.answer_by_row(monkeypatch, lambda ids: "What is" in tokenizer.decode(ids))
    scores = Scores()
    parts = [questions(4, messages=messages), harness.GAME]
    trainer = harness.Spied(
        harness.MODEL,
        reward_funcs=[scores.digits, scores.length],
        args=harness.config(
            tmp_path, max_steps=1, gradient_accumulation_steps=4, reward_weights=[1.0, 0.5],
            shuffle_dataset=False, log_completions=True, num_completions_to_print=0, seed=5,
        ),
        train_dataset=parts,
        gem=harness.gem(),
    )  # fmt: skip
    trainer.train()
    (episodes,), found = trainer.rollouts, rows_of(trainer)
    assert (len(episodes), len(found), scores.calls) == (16, 16, 1)
    own = [row for row in found if "What is" in tokenizer.decode(row.prompt)]
    unscored = [row for row in own if "What is 1 + 1" in tokenizer.decode(row.prompt)]
    assert (len(own), len(unscored), len(set(scores.totals.values()))) == (8, 2, 6)
    assert all(row.is_pad and not any(row.advantages) for row in unscored)
    # Every other row is trained on, with its own reward: one turn for an answer, and the turns of the game.
    rewards = {
        tuple(row.response): [scores.totals[tuple(row.response)]] for row in own if row not in unscored
    }
    for episode, task in zip(episodes, trainer.gem_rollout.tasks, strict=True):
        if task is not None:
            rewards[tuple(episode.rows()[0].response_ids)] = episode.rewards
    assert len(rewards) == 14
    wanted = dict(zip(rewards, oracle(list(rewards.values()), GAMMA), strict=True))
    for row in found:
        if row not in unscored:
            turns = harness.turns_of(row)
            assert turns == pytest.approx(wanted[tuple(row.response)], abs=1e-5)
            assert any(turns)
    (entry,) = trainer.logged("gem/return")
    assert entry["rebn/turns"] == sum(map(len, rewards.values()))
    counts = {name: value for name, value in entry.items() if "gem/played" in name or "gem/failed" in name}
    assert counts == {
        f"gem/played/{OWN}": 6, f"gem/failed/{OWN}": 2,
        f"gem/played/{harness.GAME}": 8, f"gem/failed/{harness.GAME}": 0,
    }  # fmt: skip
    assert entry["gem/filled"] == 2
    games = [e.total_reward for e, task in zip(episodes, trainer.gem_rollout.tasks, strict=True) if task]
    for name in ("gem/return", "rewards/episode_return/mean"):
        assert entry[name] == pytest.approx(sum(games) / 8)
    lengths = [len(row.response) for row in own if row not in unscored]
    assert entry["rewards/length/mean"] == pytest.approx(sum(lengths) / 6)
    assert sorted(map(str, trainer._logs["extra"]["answer"])) == sorted([*"00224466", *["None"] * 8])
    tasks_of_run = [episode.seed for episode in episodes if episode.seed is not None]
    drawn = mix(parts, "train_dataset", "train", seed=5)["prompt"]
    assert tasks_of_run == [prompt_task(prompt)["seed"] for prompt in drawn if is_task(prompt) for _ in "12"]
    if messages:
        assert all(tokenizer.decode(row.prompt).startswith("<|system|>Add.<|end|><|user|>") for row in own)


def test_a_reward_model_scores_own_rows_only(tmp_path: Path, tokenizer: Any) -> None:
    from transformers import AutoModelForSequenceClassification

    judge = AutoModelForSequenceClassification.from_pretrained(harness.MODEL, num_labels=1)
    trainer = harness.Spied(
        harness.MODEL,
        reward_funcs=[
            functools.partial(lambda prompts, scale, **_: [scale] * len(prompts), scale=2.0),
            judge,
        ],
        reward_processing_classes=[None, tokenizer],
        args=harness.config(tmp_path, max_steps=1, shuffle_dataset=False),
        train_dataset=[questions(2), f"{harness.GAME}=1.0"],
        gem=harness.gem(),
    )
    trainer.train()
    scores, tasks_of = trainer._scores, trainer.gem_rollout.tasks
    assert [task is None for task in tasks_of].count(True) == 4
    for row_padding, task in zip(scores.isnan().tolist(), tasks_of, strict=True):
        assert row_padding == ([True, True, False] if task else [False, False, True])


@pytest.mark.parametrize("beside", [True, False], ids=["beside a game", "alone"])
def test_a_source_without_any_reward_ends_the_run(beside: bool, tmp_path: Path) -> None:
    def none(prompts: Any, **_: Any) -> list[None]:
        return [None] * len(prompts)

    trainer = harness.Spied(
        harness.MODEL,
        reward_funcs=none,
        args=harness.config(tmp_path, max_steps=4, max_completion_length=16),
        train_dataset=[questions(2), f"{harness.GAME}=1.0"] if beside else questions(8),
        gem=harness.gem(),
    )
    what = "step 3: all 4 episodes of .* are lost" if beside else "step 1: no row is trained on"
    with pytest.raises(EnvError, match=f"{what}.*: no reward function returned a reward"):
        trainer.train()


def test_a_prompt_that_is_too_long_is_lost_and_an_answer_has_a_limit(
    tmp_path: Path, tokenizer: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    harness.answer_by_row(monkeypatch)
    data = questions(2)
    size = len(tokenizer(data[0]["prompt"])["input_ids"])
    long = Dataset.from_list([{**data[0], "prompt": "1 " * 200 + data[0]["prompt"]}, dict(data[1])])
    trainer = harness.Spied(
        harness.MODEL,
        reward_funcs=lambda prompts, **_: [float(len(prompts[0]))] * len(prompts),
        args=harness.config(tmp_path, max_steps=1, shuffle_dataset=False, max_completion_length=3),
        train_dataset=[long, harness.GAME],
        gem=harness.gem(max_total_tokens=150 + size),
    )
    trainer.train()
    (entry,) = trainer.logged("gem/return")
    assert (entry[f"gem/played/{OWN}"], entry[f"gem/failed/{OWN}"], entry["gem/error_rate"]) == (2, 2, 0)
    assert max(len(row.response) for row in rows_of(trainer)) == 3


@pytest.mark.parametrize(("room", "trained"), [(1, True), (0, False)])
def test_an_answer_may_have_one_token(room: int, trained: bool) -> None:
    class Policy:
        async def generate(self, prompt_ids: Any, *, max_tokens: int, request_id: str) -> Generation:
            return Generation([7] * max_tokens, [-1.0] * max_tokens, "length")

    episode = asyncio.run(answer(Policy(), [5, 6], room, "name"))  # type: ignore[arg-type]
    assert episode.trainable is trained
    assert [turn.response_ids for turn in episode.turns] == [[7]] * trained
    assert episode.rewards == [0.0] * trained
    assert (episode.error or "").endswith("" if trained else "leaves no room for an answer")


def test_evaluation_beside_own_rows(tmp_path: Path) -> None:
    trainer = GemGRPOTrainer(
        harness.MODEL,
        reward_funcs=lambda prompts, **_: [1.0] * len(prompts),
        args=harness.config(tmp_path, per_device_eval_batch_size=4, num_generations_eval=1),
        train_dataset=questions(8),
        eval_dataset=[questions(6), f"{harness.GAME}=0.5"],
        gem=harness.gem(),
    )
    logs = trainer.evaluate()
    assert logs["eval_gem/return"] == logs[f"eval_{harness.GAME}/gem/return"]
    assert logs["eval_rewards/<lambda>/mean"] == 1.0
    held = {prompt_task(p)["seed"] for p in trainer.eval_dataset["prompt"] if is_task(p)}
    assert held == {prompt_task(p)["seed"] for p in tasks(harness.GAME, 3, split="eval")["prompt"]}


@pytest.mark.parametrize("weight", [0.25, 1.0, 2.0])
@pytest.mark.parametrize("messages", [False, True], ids=["texts", "messages"])
def test_a_mix_spreads_its_parts(weight: float, messages: bool) -> None:
    parts = [questions(40, messages=messages), f"{harness.GAME}={weight}", harness.OTHER]
    made = mix(parts, "train_dataset", "train", seed=3)
    sources = made["gem_source"]
    assert [sources.count(name) for name in (OWN, harness.GAME, harness.OTHER)] == [40, int(40 * weight), 40]
    half = sources[: len(sources) // 2]
    assert half.count(harness.GAME) == pytest.approx(20 * weight, abs=1)
    assert half.count(OWN) == pytest.approx(20, abs=1)
    for row in made:
        assert is_task(row["prompt"]) == (row["gem_source"] != OWN) == (row["answer"] is None)
        assert isinstance(row["prompt"], list) == messages
    held = mix(parts, "eval_dataset", "eval")
    seeds = [
        {prompt_task(row["prompt"])["seed"] for row in data if row["answer"] is None} for data in (made, held)
    ]
    assert not seeds[0] & seeds[1]


def test_each_dataset_of_a_mix_is_a_source() -> None:
    named = questions(3)
    named.info.dataset_name = "gsm8k"
    made = mix([named, harness.GAME, questions(5)], "train_dataset", "train")
    assert {name: made["gem_source"].count(name) for name in set(made["gem_source"])} == {
        "gsm8k": 3,
        "train_dataset[2]": 5,
        harness.GAME: 8,
    }
    short = mix([questions(2), f"{harness.GAME} as guess=0.5", harness.OTHER], "train_dataset", "train")
    assert sorted(set(short["gem_source"])) == [harness.OTHER, "guess", OWN]
    sets = mix({"a": [questions(2), harness.GAME], "b": questions(2)}, "eval_dataset", "eval")
    assert set(sets["a"]["gem_source"]) == {"eval_dataset['a'][0]", harness.GAME}
    assert "gem_source" not in sets["b"].column_names


def test_datasets_with_one_name_stay_apart() -> None:
    def named(name: str, count: int) -> Dataset:
        data = questions(count)
        data.info.dataset_name = name
        return data

    parts = [named("data", 2), named("data", 3), named(harness.GAME, 4), named("own", 5), harness.GAME]
    sources = mix(parts, "train_dataset", "train")["gem_source"]
    assert {name: sources.count(name) for name in set(sources)} == {
        OWN: 2, "train_dataset[1]": 3, "train_dataset[2]": 4, "own": 5, harness.GAME: 14,
    }  # fmt: skip


@pytest.mark.parametrize("split", ["train", "eval"])
def test_an_environment_that_is_listed_twice_has_both_weights(split: Any) -> None:
    parts = [f"{harness.GAME}=0.25", questions(8), harness.OTHER, f"{harness.GAME}=0.5"]
    made = mix(parts, "train_dataset", split)
    assert [made["gem_source"].count(name) for name in (harness.GAME, harness.OTHER)] == [6, 8]
    assert len(set(made["prompt"])) == len(made) == 8 + 6 + 8


def lists(*prompt: Any) -> Dataset:
    return Dataset.from_dict({"prompt": [list(prompt)] * 2})


PROMPTS = {
    "texts in a list": lists("a", "b"),
    "no message": lists(),
    "parts": lists({"role": "user", "content": [{"type": "text", "text": "a"}]}),
    "no text": lists({"role": "user", "content": None}),
    "no content": lists({"role": "user"}),
    "other keys": lists({"from": "human", "value": "a"}),
    "lists of lists": lists([{"role": "user", "content": "a"}]),
    "numbers": Dataset.from_dict({"prompt": [1, 2]}),
    "nothing": Dataset.from_dict({"prompt": [None, None]}),
    "a message": Dataset.from_dict({"prompt": [{"role": "user", "content": "a"}] * 2}),
}


@pytest.mark.parametrize("prompts", PROMPTS.values(), ids=PROMPTS)
def test_prompts_that_cannot_stand_beside_tasks(prompts: Dataset) -> None:
    with pytest.raises(ConfigError, match="train_dataset: expected texts, or lists of messages with texts"):
        mix([prompts, harness.GAME], "train_dataset", "train")


@pytest.mark.parametrize(
    ("parts", "message"),
    [
        ([questions(2, gem_source=["x", "y"]), harness.GAME], "[0]: omit or rename the column gem_source"),
        ([harness.GAME], "expected at least one dataset; for environments alone, use tasks"),
        ([questions(2), "game:Gues-v0"], "unknown environment 'game:Gues-v0'"),
        ([questions(2), f"{harness.GAME}=-1"], "expected a weight above 0"),
        ([questions(2), "test:Shades"], "test:Shades shows images"),
        ([questions(2), f"{harness.GAME} as x", f"{harness.OTHER} as x"], "are named 'x'; change one name"),
        ([questions(2).remove_columns("prompt"), harness.GAME], "[0]: expected the column prompt"),
        ([questions(2, images=["x", "y"]), harness.GAME], "train_dataset[0] has images"),
        ([questions(2).to_iterable_dataset(), harness.GAME], "not IterableDataset"),
        ([[{"prompt": "x"}], harness.GAME], "expected a datasets.Dataset or an environment, not list"),
    ],
)  # fmt: skip
def test_parts_that_cannot_be_mixed(parts: list[Any], message: str, tmp_path: Path, spy: Path) -> None:
    with pytest.raises(GemError) as refusal:
        GemGRPOTrainer(
            "no/such/model", reward_funcs=len, args=harness.config(tmp_path), train_dataset=parts,
            gem=harness.gem(),
        )  # fmt: skip
    assert message in str(refusal.value)


def test_what_a_mix_cannot_be_combined_with(tmp_path: Path) -> None:
    for changes, message in (
        ({"args": harness.config(tmp_path, min_p=0.1)}, "min_p=0.1: has no effect"),
        ({"args": harness.config(tmp_path), "tools": [len]}, "tools: gem_trl plays the episodes itself"),
        ({"args": harness.config(tmp_path), "reward_funcs": None}, "is not a task .*pass reward_funcs"),
    ):
        arguments: Any = {"reward_funcs": len, **changes}
        with pytest.raises(ConfigError, match=message):
            GemGRPOTrainer("no/such/model", train_dataset=[questions(2), harness.GAME], **arguments)


def test_tasks_in_a_stream_of_own_rows(tmp_path: Path) -> None:
    rows = [questions(1)[0]["prompt"], *tasks(harness.GAME, 7)["prompt"]]
    stream = Dataset.from_dict({"prompt": rows}).to_iterable_dataset()
    trainer = harness.Spied(
        harness.MODEL, reward_funcs=lambda prompts, **_: [1.0] * len(prompts), train_dataset=stream,
        args=harness.config(tmp_path, max_steps=1), gem=harness.gem(),
    )  # fmt: skip
    with pytest.raises(
        ConfigError, match="a stream with tasks and prompts of your own must begin with a task"
    ):
        trainer.train()


def test_trls_own_rollouts_with_an_estimator_of_gem_core(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Sixteen scripted answers of different lengths and scores; two have no score."""
    answers = [[5 + (3 * n + place) % 50 for place in range(2 + n)] for n in range(16)]
    left = iter(answers)
    monkeypatch.setattr(
        harness.Spied,
        "_generate_single_turn",
        lambda self, prompt_ids, *_, **__: ([next(left) for _ in prompt_ids], None),
    )

    def scored(completion_ids: Any, **_: Any) -> list[float | None]:
        return [None if len(ids) in (2, 9) else sum(ids) % 11 + 0.25 for ids in completion_ids]

    def length(completion_ids: Any, **_: Any) -> list[float | None]:
        return [None if len(ids) < 10 else float(len(ids)) for ids in completion_ids]

    trainer = harness.Spied(
        harness.MODEL,
        reward_funcs=[scored, length],
        args=harness.config(
            tmp_path, max_steps=1, max_completion_length=32, reward_weights=[1.0, -0.5], loss_type="grpo",
            gradient_accumulation_steps=4,
        ),
        train_dataset=questions(8),
        gem=harness.gem(),
    )  # fmt: skip
    trainer.train()
    totals = {
        tuple(ids): sum(ids) % 11 + 0.25 - 0.5 * len(ids) * (len(ids) >= 10)
        for ids in answers
        if len(ids) not in (2, 9)
    }
    assert len(set(totals.values())) > 10
    wanted = dict(
        zip(totals, standardized([*totals.values()], [*totals.values()], 0, 1e-8, 1e-6), strict=True)
    )
    rows = [row for loss in trainer.losses for row in zip(*map(loss.get, COLUMNS), strict=True)]  # type: ignore[arg-type]
    assert len(rows) == 16
    for ids, on, own, advantages in rows:
        size = int(on.sum())
        value = wanted.get(tuple(ids[:size].tolist()))
        assert (
            own[:size].tolist() == [int(value is not None)] * size
        )  # a row without a score is not trained on
        assert advantages[:size].tolist() == pytest.approx([value or 0.0] * size, abs=1e-5)
        assert not advantages[size:].any()
    assert any(gradient.any() for gradient in trainer.optimizer_steps[0][2] if gradient is not None)
    (entry,) = trainer.logged("rebn/turns")
    assert entry["rebn/turns"] == entry["gem/played/train_dataset"] == 14
    assert entry["gem/failed/train_dataset"] == entry["gem/filled"] == 2
    # The mean over the 14 rows, at a ratio of 1: each row contributes minus its advantage.
    assert sum(float(loss["loss"]) for loss in trainer.losses) == pytest.approx(
        -sum(wanted.values()) / 14, abs=1e-5
    )


COLUMNS = ("completion_ids", "completion_mask", "tool_mask", "advantages")


class Called:
    def __call__(self, prompts: Any, **_: Any) -> list[float]:
        return [float(len(prompts))] * len(prompts)


class CalledLater:
    async def __call__(self, prompts: Any, **_: Any) -> list[float]:
        return [float(len(prompts))] * len(prompts)


def counted(prompts: Any, **_: Any) -> list[float]:
    return [float(len(prompts))] * len(prompts)


async def counted_later(prompts: Any, **_: Any) -> list[float]:
    return [float(len(prompts))] * len(prompts)


@pytest.mark.parametrize(
    ("func", "name"),
    [
        (counted, "counted"),
        (counted_later, "counted_later"),
        (functools.partial(counted, scale=1), "counted"),
        (functools.partial(counted_later, scale=1), "counted_later"),
        (Called(), "Called"),
        (CalledLater(), "CalledLater"),
    ],
    ids=["function", "later", "partial", "partial-later", "object", "object-later"],
)
def test_forms_of_reward_functions(func: Any, name: str) -> None:
    from trl.trainer.utils import get_callable_name

    wrapped = on_own_rows(func)
    assert get_callable_name(wrapped) == name
    task = tasks(harness.GAME, 1)[0]["prompt"]

    def call(prompts: list[str]) -> Any:
        found = wrapped(prompts=prompts, completions=["x"] * len(prompts), trainer_state=None)
        return asyncio.run(found) if asyncio.iscoroutine(found) else found

    assert call(["a", task, "b", task]) == [2.0, None, 2.0, None]
    assert call([task]) == [None]


def test_a_reward_function_must_score_each_row() -> None:
    with pytest.raises(ValueError, match="returned 1 rewards for 2 rows"):
        on_own_rows(lambda **_: [1.0])(prompts=["a", "b"])

"""Items of datasets in task rows: one pass without replacement, evaluation items never trained on."""

from __future__ import annotations

import asyncio
import itertools
import json
from collections import Counter

import pytest

import gem_core
from gem_chat import EnvPlayer, MessagesContext
from gem_core import _registration
from gem_core._tasks import count_items, tasks_per_epoch
from gem_core.errors import ConfigError
from gem_core.rollout import EnvPool, read_traces
from gem_core.tasks import EnvChoice, make_tasks
from gem_envs.datasets import DatasetEnv
from gem_lab import main


@pytest.fixture(scope="module")
def file(tmp_path_factory):
    """Return a function that writes a dataset of `rows` rows, with a column for each family."""

    def write(rows, name="rows.jsonl"):
        path = tmp_path_factory.mktemp("items") / name
        path.write_text(
            "".join(
                json.dumps({"problem": f"What is {n} + {n}?", "answer": str(2 * n)}) + "\n"
                for n in range(rows)
            )
        )
        return str(path)

    return write


def source(id, path, **kwargs):
    return EnvChoice(id, {"dataset_name": path, "split": None, "symbolic": False, **kwargs})


def items(sources, num_tasks, **kwargs):
    return [row["item"] for row in make_tasks(sources, num_tasks, **kwargs)]


# -- training -----------------------------------------------------------------------------------


def test_an_epoch_over_12000_rows_visits_12000_rows(file):
    whole = source("math:GSM8K", file(12_000), eval_only=False)
    assert tasks_per_epoch([whole]) == 12_000
    first, second = items([whole], 24_000)[:12_000], items([whole], 24_000)[12_000:]
    assert set(first) == set(second) == set(range(12_000))
    assert first != second != sorted(second)
    assert items([whole], 12_000, seed=1) != first


def test_training_goes_through_all_training_items(file):
    some = source("math:GSM8K", file(400))
    train, for_eval = count_items(some, "train"), count_items(some, "eval")
    assert train + for_eval == 400
    assert 30 < for_eval < 70
    assert Counter(Counter(items([some], 3 * train)).values()) == {3: train}
    assert not set(items([some], train)) & set(items([some], for_eval, split="eval"))


def test_a_mix_keeps_the_progress_of_each_source(file):
    small, large = source("math:GSM8K", file(60)), source("math:Math12K", file(500))
    mix = [small, EnvChoice(large.env_id, large.env_kwargs, 3.0), EnvChoice("game:Mastermind-v0")]
    rows = list(make_tasks(mix, 1200, seed=5))
    for part, enough in ((small, 200), (large, 500)):
        visited = [row["item"] for row in rows if row["env_id"] == part.env_id]
        size = count_items(part, "train")
        assert len(visited) > enough
        for first in range(0, len(visited), size):
            passed = visited[first : first + size]
            assert len(set(passed)) == len(passed)
    assert {row["item"] for row in rows if row["env_id"] == "game:Mastermind-v0"} == {None}
    assert len({row["seed"] for row in rows}) == 1200
    assert tasks_per_epoch(mix) == max(
        5 * count_items(small, "train"), -(-5 * count_items(large, "train") // 3)
    )
    assert tasks_per_epoch(mix[2:]) is None


@pytest.mark.parametrize("count", [1, 2])
def test_a_later_start_continues_the_rows(file, count):
    mix = [source("math:GSM8K", file(40)), EnvChoice("game:Mastermind-v0")][:count]
    whole = list(make_tasks(mix, 100, seed=2, group_size=2))
    parts = [row for start in (0, 30, 31) for row in make_tasks(
        mix, {0: 30, 30: 1, 31: 69}[start], seed=2, group_size=2, start=start)]  # fmt: skip
    assert parts == whole
    assert [row["index"] for row in whole[::2]] == list(range(100))


def test_samples_of_a_task_share_its_item(file):
    rows = list(make_tasks([source("math:GSM8K", file(40))], 20, group_size=4))
    for first in range(0, 80, 4):
        assert all(row == rows[first] for row in rows[first : first + 4])


# -- evaluation -----------------------------------------------------------------------------------


def test_evaluation_items_are_played_once_and_are_always_the_same(file):
    bench = source("eval:AIME24", file(30))
    assert sorted(items([bench], 1000, split="eval")) == list(range(30))
    assert items([bench], 12, split="eval", seed=9) == items([bench], 30, split="eval")[:12]
    games = [bench, EnvChoice("game:Mastermind-v0")]
    mixed = [item for item in items(games, 200, split="eval") if item is not None]
    assert sorted(mixed) == list(range(30))


@pytest.mark.parametrize("id", ["eval:AIME24", "math:GSM8K"])
def test_a_set_for_evaluation_only_is_not_trained_on(file, id):
    bench = source(id, file(30, "rows.jsonl" if id.startswith("eval:") else "test.jsonl"))
    named = EnvChoice(id, {**bench.env_kwargs, "eval_only": False})
    with pytest.raises(ConfigError) as raised:
        make_tasks([bench], 4)
    assert f"all 30 items are for evaluation only; to train on them anyway, use {named.label!r}" in str(
        raised.value
    )
    assert sorted(items([named], 30)) == list(range(30))
    assert EnvChoice.parse(named.label) == named
    with pytest.raises(ConfigError, match="has no evaluation items, all 30 are for training"):
        make_tasks([named], 4, split="eval")


def test_every_benchmark_is_for_evaluation_only():
    for id in gem_core.list_envs("eval:*"):
        spec = gem_core.spec(id)
        signature = _registration.accepted_arguments(spec)
        assert "eval_only" in signature
        assert spec.kwargs.get("eval_only", True) is True


def test_a_single_item_is_for_training(file):
    one = source("math:GSM8K", file(1))
    assert items([one], 3) == [0, 0, 0]
    with pytest.raises(ConfigError, match="has no evaluation items, all 1 are for training; evaluate on"):
        make_tasks([one], 1, split="eval")
    two = source("math:GSM8K", file(2))
    assert {*items([two], 1), *items([two], 9, split="eval")} == {0, 1}


@pytest.mark.parametrize("id", ["math:Arithmetic-v0", "code:SmallTasks-v0-retry", "qa:MultiHop-v0"])
def test_generated_sets_have_a_split_of_their_own(id):
    env_source = EnvChoice(id, {"size": 40})
    train = list(make_tasks([env_source], 40))
    for_eval = list(make_tasks([env_source], 99, split="eval"))
    assert [row["env_kwargs"] for row in (train[0], for_eval[0])] == [
        {"size": 40},
        {"split": "test", "size": 40},
    ]
    assert len(for_eval) == 40
    assert not texts(train) & texts(for_eval)
    for split, wrong in (("test", "train"), ("train", "eval")):
        with pytest.raises(ConfigError, match=r"set split='train'|omit split="):
            make_tasks([EnvChoice(id, {"split": split})], 1, split=wrong)


def texts(rows):
    shown = set()
    for row in rows:
        with EnvChoice.of(row).make() as env:
            observation, _ = env.reset(row["seed"], options={"index": row["item"]})
            assert env.unwrapped.index == row["item"]
            shown.add(observation)
    return shown


def test_the_shop_has_goals_for_each_split():
    pytest.importorskip("bm25s")
    shop = EnvChoice("webshop:train-text", {"num_products": 60})
    (train,) = make_tasks([shop], 1)
    for_eval = next(make_tasks([shop], 1, split="eval"))
    assert train["item"] is not None
    assert for_eval["env_kwargs"] == {"split": "test", "num_products": 60}
    with pytest.raises(ConfigError, match="set split='train'"):
        make_tasks([EnvChoice("webshop:test-text")], 1)


@pytest.mark.parametrize("user", ["scripted", "self"])
def test_customers_of_the_service_are_items(user):
    shop = EnvChoice("service:Shop-v0", {"user": user})
    split = count_items(shop, "train"), count_items(shop, "eval")
    assert sum(split) == 70
    assert min(split) > 0
    assert count_items(EnvChoice("service:Shop-v0", {"task": 3}), "train") is None


# -- environments -------------------------------------------------------------------------------


def test_wrappers_show_the_items(file):
    env = gem_core.make("math:GSM8K", wrappers="retry(max_attempts=2), time_limit(max_turns=3)",
                        **source("math:GSM8K", file(50)).env_kwargs)  # fmt: skip
    assert list(env.items("train")) == list(env.unwrapped.items("train"))
    assert gem_core.make("game:Mastermind-v0").items("train") is None


def test_eval_only_is_an_argument(file):
    with pytest.raises(ConfigError, match="eval_only='no': expected True or False, or None"):
        source("math:GSM8K", file(9), eval_only="no").make()
    assert count_items(source("math:GSM8K", file(9), eval_only=True), "eval") == 9


def test_rows_of_another_class_are_split_by_number(monkeypatch):
    class Squares:
        name, columns = "squares", ("problem",)

        def __len__(self):
            return 16

        def __getitem__(self, index):
            return {"problem": f"{index}?"}

    class Ask(DatasetEnv):
        def __init__(self):
            self.use_rows(Squares())

        def question(self, row):
            return row["problem"]

    monkeypatch.setattr(_registration._envs, "_values", _registration._envs.registered())
    gem_core.register("test:Squares", Ask)
    assert sorted(items([EnvChoice("test:Squares")], 9, split="eval")) == [7, 15]


def test_an_environment_is_built_once_to_count_its_items(monkeypatch):
    built = []

    class Ask(DatasetEnv):
        def __init__(self, rows=20):
            built.append(rows)
            self.open(
                None, [{"problem": str(n)} for n in range(rows)], None, None, False, None, {"q": "problem"}
            )

    monkeypatch.setattr(_registration._envs, "_values", _registration._envs.registered())
    gem_core.register("test:Counted", Ask)
    for _ in range(3):
        list(make_tasks([EnvChoice("test:Counted")], 5))
    assert built == [20]
    monkeypatch.setattr(_registration._envs, "_values", _registration._envs.registered())
    del _registration._envs._values["test:Counted"]
    gem_core.register("test:Counted", Ask, rows=30)  # another environment under the same name
    assert count_items(EnvChoice("test:Counted"), "train") > 20


def test_a_pool_plays_the_item_of_a_task(file):
    some = source("math:GSM8K", file(50))
    rows = list(make_tasks([some], 20))
    pool = EnvPool()

    async def play():
        return [await pool.play(row, EnvPlayer("oracle"), MessagesContext()) for row in rows]

    episodes = asyncio.run(play())
    pool.close()
    for row, episode in zip(rows, episodes, strict=True):
        assert episode.metadata["item"] == row["item"]
        assert episode.turns[0].action == f"\\boxed{{{2 * row['item']}}}"
        assert episode.success


# -- evaluation and training --------------------------------------------------------------------


def test_an_evaluation_plays_30_different_problems(file, tmp_path, capsys):
    bench = source("eval:AIME24", file(30))
    out = tmp_path / "run"
    arguments = ["eval", "--model", "oracle", "--env", bench.label, "--out", str(out), "--json"]
    assert main([*arguments, "--episodes", "50"]) == 0
    summary = json.loads(capsys.readouterr().out)["envs"][bench.label]
    assert (summary["episodes"], summary["tasks"], summary["items"]) == (30, 30, 30)
    questions = {episode.turns[0].observation for episode in read_traces(out / "episodes.jsonl")}
    played = [episode.metadata["item"] for episode in read_traces(out / "episodes.jsonl")]
    assert sorted(played) == list(range(30))
    assert len(questions) >= 1


def test_an_evaluation_says_when_there_are_fewer_items(file, tmp_path, capsys):
    bench = source("eval:AIME24", file(5))
    arguments = ["eval", "--model", "oracle", "--env", bench.label, "--out", str(tmp_path / "run")]
    assert main([*arguments, "--group-size", "2"]) == 0
    shown = capsys.readouterr()
    assert "20 tasks were requested; its 5 evaluation items are played 2 times each" in shown.err + shown.out
    summary = json.loads((tmp_path / "run" / "summary.json").read_text())["envs"][bench.label]
    assert (summary["episodes"], summary["tasks"], summary["items"]) == (10, 5, 5)


def test_the_reference_trainer_continues_within_an_epoch(file):
    from gem_lab.train import TrainConfig
    from gem_lab.train._rollouts import training_tasks

    some = source("math:GSM8K", file(96), eval_only=False)
    config = TrainConfig(env=[some.label], episodes_per_step=32, group_size=2, steps=9)
    steps = [[row["item"] for row in training_tasks(config, step)] for step in range(1, 7)]
    assert sorted(itertools.chain(*steps)) == sorted([*range(96)] * 2)  # 16 tasks per step, 2 samples each
    assert training_tasks(config, 4) == training_tasks(config, 4)  # a resumed run plays the same tasks

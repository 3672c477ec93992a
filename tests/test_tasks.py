from __future__ import annotations

import asyncio
import json
from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

import gem_core
from gem_chat import EnvPlayer, MessagesContext
from gem_core._tasks import TRAIN_SEEDS, evaluation_tasks
from gem_core.errors import ConfigError, GemError
from gem_core.rollout import EnvPool
from gem_core.tasks import EVAL_SEEDS, EnvChoice, make_tasks, read_task, write_tasks
from gem_core.trainers import pack_task, unpack_task
from gem_core.trainers._tasks import split_tasks
from tests.support import ImageEnv

EASY = EnvChoice("game:GuessTheNumber-v0-easy")
MIX = [EASY, EnvChoice("game:Mastermind-v0", {"max_turns": 9}, 3.0)]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("game:A-v0", EnvChoice("game:A-v0")),
        ("game:A-v0=2.5", EnvChoice("game:A-v0", {}, 2.5)),
        ("game:A-v0()", EnvChoice("game:A-v0")),
        ("game:A-v0(size=3, name='x=y)')=2", EnvChoice("game:A-v0", {"size": 3, "name": "x=y)"}, 2.0)),
        (" game:A-v0 ( size = [1, 2] ) = 1 ", EnvChoice("game:A-v0", {"size": [1, 2]}, 1.0)),
        ("game:A-v0 as a", EnvChoice("game:A-v0", {"as": "a"})),
        ("game:A-v0 as a.b-2=0.5", EnvChoice("game:A-v0", {"as": "a.b-2"}, 0.5)),
        ("game:A-v0(size=3)as a = 2", EnvChoice("game:A-v0", {"size": 3, "as": "a"}, 2.0)),
        ("game:A-v0(name=') as b')", EnvChoice("game:A-v0", {"name": ") as b"})),
        ("gas:as-v0", EnvChoice("gas:as-v0")),
        ("game:A-v0(path='b.py:C')", EnvChoice("game:A-v0", {"path": "b.py:C"})),
        ("A-v0(path='b.py:C', size=3)=2", EnvChoice("A-v0", {"path": "b.py:C", "size": 3}, 2.0)),
        ("/my files/a.py:B", EnvChoice("/my files/a.py:B")),
        ("/x=y (1), as z/a.py:B(n=1) as c=2", EnvChoice("/x=y (1), as z/a.py:B", {"n": 1, "as": "c"}, 2.0)),
        ("game:A-v0(file='b.py:C(d=1)')", EnvChoice("game:A-v0", {"file": "b.py:C(d=1)"})),
    ],
)
def test_parse(text, expected):
    assert EnvChoice.parse(text) == expected


PLACES = ["plain", "my project", "a=b", "x(1)", "b[2]", "p\u00e4th", "it's", "com,ma", "as x", "c.py d"]


@pytest.mark.parametrize("place", PLACES)
@pytest.mark.parametrize("rest", ["", "(max_turns=3)", " as own", "(max_turns=3) as own=0.5", "=2"])
def test_an_environment_in_a_file_of_any_folder(place, rest, tmp_path, monkeypatch):
    """The absolute path, which trainers read again, has characters that separate words elsewhere."""
    folder = tmp_path / place
    folder.mkdir()
    (folder / "own.py").write_text(
        "from gem_envs._games.guess_the_number import GuessTheNumber\n\nclass Own(GuessTheNumber): ...\n"
    )
    monkeypatch.chdir(folder)
    choice = EnvChoice.parse(f"own.py:Own{rest}")
    assert choice.env_id == f"{folder / 'own.py'}:Own"
    assert EnvChoice.parse(f"{choice.text}={choice.weight:g}") == choice
    assert EnvChoice.parse(f" {folder}/own.py:Own{rest} ") == choice
    (task,) = split_tasks([choice.text], "train", 1)
    assert EnvChoice.of(task).label == choice.label


@pytest.mark.parametrize(
    "text",
    [
        "", "=2", "a=", "a=x", "a=0", "a=-1", "a=nan", "a=inf", "a(", "a(3)", "a(**x)", "a(b=open('f'))",
        "a(b={[]: 1})", "a(b=1)(c=2)", "a as", "a as b c", "a as 'b'", "a as b/c", "a(as='b')", "a=2 as b",
    ],
)  # fmt: skip
def test_parse_rejects_with_an_example(text):
    with pytest.raises(ConfigError, match=r"expected (an id|a weight)"):
        EnvChoice.parse(text)


NAMED = "game:GuessTheNumber-v0(max_number=50) as guess"


@pytest.mark.parametrize("text", [NAMED, "math:Arithmetic-v0(size=40) as guess"])
def test_a_name_is_the_label_everywhere_and_changes_no_task(text):
    named, plain = EnvChoice.parse(text), EnvChoice.parse(text.removesuffix(" as guess"))
    assert (named.label, named.call, named.text) == ("guess", plain.label, text)
    assert (plain.label, plain.text) == (plain.call, plain.call)
    for split in ("train", "eval"):
        rows, others = (list(make_tasks([one, *MIX], 9, split=split)) for one in (named, plain))
        assert "guess" in {EnvChoice.of(row).label for row in rows}
        without = [{**row, "env_kwargs": EnvChoice.of(row).arguments} for row in rows]
        assert without == others
        packed = [unpack_task(pack_task(row), "") for row in rows]  # as in the files of every trainer
        assert [EnvChoice.of(row).label for row in packed] == [EnvChoice.of(row).label for row in rows]
    with named.make() as env, plain.make() as other:
        assert env.spec == other.spec


def test_an_environment_may_have_wrappers_of_its_own():
    text = "game:GuessTheNumber-v0(wrappers='time_limit(max_turns=3), concat_with_action', max_number=9)"
    choice = EnvChoice.parse(text)
    with choice.make("episode_statistics") as env, choice.make() as plain:
        named = [wrapper.name for wrapper in env.spec.wrappers]
        assert named == ["time_limit", "concat_with_action", "episode_statistics"]
        assert [wrapper.name for wrapper in plain.spec.wrappers] == named[:2]
        assert plain.spec.kwargs["max_number"] == 9
        assert "wrappers" not in plain.spec.kwargs
    (row,) = make_tasks([choice], 1)
    with EnvChoice.of(unpack_task(pack_task(row), "")).make() as env:
        assert env.spec == plain.spec
    with pytest.raises(GemError, match="no_such_wrapper"):
        EnvChoice.parse("game:GuessTheNumber-v0(wrappers='no_such_wrapper')").make()


def test_two_environments_need_two_names():
    both = [EnvChoice.parse(NAMED), EnvChoice.parse("game:Mastermind-v0 as guess")]
    with pytest.raises(
        ConfigError, match=r"both game:GuessTheNumber-v0\(max_number=50\) and game:Mastermind"
    ):
        list(make_tasks(both, 1))
    assert len(list(make_tasks([both[0], both[0]], 3))) == 3


def test_a_pool_never_confuses_environments_with_the_same_name():
    rows = [row for text in (NAMED, "game:Mastermind-v0 as guess") for row in
            make_tasks([EnvChoice.parse(text)], 1)]  # fmt: skip

    async def play():
        pool = EnvPool()
        episodes = [await pool.play(row, EnvPlayer("random"), MessagesContext()) for row in rows * 2]
        pool.close()
        return [episode.env_id for episode in episodes]

    assert asyncio.run(play()) == ["game:GuessTheNumber-v0", "game:Mastermind-v0"] * 2


@given(st.integers(0, 2**63), st.integers(1, 60), st.integers(1, 4), st.sampled_from(["train", "eval"]))
def test_groups_share_the_seed_and_tasks_do_not(seed, num_tasks, group_size, split):
    rows = list(make_tasks(MIX, num_tasks, seed=seed, group_size=group_size, split=split))
    assert len(rows) == num_tasks * group_size
    groups = [rows[i : i + group_size] for i in range(0, len(rows), group_size)]
    for index, group in enumerate(groups):
        assert all(row == group[0] for row in group)
        assert group[0]["index"] == index
    assert len({group[0]["seed"] for group in groups}) == num_tasks
    allowed = TRAIN_SEEDS if split == "train" else EVAL_SEEDS[:num_tasks]
    assert all(row["seed"] in allowed for row in rows)


@given(st.integers(0, 1000), st.integers(1, 30))
def test_fewer_tasks_are_a_prefix_of_more(seed, num_tasks):
    assert list(make_tasks(MIX, num_tasks, seed=seed)) == list(make_tasks(MIX, 40, seed=seed))[:num_tasks]


def test_weights_are_shares():
    counts = Counter(row["env_id"] for row in make_tasks(MIX, 4000))
    assert counts["game:Mastermind-v0"] / 4000 == pytest.approx(0.75, abs=0.03)


def test_another_seed_gives_other_rows():
    assert list(make_tasks(MIX, 20, seed=0)) != list(make_tasks(MIX, 20, seed=1))


@pytest.mark.parametrize(
    ("sources", "num_tasks", "group_size"),
    [
        ([], 1, 1),
        (MIX, 0, 1),
        (MIX, 1, 0),
        (MIX, len(TRAIN_SEEDS) + 1, 1),
        ([EnvChoice("a:A", {}, 1e308), EnvChoice("a:B", {}, 1e308)], 1, 1),
    ],
)
def test_rejected_at_once(sources, num_tasks, group_size):
    with pytest.raises(ConfigError):
        make_tasks(sources, num_tasks, group_size=group_size)


def test_a_row_survives_the_file_and_makes_its_environment(tmp_path):
    rows = list(make_tasks(MIX, 5))
    write_tasks(rows, tmp_path / "deep" / "rows.jsonl")
    read = [json.loads(line) for line in (tmp_path / "deep" / "rows.jsonl").read_text().splitlines()]
    assert read == rows
    for row in read:
        with gem_core.make(row["env_id"], **row["env_kwargs"]) as env:
            observation, _ = env.reset(row["seed"])
            assert observation


def test_a_row_gives_its_task_back():
    task = {"env_id": "game:Mastermind-v0", "env_kwargs": {"a": 3}, "seed": 5, "index": 2, "item": 7}
    assert read_task(task) == task
    assert read_task({**task, "env_kwargs": json.dumps(task["env_kwargs"])}) == task
    assert read_task({"env_id": "a:B", "seed": "7"}) == {
        "env_id": "a:B",
        "env_kwargs": {},
        "seed": 7,
        "index": 0,
        "item": None,
    }


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"seed": 1}, "env_id is missing"),
        ({"env_id": "a:B"}, "seed is missing"),
        ({"env_id": "a:B", "seed": "x"}, "is not a task: invalid literal"),
        ({"env_id": "a:B", "seed": 1, "env_kwargs": "{"}, "is not a task: Expecting"),
    ],
)
def test_a_row_without_a_task_is_rejected(fields, message):
    with pytest.raises(ConfigError, match=message):
        read_task(fields)


def test_an_environment_is_tried_once_before_it_is_played(own_registry: None) -> None:
    made: list[ImageEnv] = []

    def make() -> ImageEnv:
        made.append(ImageEnv())
        return made[-1]

    gem_core.register("test:TriedOnce", make)
    assert EnvChoice("test:TriedOnce").check_buildable() is True
    assert EnvChoice("game:Mastermind-v0").check_buildable(no_images="it is blind") is False
    with pytest.raises(ConfigError, match="test:TriedOnce shows images, but it is blind"):
        EnvChoice("test:TriedOnce").check_buildable(no_images="it is blind")
    assert [env.closed for env in made] == [1, 1]


def test_evaluation_plays_the_first_seeds() -> None:
    tasks = evaluation_tasks([EnvChoice("game:GuessTheNumber-v0-easy")], 3)
    assert [task["seed"] for task in tasks] == list(EVAL_SEEDS[:3])


def test_an_evaluation_lists_an_environment_once() -> None:
    with pytest.raises(ConfigError, match="easy is listed twice; list it once"):
        evaluation_tasks([MIX[1], EASY, EnvChoice.parse("game:GuessTheNumber-v0-easy=2")], 8)
    named = [EnvChoice.parse(f"game:GuessTheNumber-v0-easy as {name}") for name in ("a", "b")]
    assert len(evaluation_tasks(named, 8)) == 8


@pytest.mark.parametrize(
    "value", [5, None, b"game:Wordle-v0", ["game:Wordle-v0"], EnvChoice("game:Wordle-v0")]
)
def test_what_is_no_text_is_no_environment(value):
    with pytest.raises(ConfigError, match="is not an environment: expected an id"):
        EnvChoice.parse(value)

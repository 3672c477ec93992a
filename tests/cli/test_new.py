"""`gem-core new`, and ids that name a class in a file."""

from __future__ import annotations

import importlib
import json
import pickle
import sys

import pytest

import gem_core
from gem_core import EnvSpec, make_vec
from gem_core.errors import ConfigError
from gem_core.tasks import EnvChoice, make_tasks
from gem_lab import check_env, main
from gem_lab._cli.new import _KINDS
from tests.test_public import PRIVATE


@pytest.fixture
def file_id(tmp_path, monkeypatch, capsys):
    """Id of a new environment in the current folder."""
    monkeypatch.chdir(tmp_path)
    assert main(["new", "HotCold"]) == 0
    assert "next: gem-core check hot_cold.py:HotCold" in capsys.readouterr().err
    return "hot_cold.py:HotCold"


def test_a_new_environment_keeps_every_rule(file_id, capsys):
    assert main(["check", file_id, "--json"]) == 0
    (result,) = json.loads(capsys.readouterr().out)
    assert result["not_applicable"] == ["labels_are_right"]


def test_a_class_in_a_file_works_like_a_registered_environment(file_id, tmp_path, monkeypatch, capsys):
    spec = gem_core.spec(file_id)
    (row,) = make_tasks([EnvChoice.parse(f"{file_id}(max_number=9)")], 1, split="train")
    monkeypatch.chdir("/")
    env = gem_core.make(EnvSpec.from_json(spec.to_json()))
    assert pickle.loads(pickle.dumps(type(env))) is type(env)
    assert type(env) is type(gem_core.make(row["env_id"], **row["env_kwargs"]))  # executed once
    with make_vec([row["env_id"]] * 2, backend="process") as vec:
        observations, _ = vec.reset(seed=1)
        assert len(observations) == 2
    words = ["eval", "--model", "oracle", "--env", row["env_id"], "--episodes", "2", "--json"]
    assert main([*words, "--out", str(tmp_path / "run")]) == 0
    assert json.loads(capsys.readouterr().out)["overall"]["success"]["mean"] == 1


def test_mistakes_in_the_id_of_a_file(file_id, tmp_path):
    with pytest.raises(ConfigError, match=r"nowhere\.py does not exist"):
        gem_core.make("nowhere.py:HotCold")
    with pytest.raises(ConfigError, match=r"there is no 'ColdHot' in .*hot_cold\.py"):
        gem_core.make("hot_cold.py:ColdHot")
    with pytest.raises(TypeError, match="accepted keyword arguments: max_number, max_turns"):
        gem_core.make(file_id, color="red")
    (tmp_path / "leaves.py").write_text("import sys\nsys.exit(3)")
    with pytest.raises(ConfigError, match=r"leaves\.py:2 cannot be imported: SystemExit: 3"):
        gem_core.make("leaves.py:Env")
    (tmp_path / "broken.py").write_text("1 / 0")
    for _ in range(2):  # a file that failed is not cached
        with pytest.raises(ConfigError, match=r"broken\.py:1 cannot be imported: ZeroDivisionError"):
            gem_core.make("broken.py:Env")


def test_a_package_registers_its_environment(tmp_path, monkeypatch, capsys):
    from gem_core import _registration

    folder = tmp_path / "warm"
    assert main(["new", "WarmCold", "--package", "--out", str(folder)]) == 0
    shown = capsys.readouterr().err
    assert f"next: pip install -e {folder}" in shown
    assert "next: gem-core check warmcold:WarmCold-v0" in shown
    assert 'warm_cold = "warm_cold:register_envs"' in (folder / "pyproject.toml").read_text()
    monkeypatch.setattr(_registration._envs, "_values", _registration._envs.registered())
    monkeypatch.syspath_prepend(folder)
    importlib.import_module("warm_cold").register_envs()
    check_env("warmcold:WarmCold-v0", rules=["floor_holds", "best_return", "specs_travel"])
    compile((folder / "test_warm_cold.py").read_text(), "test_warm_cold.py", "exec")
    for name in ("warm_cold", "warm_cold.env"):
        monkeypatch.delitem(sys.modules, name)


@pytest.mark.parametrize("kind", _KINDS)
def test_a_new_environment_imports_public_names_only(kind):
    assert "import" in _KINDS[kind][0]
    assert not PRIVATE.search(_KINDS[kind][0])


def test_nothing_is_overwritten(file_id, capsys):
    assert main(["new", "HotCold"]) == 2
    assert "hot_cold.py exists already" in capsys.readouterr().err
    assert main(["new", "hot-cold"]) == 2
    assert "'hot-cold' is not the name of a class" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        ("Random", "game"),
        ("MoveResult", "game"),
        ("TurnBasedEnv", "game"),
        ("Price", "tool"),
        ("Tools", "tool"),
        ("ToolResult", "tool"),
        ("Env", "tool"),
        ("ITEMS", "tool"),
        ("None", "game"),
        ("True", "tool"),
        ("Json", "game"),
        ("Random", "tool"),
    ],
)
def test_a_name_that_would_break_the_file_or_hide_a_module_is_refused(
    name, kind, tmp_path, monkeypatch, capsys
):
    monkeypatch.chdir(tmp_path)
    assert main(["new", name, "--kind", kind]) == 2
    assert "choose another name" in capsys.readouterr().err
    assert not [*tmp_path.iterdir()]


def test_the_next_commands_can_be_copied(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    assert main(["new", "HotCold", "--out", "my files"]) == 0
    assert "next: gem-core check 'my files/hot_cold.py:HotCold'" in capsys.readouterr().err
    assert main(["new", "WarmCold", "--package", "--out", "my package"]) == 0
    assert "next: pip install -e 'my package'" in capsys.readouterr().err


@pytest.fixture
def tool_id(tmp_path, monkeypatch, capsys):
    """Id of a new environment with a tool in the current folder."""
    monkeypatch.chdir(tmp_path)
    assert main(["new", "Prices", "--kind", "tool"]) == 0
    assert "next: gem-core check prices.py:Prices" in capsys.readouterr().err
    return "prices.py:Prices"


@pytest.mark.once
def test_a_new_environment_with_a_tool_keeps_every_rule(tool_id, capsys):
    assert main(["check", tool_id, "--json"]) == 0
    (result,) = json.loads(capsys.readouterr().out)
    assert result["not_applicable"] == ["labels_are_right"]


def test_its_tool_rewards_useful_calls_once_and_its_state_continues(tool_id):
    env = gem_core.make(tool_id)
    observation, _ = env.reset(seed=0)
    assert "<price>" in observation
    task = env.unwrapped
    one, other = task.wanted
    idle = next(item for item in task.prices if item not in task.wanted)
    texts = [f"<price>{item}</price>" for item in (idle, one, one)]
    steps = [env.step(text) for text in texts]
    assert [step[1] for step in steps] == [0.0, 0.1, 0.0]
    assert f"{task.prices[one]} cents" in steps[1][0]
    saved = json.loads(json.dumps(env.get_state()))
    rest = [
        f"<price>{one}</price>",
        f"<price>{other}</price>",
        f"\\boxed{{{sum(map(task.prices.get, task.wanted))}}}",
    ]
    played = [env.step(text) for text in rest]
    assert [step[1] for step in played] == [0.0, 0.1, 0.8]
    assert played[-1][4]["success"]
    sibling = gem_core.make(tool_id)
    sibling.reset(seed=5, options={"state": saved})
    assert [sibling.step(text) for text in rest] == played
    assert sibling.unwrapped.prices == task.prices


def test_the_players_of_a_new_environment_with_a_tool(tool_id, tmp_path, capsys):
    for player in ("oracle", "random"):
        words = ["eval", "--model", player, "--env", tool_id, "--episodes", "40", "--json"]
        assert main([*words, "--out", str(tmp_path / player)]) == 0
        summary = json.loads(capsys.readouterr().out)["envs"]
        (summary,) = summary.values()
        solved = (summary["return"]["mean"], summary["success"]["mean"], summary["metrics"]["gem/tool_calls"])
        assert (solved == (pytest.approx(1), 1, 2)) == (player == "oracle")
        assert summary["metrics"]["gem/tool_calls"] > 0


def test_a_package_with_a_tool_registers_its_environment(tmp_path, monkeypatch, capsys):
    from gem_core import _registration

    folder = tmp_path / "tooled"
    assert main(["new", "WarmPrices", "--kind", "tool", "--package", "--out", str(folder)]) == 0
    monkeypatch.setattr(_registration._envs, "_values", _registration._envs.registered())
    monkeypatch.syspath_prepend(folder)
    importlib.import_module("warm_prices").register_envs()
    check_env("warmprices:WarmPrices-v0", rules=["floor_holds", "best_return", "specs_travel"])
    for name in ("warm_prices", "warm_prices.env"):
        monkeypatch.delitem(sys.modules, name)

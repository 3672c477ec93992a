import json

import pytest

from gem_core.errors import ConfigError
from gem_lab import main
from gem_lab.eval._trust import check_trusted

GAME = "game:GuessTheNumber-v0-easy"


@pytest.mark.parametrize(
    ("envs", "wrappers"),
    [
        ([GAME], "tools(tools=\"mcp(command='touch PWNED')\")"),
        ([GAME], "tools(tools='mcp(config=\"servers.json\")')"),
        ([GAME], "tools(tools=\"mcp(url='http://evil.example/mcp')\")"),
        ([GAME], "evil.py:Wrapper"),
        ([GAME], "os:system"),
        ([GAME], "tools(tools=\"python(level='process')\")"),
        ([f"{GAME}(wrappers=\"tools(tools='mcp(command=x)')\")"], ""),
        (["/tmp/evil.py:Env"], ""),
        (["evil.py:Env as game"], ""),
        (["not:Registered"], ""),
        ([GAME, "service:TauBench-v0(root='/tmp/evil')"], ""),
        (["terminal:Tasks-v0(folder='evil')"], ""),
        (["service:Shop-v0(user='http://evil.example')"], ""),
        ([f"{GAME}(difficulty='../x')"], None),
    ],
)
def test_programs_of_a_recorded_run_need_trust(envs, wrappers):
    with pytest.raises(ConfigError, match="--trust-run") as error:
        check_trusted({"env": envs, "wrappers": wrappers})
    assert (wrappers or envs[-1]) in str(error.value)


def test_plain_runs_need_none():
    envs = [GAME, f"{GAME}(max_number=50) as guess", "math:Arithmetic-v0"]
    check_trusted({"env": envs, "wrappers": "tools(tools='python'), concat_with_action"})
    check_trusted({"env": envs})


def test_rescore_runs_no_command_of_the_folder(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    assert main(["eval", "--model", "random", "--env", GAME, "--episodes", "1", "--out", "a"]) == 0
    config = json.loads((tmp_path / "a" / "config.json").read_text())
    config["env"] = ["evil.py:Evil"]
    (tmp_path / "evil.py").write_text("import pathlib\npathlib.Path('PWNED').touch()\nclass Evil: pass\n")
    (tmp_path / "a" / "config.json").write_text(json.dumps(config))
    assert main(["eval", "--rescore", "a", "--out", "b"]) == 2
    assert "evil.py:Evil" in capsys.readouterr().err
    assert not (tmp_path / "PWNED").exists()
    assert not (tmp_path / "b").exists()
    assert main(["eval", "--rescore", "a", "--out", "b", "--trust-run"]) == 2  # it is no environment
    assert (tmp_path / "PWNED").exists()
    assert main(["eval", "--model", "random", "--env", GAME, "--trust-run"]) == 2


def test_a_password_reaches_no_file(tmp_path):
    from gem_core.tasks import EnvChoice
    from gem_lab.eval import EvalConfig
    from gem_lab.eval._folder import begin, read_config

    url = "http://user:PASSW0RD@127.0.0.1:1/v1?api_key=PASSW0RD"
    config = EvalConfig(
        model="endpoint:m", env=[GAME], base_url=url, wrappers=f"tools(tools=\"mcp(url='{url}')\")"
    )
    begin(config, tmp_path)
    assert "PASSW0RD" not in (tmp_path / "config.json").read_text()
    assert not config.differences(read_config(tmp_path))
    assert "PASSW0RD" not in EnvChoice.parse(f"openenv:Env(url='{url}')").label


def test_a_password_reaches_no_page_and_no_output(tmp_path, capsys):
    from gem_core.rollout import Episode, Turn
    from gem_lab.eval._viewer import write_page

    url = "http://user:PASSW0RD@127.0.0.1:1/v1"
    turn = Turn([], [], None, 0.0, observation="o", action="a", finish_reason="stop")
    episode = Episode(
        f"x(url='{url}')", 0, [turn], terminated=True, truncated=False, stop_reason="terminated",
        env_kwargs={"url": url}, metadata={"env": f"x(url='{url}')", "deep": [{"a": url}]},
    )  # fmt: skip
    write_page([episode], tmp_path / "page.html")
    assert "PASSW0RD" not in (tmp_path / "page.html").read_text()
    assert "PASSW0RD" not in json.dumps(episode.to_dict()["env_kwargs"])
    wrapper = f"tools(tools=\"mcp(url='{url}', connect_timeout=1)\")"
    for words in (
        ["play", f"openenv:Env(url='{url}')"],
        ["eval", "--model", "random", "--env", GAME, "--wrappers", wrapper],
    ):
        assert main([*words, *(["--out", str(tmp_path / "run")] if words[0] == "eval" else [])]) != 0
    shown = capsys.readouterr()
    assert "PASSW0RD" not in shown.out + shown.err

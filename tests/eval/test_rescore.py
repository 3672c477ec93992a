"""`rescore`: recorded answers are graded again, and nothing is scored whose observations have changed."""

from __future__ import annotations

import json
import shutil

import pytest

from gem_chat import MessagesContext
from gem_core.errors import ConfigError
from gem_core.rollout import ChatReply
from gem_envs._games.guess_the_number import GuessTheNumber
from gem_lab import main
from gem_lab.eval import EvalConfig, PolicySetup, evaluate, read_run, rescore
from gem_lab.eval._token_texts import read_token_texts

EASY, CODE = "game:GuessTheNumber-v0-easy", "game:Mastermind-v0-easy"


@pytest.fixture(scope="module")
def recorded(tmp_path_factory):
    folder = tmp_path_factory.mktemp("recorded") / "run"
    evaluate(EvalConfig("random", [EASY, CODE], episodes=6, group_size=2, out=str(folder)))
    return folder


@pytest.fixture
def run(recorded, tmp_path):
    return shutil.copytree(recorded, tmp_path / "run")


def rewritten(run, change):
    """Apply a change to each recorded line."""
    lines = [json.loads(line) for line in (run / "episodes.jsonl").read_text().splitlines()]
    for line in lines:
        change(line)
    (run / "episodes.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    return run


def test_without_a_change_every_score_is_the_same(run, capsys):
    assert main(["eval", "--rescore", str(run), "--concurrency", "3", "--json"]) == 0
    answer = json.loads(capsys.readouterr().out)
    assert (answer["scored"], answer["differences"], answer["unscored"]) == (24, [], [])
    old, new = read_run(run), read_run(f"{run}-rescored")
    assert new.summary == old.summary
    assert new.config["rescored_from"] == str(run)
    for before, after in zip(old.episodes, new.episodes, strict=True):
        assert after.turns == before.turns
        assert after.stop_reason == before.stop_reason
        assert after.metadata == {**before.metadata, "rescored": True}


def test_a_changed_grader_is_listed_episode_by_episode(run, tmp_path, monkeypatch, capsys):
    old = read_run(run)
    monkeypatch.setattr(GuessTheNumber, "limit_reward", lambda self: 0.125)
    result = rescore(run, tmp_path / "new")
    lost = {
        (episode.metadata["task"], episode.metadata["sample"]): episode.total_reward
        for episode in old.episodes
        if episode.env_id == EASY and episode.stop_reason == "truncated"
    }
    assert lost
    assert {(item["task"], item["sample"]): item["return"] for item in result.differences} == {
        key: [total, 0.125] for key, total in lost.items()
    }
    assert {(item["env"], *item["success"]) for item in result.differences} == {(EASY, False, False)}
    assert (result.scored, result.unscored) == (24, [])
    assert result.summary["envs"][CODE] == old.summary["envs"][CODE]
    assert main(["eval", "--rescore", str(run), "--out", str(tmp_path / "cli")]) == 0
    shown = capsys.readouterr()
    assert f"{EASY}: all episodes are finished" in shown.err
    assert "Scores that changed" in shown.out
    assert f"{len(lost)} scores changed" in shown.err


def play(change):
    original = GuessTheNumber.play
    return lambda self, move: change(self, move, original(self, move))


@pytest.mark.parametrize(
    ("name", "patched", "reason", "at_least"),
    [
        ("rules", lambda self: "New rules.", "observation before answer 1 has changed", 1),
        ("play", play(lambda s, m, r: (f"{r[0]} Really.", *r[1:])), "before answer 2 has changed", 2),
        ("play", play(lambda s, m, r: ("Right.", 1.0, "solved")), "now ends after answer 1 of", 2),
        (
            "play",
            play(lambda s, m, r: ("No.", 0.0, "continue") if r[2] == "solved" else r),
            "no longer ends with the last answer",
            None,
        ),
        ("play", lambda self, move: 1 / 0, "the environment failed: ", 1),
    ],
)
def test_an_episode_whose_course_changes_is_reported_and_not_scored(
    name, patched, reason, at_least, run, tmp_path, monkeypatch, capsys
):
    old = [episode for episode in read_run(run).episodes if episode.env_id == EASY]
    monkeypatch.setattr(GuessTheNumber, name, patched)
    result = rescore(run, tmp_path / "new")
    expected = [
        episode
        for episode in old
        if (
            episode.success and len(episode.turns) < 4 if at_least is None else len(episode.turns) >= at_least
        )
    ]
    assert expected
    assert [(item["env"], item["task"], item["sample"]) for item in result.unscored] == [
        (EASY, episode.metadata["task"], episode.metadata["sample"]) for episode in expected
    ]
    assert all(reason in item["reason"] for item in result.unscored)
    assert result.scored == 24 - len(expected)
    results = result.summary["envs"][EASY]
    assert (results["errors"], results["episodes"]) == (len(expected), 12 - len(expected))
    assert main(["eval", "--rescore", str(run), "--out", str(tmp_path / "cli")]) == 1
    assert f"{len(expected)} not scored" in capsys.readouterr().err


def test_a_task_that_is_no_longer_the_same(run, tmp_path):
    def change(line):
        if line["env_id"] == EASY and line["metadata"]["task"] == 1:
            line["seed"] += 1

    result = rescore(rewritten(run, change), tmp_path / "new")
    assert [(item["task"], item["sample"]) for item in result.unscored] == [(1, 0), (1, 1)]
    assert "the task has changed" in result.unscored[0]["reason"]


def test_tokens_and_early_ends_are_kept(run, tmp_path):
    def change(line):
        line["context_mode"], line["token_text"] = "append", {"1": "a", "2": "b"}
        for turn in line["turns"]:
            turn.update(context_ids=[1], response_ids=[2], logprobs=[-0.5], advantage=1.0)
        if len(line["turns"]) > 1:  # the model's context was full
            line["turns"] = line["turns"][:1]
            line.update(terminated=False, truncated=True, stop_reason="token_budget")
            line["turns"][0]["info"]["final_obs"] = "as recorded"

    result = rescore(rewritten(run, change), tmp_path / "new")
    assert result.unscored == []
    episodes = read_run(tmp_path / "new").episodes
    assert {turn.response_ids[0] for episode in episodes for turn in episode.turns} == {2}
    assert {turn.advantage for episode in episodes for turn in episode.turns} == {None}
    assert "token_budget" in {episode.stop_reason for episode in episodes}
    assert all(episode.truncated != episode.terminated for episode in episodes)
    assert read_token_texts(tmp_path / "new" / "episodes.jsonl") == {1: "a", 2: "b"}


def test_truncated_and_empty_answers_and_failed_episodes(tmp_path):
    class Cut:
        async def reply(self, messages, *, max_tokens, request_id):
            return ChatReply("\\boxed{1} and so on", "length", 7, 2) if len(messages) > 1 else ChatReply("")

    config = EvalConfig(
        "m", [EASY], episodes=2, max_turns=3, out=str(tmp_path / "run"), system_prompt="Play."
    )
    evaluate(config, setup=PolicySetup(Cut(), MessagesContext(system_prompt="Play.")))
    lines = (tmp_path / "run" / "episodes.jsonl").read_text().splitlines()
    failed = {**json.loads(lines[1]), "error": "it broke", "trainable": False, "stop_reason": "env_error"}
    (tmp_path / "run" / "episodes.jsonl").write_text(f"{lines[0]}\n{json.dumps(failed)}\n")
    result = rescore(tmp_path / "run", tmp_path / "new")
    assert [item["reason"] for item in result.unscored] == ["it broke"]
    old, new = read_run(tmp_path / "run"), read_run(tmp_path / "new")
    assert new.episodes[0].turns == old.episodes[0].turns  # with the recorded texts of cut answers


def test_mistakes_are_reported_in_one_line(run, tmp_path, capsys):
    (tmp_path / "empty").mkdir()
    for words, message in [
        (["--rescore", str(tmp_path / "empty")], "config.json does not exist"),
        (["--rescore", str(run), "--out", str(run)], "holds a run already"),
        (["--rescore", str(run), "--model", "oracle", "--episodes", "3"], "omit --episodes, --model"),
        (["--model", "oracle"], "expected --env, or --rescore RUN"),
    ]:
        assert main(["eval", *words]) == 2
        error = capsys.readouterr().err
        assert message in error
        assert error.count("\n") == 1
    (run / "episodes.jsonl").write_text("")
    with pytest.raises(ConfigError, match="no episodes to score"):
        rescore(run, tmp_path / "new")


def test_an_environment_with_a_name_of_its_own(tmp_path, capsys):
    out = str(tmp_path / "named")
    envs = [f"{EASY} as easy", f"{EASY}(max_turns=3) as short", CODE]
    words = ["eval", "--model", "random", "--env", *envs, "--episodes", "3", "--out", out]
    assert main(words) == 0
    assert list(read_run(out).summary["envs"]) == ["easy", "short", CODE]
    assert main(words) == 0  # it is continued, not refused
    capsys.readouterr()
    assert main(["eval", "--rescore", out, "--json"]) == 0
    answer = json.loads(capsys.readouterr().out)
    assert (answer["scored"], answer["differences"], list(answer["summary"]["envs"])) == (
        9, [], ["easy", "short", CODE]
    )  # fmt: skip
    with pytest.raises(ConfigError, match="are named 'easy'"):
        EvalConfig("random", [f"{EASY} as easy", f"{CODE} as easy"])


def test_a_suite_in_a_file_with_wrappers_for_one_environment(tmp_path, capsys):
    suite = tmp_path / "suite.txt"
    history = f"{EASY}(wrappers='concat_with_action') as history"
    suite.write_text(f"# games\n\n{EASY}\n  {history}\n")
    out = str(tmp_path / "run")
    words = ["eval", "--model", "random", "--env", f"@{suite}", CODE, "--episodes", "2", "--out", out]
    assert main(words) == 0
    run = read_run(out)
    assert list(run.summary["envs"]) == [EASY, "history", CODE]
    last = {episode.metadata["env"]: episode.turns[-1].observation for episode in run.episodes}
    assert len(last["history"]) > len(last[EASY])  # the earlier turns are shown again
    capsys.readouterr()
    assert main(["eval", "--rescore", out, "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["differences"] == []
    assert main(["eval", "--model", "random", "--env", "@none.txt", "--out", out]) == 2
    assert "--env @none.txt: No such file" in capsys.readouterr().err
    assert main(["check", f"{EASY}(wrappers='time_limit(max_turns=2)')", "--rules", "signatures"]) == 0

"""Evaluations from a user's perspective: resumed, interrupted, and with a failing endpoint."""

from __future__ import annotations

import collections
import itertools
import json
import signal
import subprocess
import sys
import time
from statistics import fmean

import pytest

from gem_chat import MessagesContext
from gem_core import list_envs
from gem_core.errors import ConfigError, GemError, TraceError
from gem_core.rollout import ChatReply
from gem_lab import main
from gem_lab._run_folders import claimed
from gem_lab.eval import EvalConfig, PolicySetup, evaluate
from gem_lab.eval._folder import finished
from tests.engines.stub import Flaky, StubEndpoint, guess
from tests.trainers.spies import gem_trouble

EASY, CODE = "game:GuessTheNumber-v0-easy", "game:Mastermind-v0-easy"


class Guesser:
    """A `ChatPolicy` that needs no server."""

    def __init__(self) -> None:
        self.calls = 0

    async def reply(self, messages, *, max_tokens, request_id):
        self.calls += 1
        if self.calls > getattr(self, "stop_after", 10**9):
            raise KeyboardInterrupt
        return ChatReply(f"\\boxed{{{len(request_id) % 7 + len(messages)}}}", "stop", 10, 2)


def config(out, **options) -> EvalConfig:
    given = {"model": "guesser", "env": [EASY, CODE], "episodes": 6, "max_turns": 3, "out": str(out)}
    return EvalConfig(**{**given, **options})


def test_a_run_and_what_it_leaves(tmp_path):
    policy = Guesser()
    outcome = evaluate(config(tmp_path, group_size=2, price_in=1.0, price_out=10.0),
                       setup=PolicySetup(policy, MessagesContext()))  # fmt: skip
    assert (outcome.played, len(outcome.episodes)) == (24, 24)
    summary = json.loads((tmp_path / "summary.json").read_text())
    assert summary == {**outcome.summary, "schema_version": 1}
    assert list(summary["envs"]) == [EASY, CODE]
    easy = summary["envs"][EASY]
    assert (easy["tasks"], easy["episodes"]) == (6, 12)
    assert summary["overall"]["prompt_tokens"] == 10 * policy.calls
    assert summary["overall"]["cost"] == pytest.approx(policy.calls * (10 * 1.0 + 2 * 10.0) / 1e6)
    assert outcome.episodes[0].context_mode == "messages"
    assert outcome.episodes[0].turns[0].info["reply"] == {"prompt_tokens": 10, "response_tokens": 2}


@pytest.mark.parametrize(
    ("prices", "cost_of_a_call"),
    [({"price_in": 1.0}, 10 * 1.0), ({"price_out": 10.0}, 2 * 10.0), ({}, None)],
)
def test_one_price_is_enough_for_a_cost(tmp_path, prices, cost_of_a_call):
    policy = Guesser()
    run = config(tmp_path, env=[EASY], episodes=2, **prices)
    outcome = evaluate(run, setup=PolicySetup(policy, MessagesContext()))
    expected = None if cost_of_a_call is None else pytest.approx(policy.calls * cost_of_a_call / 1e6)
    assert policy.calls > 0
    assert outcome.summary["overall"]["cost"] == expected
    assert outcome.summary["envs"][EASY]["cost"] == expected


def test_episodes_of_unknown_length_have_no_cost(tmp_path):
    class Silent(Guesser):
        async def reply(self, *args, **kwargs):
            return ChatReply((await super().reply(*args, **kwargs)).text)

    run = config(tmp_path, env=[EASY], episodes=2, price_in=1.0, price_out=1.0)
    outcome = evaluate(run, setup=PolicySetup(Silent(), MessagesContext()))
    assert outcome.summary["overall"]["cost"] is None


@pytest.mark.parametrize(("limit", "warnings"), [({}, 1), ({"max_tokens_per_turn": 100}, 0)])
def test_a_default_limit_that_cuts_answers_triggers_a_warning(limit, warnings, tmp_path, caplog):
    class Talker:
        async def reply(self, messages, *, max_tokens, request_id):
            return ChatReply("Let me think.", "length")

    given = {"env": [CODE], "episodes": 100, "max_turns": 3, "on_length_cut": "pass", **limit}
    evaluate(config(tmp_path, **given), setup=PolicySetup(Talker(), MessagesContext()))
    said = [record.getMessage() for record in caplog.records]
    assert len(said) == warnings
    assert all("cut at 1024 tokens" in one and "raise max_tokens_per_turn" in one for one in said)


@pytest.mark.parametrize("on_env_error", ["mask", "retry"])
def test_failed_episodes_are_counted_but_excluded_from_all_figures(on_env_error, tmp_path, monkeypatch):
    monkeypatch.setenv("GEM_CHAOS", str(tmp_path))
    monkeypatch.setattr(gem_trouble, "_resets", collections.Counter())
    monkeypatch.setattr(gem_trouble, "_instances", itertools.count())
    gem_trouble.register()
    outcome = evaluate(
        config(tmp_path / "run", env=["test:Chaos-v0(hang=1.5, p=0.15)"], episodes=30, concurrency=30,
               step_timeout=0.7, on_env_error=on_env_error),
        setup=PolicySetup(Guesser(), MessagesContext()),
    )  # fmt: skip
    summary = outcome.summary["overall"]
    played = [episode for episode in outcome.episodes if episode.error is None]
    failed = len(outcome.episodes) - len(played)
    assert (summary["episodes"], summary["errors"]) == (len(played), failed)
    assert summary["return"]["mean"] == pytest.approx(fmean(e.total_reward for e in played))
    attempts = sum(episode.env_retries for episode in outcome.episodes)
    counts = gem_trouble.chaos_counts(tmp_path)
    planted = sum(n for (call, _), n in counts.items() if call != "close")
    assert 5 < planted <= attempts + failed <= planted + 3  # a correct call may be late, too
    assert (attempts > failed) == (on_env_error == "retry")


def test_the_oracle_and_random_players(tmp_path):
    oracle = evaluate(config(tmp_path / "oracle", model="oracle", max_turns=None))
    assert oracle.summary["overall"]["return"]["mean"] == 1
    random = evaluate(config(tmp_path / "random", model="random", group_size=2))
    again = evaluate(config(tmp_path / "again", model="random", group_size=2))
    assert random.summary["envs"] == again.summary["envs"]
    actions = [[turn.action for turn in episode.turns] for episode in random.episodes]
    assert actions[0] != actions[1]  # two samples of a task
    other = evaluate(config(tmp_path / "other", model="random", group_size=2, seed=1))
    assert [[turn.action for turn in episode.turns] for episode in other.episodes] != actions


def test_a_finished_run_is_not_played_again(tmp_path):
    first = evaluate(config(tmp_path), setup=PolicySetup(Guesser(), MessagesContext()))
    policy = Guesser()
    second = evaluate(config(tmp_path, concurrency=2), setup=PolicySetup(policy, MessagesContext()))
    assert (second.played, policy.calls) == (0, 0)
    assert second.summary == first.summary


def test_an_interrupted_run_continues_to_the_same_numbers(tmp_path):
    whole = evaluate(config(tmp_path / "whole"), setup=PolicySetup(Guesser(), MessagesContext()))
    policy = Guesser()
    policy.stop_after = 11
    with pytest.raises(KeyboardInterrupt):
        evaluate(config(tmp_path / "cut", concurrency=2), setup=PolicySetup(policy, MessagesContext()))
    done = len(finished(tmp_path / "cut"))
    assert 0 < done < 12
    with open(tmp_path / "cut" / "episodes.jsonl", "ab") as file:
        file.write(b'{"schema_version": 1, "env')  # an incomplete line, as left by a killed process
    rest = evaluate(config(tmp_path / "cut"), setup=PolicySetup(Guesser(), MessagesContext()))
    assert rest.played == 12 - done
    assert rest.summary == whole.summary


def test_two_configurations_are_not_mixed(tmp_path):
    evaluate(config(tmp_path), setup=PolicySetup(Guesser(), MessagesContext()))
    before = (tmp_path / "episodes.jsonl").read_bytes()
    with pytest.raises(ConfigError, match=r"other options \(episodes: 6 then, 5 now; seed: 0 then, 1 now\)"):
        evaluate(config(tmp_path, episodes=5, seed=1), setup=PolicySetup(Guesser(), MessagesContext()))
    assert (tmp_path / "episodes.jsonl").read_bytes() == before


def test_episodes_of_two_versions_of_a_file_are_not_mixed(tmp_path):
    file = tmp_path / "mine.py"
    file.write_text("from gem_envs._games.guess_the_number import GuessTheNumber as Mine\n")
    options = {"model": "random", "env": [f"{file}:Mine"], "out": str(tmp_path / "run")}
    evaluate(EvalConfig(**options, episodes=2))
    assert evaluate(EvalConfig(**options, episodes=3)).played == 1
    file.write_text(file.read_text() + "Mine.format_error_reward = -1.0\n")
    with pytest.raises(
        ConfigError, match=r"other options \(episodes: 3 then, 2 now; .*mine\.py has changed\)"
    ):
        evaluate(EvalConfig(**options, episodes=2))


def test_more_episodes_and_samples_extend_a_run(tmp_path):
    setup = PolicySetup(Guesser(), MessagesContext())
    evaluate(config(tmp_path / "run", episodes=4), setup=setup)
    before = (tmp_path / "run" / "episodes.jsonl").read_bytes()
    stopped = Guesser()
    stopped.stop_after = 3
    with pytest.raises(KeyboardInterrupt):
        evaluate(config(tmp_path / "run", group_size=2), setup=PolicySetup(stopped, MessagesContext()))
    assert not (tmp_path / "run" / "summary.json").exists()
    extended = evaluate(config(tmp_path / "run", group_size=2), setup=setup)
    assert (tmp_path / "run" / "episodes.jsonl").read_bytes().startswith(before)
    whole = evaluate(config(tmp_path / "whole", group_size=2), setup=setup)
    assert extended.summary == whole.summary
    assert json.loads((tmp_path / "run" / "config.json").read_text())["episodes"] == 6


def test_a_run_that_finished_nothing_does_not_keep_its_folder(tmp_path):
    class Silent:
        async def reply(self, messages, *, max_tokens, request_id):
            raise ConfigError("no answer")

    with pytest.raises(ConfigError, match="no answer"):
        evaluate(config(tmp_path, episodes=2), setup=PolicySetup(Silent(), MessagesContext()))
    outcome = evaluate(config(tmp_path, seed=1), setup=PolicySetup(Guesser(), MessagesContext()))
    assert outcome.played == 12
    assert json.loads((tmp_path / "config.json").read_text())["seed"] == 1


def test_wrappers_that_cannot_be_built_are_reported_before_anything_is_written(tmp_path):
    wrong = config(tmp_path / "out", wrappers="time_limit(max_turns=0)")
    with pytest.raises(GemError, match="max_turns=0"):
        evaluate(wrong, setup=PolicySetup(Guesser(), MessagesContext()))
    assert not (tmp_path / "out").exists()


def test_one_run_at_a_time(tmp_path):
    with claimed(tmp_path, "evaluation"), pytest.raises(ConfigError, match="another evaluation is running"):
        evaluate(config(tmp_path), setup=PolicySetup(Guesser(), MessagesContext()))


def test_episodes_of_something_else(tmp_path):
    (tmp_path / "episodes.jsonl").write_text("")
    with pytest.raises(ConfigError, match=r"holds episodes\.jsonl without config\.json"):
        evaluate(config(tmp_path), setup=PolicySetup(Guesser(), MessagesContext()))
    evaluate(config(tmp_path / "run"), setup=PolicySetup(Guesser(), MessagesContext()))
    path = tmp_path / "run" / "episodes.jsonl"
    path.write_text(path.read_text() + path.read_text().splitlines()[0] + "\n")
    with pytest.raises(TraceError, match="twice"):
        evaluate(config(tmp_path / "run"), setup=PolicySetup(Guesser(), MessagesContext()))


def test_a_model_that_answers_nothing_or_too_much(tmp_path):
    class Says:
        def __init__(self, *reply):
            self.answer = ChatReply(*reply)

        async def reply(self, messages, *, max_tokens, request_id):
            assert all(message["content"] for message in messages)
            return self.answer

    options = {"episodes": 2, "max_turns": None}
    for index, (said, kind) in enumerate([(("",), "format"), (("x" * 1_000_000, "length"), "length")]):
        outcome = evaluate(config(tmp_path / str(index), **options),
                           setup=PolicySetup(Says(*said), MessagesContext()))  # fmt: skip
        for summary in outcome.summary["envs"].values():
            assert (summary["episodes"], summary["errors"], summary["success"]["mean"]) == (2, 0, 0)
            assert set(summary["invalid"]) == {kind}
            assert summary["turns"]["mean"] < 100


# -- through the command, with an endpoint ------------------------------------------------------


def command(url: str, out, *more: str) -> list[str]:
    words = ["eval", "--model", "a-model", "--base-url", url, "--env", EASY, CODE, "--out", str(out)]
    return [*words, "--episodes", "8", "--max-turns", "3", *more]


@pytest.fixture
def openai():
    return pytest.importorskip("openai", reason="needs the extra 'eval'")


@pytest.mark.long
def test_half_of_the_calls_fail_and_no_result_changes(openai, tmp_path, capsys):
    with StubEndpoint() as endpoint, Flaky(endpoint.url) as flaky:
        assert main(command(endpoint.url, tmp_path / "direct")) == 0
        assert main(command(flaky.url, tmp_path / "flaky")) == 0
    direct, through = (
        json.loads((tmp_path / name / "summary.json").read_text()) for name in ("direct", "flaky")
    )
    assert through["envs"] == direct["envs"]
    assert flaky.failed > 20
    assert "calls failed and were retried" in capsys.readouterr().err
    assert endpoint.most_at_once <= 8


def test_a_killed_run_continues_to_the_same_numbers(openai, tmp_path, monkeypatch):
    monkeypatch.setenv("OPENAI_API_KEY", "a key")
    answered = []

    def slowly(request):
        answered.append(request)
        time.sleep(0.05)
        return guess(request)

    with StubEndpoint(slowly) as endpoint:
        assert main(command(endpoint.url, tmp_path / "whole")) == 0
        requests = len(answered)
        cut = command(endpoint.url, tmp_path / "cut", "--concurrency", "2")
        process = subprocess.Popen(
            [sys.executable, "-m", "gem_lab", *cut], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
        )
        trace = tmp_path / "cut" / "episodes.jsonl"
        while not trace.exists() or trace.read_bytes().count(b"\n") < 4:
            assert process.poll() is None
            time.sleep(0.01)
        process.send_signal(signal.SIGKILL)
        process.wait()
        kept = trace.read_bytes()
        kept = kept[: kept.rfind(b"\n") + 1]
        assert not (tmp_path / "cut" / "summary.json").exists()
        answered.clear()
        assert main(cut) == 0
    assert trace.read_bytes().startswith(kept)  # nothing is played or written again
    assert len(answered) < requests
    first, second = ((tmp_path / name / "summary.json").read_text() for name in ("whole", "cut"))
    assert first == second


def test_a_wrong_key_and_a_dead_endpoint_are_reported_in_one_line(openai, tmp_path, capsys, monkeypatch):
    monkeypatch.setenv("MY_KEY", "sk-wrong-123")
    with StubEndpoint(key="right") as endpoint:
        url = endpoint.url
        assert main(command(url, tmp_path / "a", "--api-key-env", "MY_KEY")) == 2
        last = capsys.readouterr().err.splitlines()[-1]
        assert last.startswith(f"gem-core: error: {url}/ rejects the key")
        monkeypatch.setenv("MY_KEY", "right")
        assert main(command(url, tmp_path / "a", "--api-key-env", "MY_KEY")) == 0  # resumes the run
    for path in (tmp_path / "a").iterdir():
        assert "sk-wrong" not in path.read_text()
    capsys.readouterr()
    assert main(command(url, tmp_path / "b", "--give-up-after", "0.2", "--timeout", "0.1")) == 2
    (last,) = [line for line in capsys.readouterr().err.splitlines() if "error:" in line]
    assert f"{url}/ does not answer" in last
    assert main(command(url, tmp_path / "c", "--api-key-env", "NO_SUCH_KEY")) == 2
    assert "--api-key-env=NO_SUCH_KEY: this environment variable is not set" in capsys.readouterr().err


def test_an_endpoint_without_an_address_or_at_another_one_continues(openai, tmp_path, capsys, monkeypatch):
    for name in ("OPENAI_API_KEY", "OPENAI_BASE_URL"):
        monkeypatch.delenv(name, raising=False)
    without = ["eval", "--model", "a-model", "--env", EASY, "--episodes", "2", "--out", str(tmp_path)]
    assert main(without) == 2
    assert "give --base-url" in capsys.readouterr().err
    for _ in range(2):  # on two ports
        with StubEndpoint() as endpoint:
            assert main([*without, "--base-url", endpoint.url]) == 0


def test_patterns_and_the_table(tmp_path, capsys):
    words = ["eval", "--model", "random", "--env", "game:GuessTheNumber-*", "--episodes", "2"]
    assert main([*words, "--out", str(tmp_path)]) == 0
    table = capsys.readouterr().out
    assert "game:GuessTheNumber-v0-hard" in table
    assert "all, weighted equally" in table
    assert main([*words, "--out", str(tmp_path), "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["overall"]["episodes"] == 8
    words = ["eval", "--model", "random", "--env", "logic:Proofs-v0-d?", "--episodes", "1", "--json"]
    assert main([*words, "--out", str(tmp_path / "signs")]) == 0
    assert set(json.loads(capsys.readouterr().out)["envs"]) == set(list_envs("logic:Proofs-v0-d?"))
    assert main(["eval", "--model", "random", "--env", "nothing:*", "--out", str(tmp_path)]) == 2
    assert "no environment matches 'nothing:*'" in capsys.readouterr().err


@pytest.mark.parametrize("error", [(400, {"error": {"message": "this image cannot be read"}}), (413, {})])
def test_an_error_that_repeats_for_one_task_costs_that_episode(openai, tmp_path, error):
    first: list[str] = []

    def picky(request):
        question = str(request["messages"])
        if len(request["messages"]) == 1 and "Hello" not in question and (not first or question == first[0]):
            first[:] = [question]  # the conversation of one task, whenever it is asked
            return error
        return guess(request)

    with StubEndpoint(picky) as endpoint:
        run = config(
            tmp_path, model="endpoint:m", env=ENVS, base_url=endpoint.url, concurrency=1, timeout=1.9,
            give_up_after=2,
        )  # fmt: skip
        outcome = evaluate(run)
        asked = len(endpoint.requests)
        again = evaluate(run)
    summary = outcome.summary["overall"]
    assert (summary["errors"], summary["episodes"]) == (1, len(outcome.episodes) - 1)
    (failed,) = [episode for episode in outcome.episodes if episode.error]
    assert not failed.turns
    assert (again.played, len(endpoint.requests)) == (0, asked)  # a resumed run does not ask again


ENVS = ["math:Arithmetic-v0(size=40)"]

from __future__ import annotations

import asyncio
import statistics
import threading
import time

import pytest

import gem_core
from gem_chat import AppendContext, EnvPlayer, MessagesContext
from gem_core.errors import ConfigError
from gem_core.rollout import (
    ChatReply,
    EnvPool,
    EpisodeLimits,
    Generation,
    TraceWriter,
    read_traces,
    run_agents,
    run_episode,
)
from gem_core.rollout._agents import _TimeLimited
from gem_envs.multiagent import OneAgent
from tests.envs.multiagent.test_multi_agent_env import Counting
from tests.envs.multiagent.test_one_agent import Duel
from tests.rollout.policies import ScriptedPolicy
from tests.rollout.tokenizers import CharTokenizer
from tests.support import with_limits

CONTEXT = AppendContext(CharTokenizer())
MESSAGES = MessagesContext()
RANDOM, ORACLE = EnvPlayer("random"), EnvPlayer("oracle")


def play(env, policies, contexts=MESSAGES, **options):
    return asyncio.run(run_agents(env, policies, contexts, **with_limits(options)))


def table(id="multi:TicTacToe-v0", **kwargs):
    return gem_core.make(id, opponent="self", **kwargs)


def says(*texts):
    tokenizer = CharTokenizer()
    return ScriptedPolicy([[*tokenizer.encode(text), tokenizer.eos_token_id] for text in texts])


class Chat:
    """Gives the same answer every time, after a delay."""

    def __init__(self, text, seconds=0.0):
        self.text, self.seconds = text, seconds

    async def reply(self, messages, *, max_tokens, request_id):
        await asyncio.sleep(self.seconds)
        return ChatReply(self.text)


def test_an_episode_for_each_agent():
    one, two = says(*(f"\\boxed{{{n}}}" for n in (1, 2, 3))), says(*(f"\\boxed{{{n}}}" for n in (4, 5)))
    policies = {"player_1": one, "player_2": two}
    episodes = play(table(), policies, CONTEXT, seed=5, request_id="r", metadata={"step": 1})
    assert list(episodes) == ["player_1", "player_2"]
    first, second = episodes.values()
    assert [turn.action for turn in first.turns] == [r"\boxed{1}", r"\boxed{2}", r"\boxed{3}"]
    assert first.rewards == [0.0, 0.0, 1.0]
    assert second.rewards == [0.0, -1.0]  # the loser's last move receives the loss
    assert "took cell 1" in second.turns[0].observation
    assert "You get -1." in second.turns[-1].info["final_obs"]
    assert (first.success, second.success) == (True, False)
    for agent, episode in episodes.items():
        assert (episode.env_id, episode.env_kwargs) == ("multi:TicTacToe-v0", {"opponent": "self"})
        assert (episode.seed, episode.terminated, episode.trainable) == (5, True, True)
        assert episode.metadata == {"step": 1, "agent": agent}
        assert sum(episode.rows()[0].rewards) == episode.total_reward
    assert {request[2] for request in one.requests} == {"r/player_1"}


def test_a_policy_may_forget_each_request_at_the_end_of_its_episode():
    class Remembering(ScriptedPolicy):
        def __init__(self, responses):
            super().__init__(responses)
            self.forgotten = []

        def forget_request(self, request_id):
            assert self.requests  # the episode has begun
            self.forgotten.append(request_id)

    tokenizer = CharTokenizer()
    policy = Remembering([[*tokenizer.encode("\\boxed{1}"), tokenizer.eos_token_id]] * 2)
    play(table(), policy, CONTEXT, request_id="r", turn_timeout=5.0)
    assert sorted(policy.forgotten) == ["r/player_1", "r/player_2"]


def test_the_same_as_one_side_against_a_fixed_player():
    """The same moves earn the same rewards, whether the other side is a policy or part of the environment."""
    for seed in range(10):
        env = OneAgent(table(), "player_1", "oracle")
        alone = asyncio.run(run_episode(env, RANDOM, MESSAGES, seed=seed, request_id="a/player_1"))
        cells = env.env.cells
        replies = [turn.action for turn in alone.turns]

        class Same:
            def __init__(self, texts):
                self.texts = iter(texts)

            async def reply(self, messages, *, max_tokens, request_id):
                return ChatReply(next(self.texts))

        others = iter(cell + 1 for cell in opponents_cells(alone))
        policies = {"player_1": Same(replies), "player_2": Same(f"\\boxed{{{cell}}}" for cell in others)}
        inner = table()
        together = play(inner, policies, seed=seed)["player_1"]
        assert together.rewards == alone.rewards
        assert [turn.observation for turn in together.turns] == [turn.observation for turn in alone.turns]
        assert inner.cells == cells


def opponents_cells(episode):
    texts = [turn.observation for turn in episode.turns] + [episode.turns[-1].info["final_obs"]]
    for text in texts:
        for line in text.splitlines():
            if line.startswith("Your opponent took cell"):
                yield int(line.rstrip(".").split()[-1]) - 1


def test_agents_that_act_at_once():
    policies = {"left": Chat("7"), "right": Chat("4", 0.01)}
    episodes = play(Duel(), policies, seed=0)
    assert episodes["left"].rewards == [3.0, 3.0, 3.0]
    assert episodes["right"].rewards == [-3.0, -3.0, -3.0]


def test_wrappers_go_around_each_agent():
    episodes = play(table(), RANDOM, seed=0, wrappers="concat")
    assert len(episodes) == 2
    for episode in episodes.values():
        assert episode.turns[0].observation in episode.turns[1].observation


def test_an_agent_without_a_turn():
    episodes = play(table("multi:KuhnPoker-v0"), {"player_1": Chat("junk"), "player_2": RANDOM}, seed=0)
    assert episodes["player_1"].total_reward == -2.0
    second = episodes["player_2"]
    assert (second.turns, second.trainable, second.error, second.terminated) == ([], False, None, True)


# -- agents that do not yield, leave, or fail --------------------------------------------------


def test_a_policy_that_never_answers_forfeits():
    began = time.monotonic()
    episodes = play(table(), {"player_1": Chat("", 60), "player_2": RANDOM}, seed=0, turn_timeout=0.05)
    assert time.monotonic() - began < 10
    assert episodes["player_1"].turns[-1].info["invalid"] == "format"
    assert episodes["player_1"].total_reward == -1.0

    async def never():
        await asyncio.sleep(60)

    silent = ScriptedPolicy([[1]], before=never)
    episodes = play(
        table(), {"player_1": says(r"\boxed{1}", r"\boxed{2}"), "player_2": silent}, CONTEXT,
        seed=0, turn_timeout=0.05,
    )  # fmt: skip
    assert episodes["player_2"].stop_reason == "empty_response"
    assert episodes["player_1"].terminated
    assert episodes["player_1"].turns[-1].info["success"] is False


def test_a_policy_without_batching_is_shown_images_too():
    class Sees:
        takes_images = True

        async def generate(self, prompt_ids, *, max_tokens, request_id, images=()):
            return Generation([len(images)], None, "stop")

    hurried = _TimeLimited(Sees(), 1.0)
    assert hurried.takes_images
    shown = hurried.generate([1], max_tokens=1, request_id="r", images=["a", "b"])
    assert asyncio.run(shown).token_ids == [2]
    assert not _TimeLimited(says("x"), 1.0).takes_images


def test_leaving_does_not_avoid_a_loss():
    episodes = play(table(), RANDOM, seed=0, max_turns=1)
    first, second = episodes.values()
    assert first.stop_reason == "max_turns"
    assert first.turns[-1].info["late_reward"] == first.total_reward == -1.0
    assert second.total_reward == 0.0


def test_all_leave_and_the_pool_plays_on():
    pool = EnvPool()
    task = {"env_id": "multi:Bargaining-v0", "env_kwargs": {"opponent": "self"}, "seed": 0, "index": 0}
    for _ in range(2):
        episodes = asyncio.run(pool.play_all(task, RANDOM, MESSAGES, limits=EpisodeLimits(max_turns=1)))
        assert [len(episode.turns) for episode in episodes] == [1, 1]
    with pytest.raises(ConfigError, match="has several agents, but run_episode plays one"):
        asyncio.run(pool.play(task, RANDOM, MESSAGES))
    pool.close()


def test_one_agent_in_the_pool_is_as_before():
    pool = EnvPool()
    task = {"env_id": "multi:Bargaining-v0", "env_kwargs": {}, "seed": 0, "index": 0}
    (episode,) = asyncio.run(pool.play_all(task, RANDOM, MESSAGES))
    assert episode.trainable


class Breaking(Counting):
    def _process_actions(self, actions):
        raise RuntimeError("the roof fell in")


class Endless(Counting):
    """An environment that never ends by itself."""

    def _process_actions(self, actions):
        return {}, {}, {}, {}, {}


class Slow(Counting):
    blocking = True

    def _process_actions(self, actions):
        time.sleep(0.3)
        return super()._process_actions(actions)


def test_a_failure_of_the_environment_affects_every_agent():
    closed = []
    env = Breaking()
    env.close = lambda: closed.append(threading.current_thread().name)
    episodes = play(env, Chat("a"), seed=0)
    assert len(episodes) == 3
    for episode in episodes.values():
        assert episode.stop_reason == "env_error"
        assert "the roof fell in" in episode.error
        assert not episode.trainable
    assert closed == ["gem-env-close"]  # once, and not on the event loop

    class NoReset(Counting):
        def observe(self, agent):
            raise RuntimeError("no view")

    episodes = play(NoReset(), Chat("a"), seed=0)
    assert len(episodes) == 3
    assert all("no view" in episode.error for episode in episodes.values())


def test_agents_that_left_an_endless_episode_are_waited_for_no_longer_than_a_limit():
    policies = {"agent_0": Chat("a"), "agent_1": Chat("a")}
    started = time.process_time()
    episodes = play(Endless(num_agents=2), policies, seed=0, max_turns=3)
    assert [episode.stop_reason for episode in episodes.values()] == ["max_turns", "max_turns"]

    class Stuck(Endless):
        def _process_actions(self, actions):
            self.agent_selector.select("agent_0")
            return {}, {}, {}, {}, {}

    episodes = play(Stuck(num_agents=2), policies, seed=0, max_turns=3)
    assert time.process_time() - started < 20
    assert episodes["agent_0"].stop_reason == "max_turns"
    assert "continued for 1000 moves of agents that had left" in episodes["agent_1"].error


def test_a_slow_environment_runs_in_a_thread_and_has_a_time_limit():
    episodes = play(Slow(num_agents=2, limit=2), Chat("a"), seed=0)
    assert [episode.truncated and not episode.error for episode in episodes.values()] == [True, True]
    episodes = play(Slow(num_agents=2), Chat("a"), seed=0, step_timeout=0.05)
    assert ["within 0.05 s" in episode.error for episode in episodes.values()] == [True, True]


def test_an_error_of_a_policy_is_passed_on_and_closes_the_environment():
    closed = []
    env = table()
    env.close = lambda: closed.append(threading.current_thread().name)
    with pytest.raises(ZeroDivisionError):
        play(env, {"player_1": ScriptedPolicy([ZeroDivisionError()]), "player_2": says("a")}, CONTEXT)
    assert closed == ["gem-env-close"]  # once, and not on the event loop


@pytest.mark.parametrize(
    ("policies", "contexts", "message"),
    [
        ({"player_1": RANDOM}, MESSAGES, "policies: missing agent 'player_2'"),
        (
            {"player_1": RANDOM, "player_3": RANDOM},
            MESSAGES,
            "unknown agent 'player_3' of policies. Did you mean",
        ),
        (RANDOM, {"player_1": MESSAGES}, "contexts: missing agent 'player_2'"),
        (RANDOM, CONTEXT, "give it a MessagesContext"),
    ],
)
def test_misuse_is_reported_in_one_line(policies, contexts, message):
    with pytest.raises(ConfigError, match=message):
        play(table(), policies, contexts)
    with pytest.raises(ConfigError, match="has a single agent"):
        play(gem_core.make("game:Mastermind-v0"), RANDOM)


def test_traces_hold_them(tmp_path):
    episodes = play(table(), {"player_1": RANDOM, "player_2": ORACLE}, seed=1)
    with TraceWriter(tmp_path / "traces.jsonl") as traces:
        for episode in episodes.values():
            traces.write(episode)
    assert list(read_traces(tmp_path / "traces.jsonl")) == list(episodes.values())


# -- random streams ---------------------------------------------------------------------------------


class Drawing(Counting):
    """All agents draw a number at once, for five rounds: the best action and a random one are drawn alike."""

    def __init__(self, num_agents=2):
        super().__init__("parallel", num_agents, limit=5)

    def best_action(self, agent, random):
        return str(random.randrange(3))

    random_action = best_action


def drawn(episodes):
    return [[turn.action for turn in episode.turns] for episode in episodes.values()]


@pytest.mark.once
@pytest.mark.parametrize("player", [ORACLE, RANDOM])
@pytest.mark.parametrize("request_id", [None, "a"])
@pytest.mark.parametrize("wrappers", [(), ("concat",)])
def test_agents_draw_independently(player, request_id, wrappers):
    env, equal = Drawing(), 0
    for seed in range(100):
        left, right = drawn(play(env, player, seed=seed, request_id=request_id, wrappers=wrappers))
        assert len(left) == len(right) == 5
        equal += sum(x == y for x, y in zip(left, right, strict=True))
    assert 500 / 3 - 40 < equal < 500 / 3 + 40  # standard deviation 10.5


def test_an_oracle_and_a_random_player_and_direct_calls_of_the_seats_draw_independently():
    env, equal = Drawing(3), 0
    for seed in range(100):
        agents = drawn(play(env, {"agent_0": ORACLE, "agent_1": RANDOM, "agent_2": ORACLE}, seed=seed))
        equal += sum(x == z for x, _, z in zip(*agents, strict=True))
        equal += sum(x == y for x, y, _ in zip(*agents, strict=True))
    assert 1000 / 3 - 60 < equal < 1000 / 3 + 60


def test_the_streams_of_the_agents_follow_the_seed_and_the_request_id():
    env = Drawing()

    def oracles(seed, **arguments):
        return drawn(play(env, ORACLE, seed=seed, **arguments))

    assert oracles(1) == oracles(1) != oracles(2)
    assert oracles(1, request_id="a") == oracles(1, request_id="a")
    assert oracles(1, request_id="a") != oracles(1, request_id="b")  # two members of a group
    assert oracles(1, request_id="a") != oracles(2, request_id="a")
    chain = [oracles(1), oracles(None), oracles(None)]  # without a seed, the environment's streams continue
    assert chain == [oracles(1), oracles(None), oracles(None)]
    assert len({str(texts) for texts in chain}) == 3


def test_random_play_with_the_same_request_id_differs_between_seeds():
    env = table("multi:KuhnPoker-v0")
    hands = {str(drawn(play(env, RANDOM, seed=seed, request_id="same"))) for seed in range(30)}
    assert len(hands) > 3


@pytest.mark.once
def test_two_oracles_play_kuhn_poker_at_its_value():
    env, value, called = table("multi:KuhnPoker-v0"), [], []
    for seed in range(1500):
        episodes = play(env, ORACLE, seed=seed)
        value.append(episodes["player_1"].total_reward)
        moves = [*drawn(episodes)[0], *drawn(episodes)[1]]
        if env.cards == {"player_1": 0, "player_2": 1} and moves[0] == "\\boxed{bet}":
            called.append(moves[1] == "\\boxed{call}")
    mean, error = statistics.mean(value), statistics.stdev(value) / len(value) ** 0.5
    assert abs(mean + 1 / 18) < 2.5 * error
    assert len(called) > 50
    assert abs(statistics.mean(called) - 1 / 3) < 0.2  # a bluff: the Queen calls one in three

"""The newer tree: `generate` on RL2's own samples, with a stub of its router."""

from __future__ import annotations

import asyncio
import json
import math
from pathlib import Path
from typing import Any

import pytest
from gem_rl2._activation import keep_nan_out
from gem_rl2._rows import rl2_row
from gem_rl2._session import Session

import gem_core
from gem_core.errors import EnvError, PolicyError
from gem_core.rollout import Episode, Turn
from gem_core.tasks import TaskRow
from tests.cancels.plugins import ENV_ID, cancel_everywhere
from tests.support import ScriptedEnv
from tests.trainers.rl2.configs import gem_config

pytestmark = pytest.mark.imports("tree")
END = "<|end|>"


@pytest.fixture(scope="module", autouse=True)
def environments() -> None:
    gem_core.register("rl2samples:Scripted", ScriptedEnv)
    gem_core.register("rl2samples:Failing", ScriptedEnv, fail_at=1)


class Router:
    """Stub of the router: answers with the next text, or with part of it and an abort."""

    def __init__(self, tokenizer: Any, *answers: tuple[str, str]) -> None:
        self.tokenizer = tokenizer
        self.answers = answers or (("one" + END, "stop"),)
        self.requests: list[dict[str, Any]] = []

    async def __call__(self, url: str, endpoint: str, json: dict[str, Any]) -> dict[str, Any]:
        assert (url, endpoint) == ("router", "generate")
        text, reason = self.answers[len(self.requests) % len(self.answers)]
        self.requests.append(json)
        ids = self.tokenizer.encode(text, add_special_tokens=False) if text else []
        most = json["sampling_params"]["max_new_tokens"]
        if len(ids) > most:
            ids, reason = ids[:most], "length"
        meta: dict[str, Any] = {"finish_reason": {"type": reason}, "completion_tokens": len(ids)}
        if ids:
            meta["output_token_logprobs"] = [[-0.5, token, None] for token in ids]
        return {"text": text, "meta_info": meta}


class Played:
    """A session, a group of samples and their router."""

    def __init__(
        self, monkeypatch: pytest.MonkeyPatch, tiny: Path, router: Router, *words: str, env: str = "Scripted"
    ) -> None:
        import RL2.utils.communication
        from RL2.datasets import SampleGroup

        monkeypatch.setattr(RL2.utils.communication, "async_request", router)
        self.config, upstream = gem_config(
            f"actor.model_name={tiny}", "rollout.train.sampling_params.max_new_tokens=16", *words
        )
        self.session = Session(self.config, upstream)
        task = TaskRow(env_id=f"rl2samples:{env}", env_kwargs={}, seed=7, index=3)
        self.group = SampleGroup(self.config.rollout.train, router.tokenizer, rl2_row(task))

    def play(self) -> Any:
        """Play the group like RL2; return the first sample."""
        asyncio.run(self.go_on())
        return self.group.samples[0]

    async def go_on(self) -> None:
        await self.group.generate("router", self.session.generate)


def test_a_sample_is_one_row_of_what_was_sampled(
    monkeypatch: pytest.MonkeyPatch, tiny: Path, tokenizer: Any, tmp_path: Path
) -> None:
    router = Router(tokenizer)
    played = Played(
        monkeypatch,
        tiny,
        router,
        "rollout.train.responses_per_prompt=2",
        f"rollout.train.save_dir={tmp_path}",
    )
    sample = played.play()
    (row,) = sample.state_dicts
    assert row["states"] == [*router.requests[-1]["input_ids"], *tokenizer.encode("one" + END)]
    assert [reward for reward in row["rewards"] if reward] == [0.5, 1.0]
    assert sample.metrics["rewards"] == [1.5]
    assert sample.metrics["turns"] == [3]
    first, second = (one.state_dicts[0]["states"] for one in played.group.samples)
    assert first == second  # the same seed
    params = router.requests[0]["sampling_params"]
    assert (params["max_new_tokens"], params["no_stop_trim"]) == (16, True)
    played.group.print()
    played.group.save(1)
    (saved,) = (json.loads(line) for line in (tmp_path / "step1.jsonl").read_text().splitlines())
    assert len(saved) == 2
    tensors, metrics = played.group.to_all_tensor_dicts_and_metrics()
    assert len(tensors) == 2
    assert metrics["rewards"] == [1.5, 1.5]
    assert played.session.report("train", 1)["gem/return"] == 1.5


def test_rebuilt_prompts_are_rows_of_their_own(
    monkeypatch: pytest.MonkeyPatch, tiny: Path, tokenizer: Any
) -> None:
    router = Router(tokenizer)
    sample = Played(monkeypatch, tiny, router, "+gem.context=rebuild").play()
    assert len(sample.state_dicts) == 3
    for row, request, reward in zip(sample.state_dicts, router.requests, (0.0, 0.5, 1.0), strict=True):
        sampled = len(row["states"]) - len(request["input_ids"])
        assert row["states"][:-sampled] == request["input_ids"]
        assert row["action_mask"] == [0] * len(request["input_ids"]) + [1] * sampled
        assert row["rewards"][-1] == reward


def test_a_foreign_agent_has_the_row_of_the_own_loop(
    monkeypatch: pytest.MonkeyPatch, tiny: Path, tokenizer: Any
) -> None:
    pytest.importorskip("aiohttp", reason="needs aiohttp, of the extra 'serve'")
    answers = [(f"I say \\boxed{{5}}{END}", "stop"), (f"or 7{END}", "stop"), (f" 9 {END}", "stop")]
    own, served = Router(tokenizer, *answers), Router(tokenizer, *answers)
    native = Played(monkeypatch, tiny, own).play()
    foreign = Played(monkeypatch, tiny, served, "+gem.harness=tests.trainers.talker:talk")
    assert foreign.play().state_dicts == native.state_dicts
    assert [request["input_ids"] for request in served.requests] == [r["input_ids"] for r in own.requests]
    assert sum(any(row["rewards"]) for row in native.state_dicts) == 1
    assert foreign.session.report("train", 1)["gem/recognized"] == 1.0


def test_a_failing_environment_is_a_row_without_actions(
    monkeypatch: pytest.MonkeyPatch, tiny: Path, tokenizer: Any
) -> None:
    played = Played(monkeypatch, tiny, Router(tokenizer), env="Failing")
    (row,) = played.play().state_dicts
    assert not any(row["action_mask"])
    metrics = played.session.report("train", 1)
    assert (metrics["gem/error_rate"], metrics["gem/retry_rate"]) == (1.0, 0.0)
    assert "gem/return" not in metrics
    (episode,) = played.session.played
    assert (episode.env_id, episode.trainable) == ("rl2samples:Failing", False)


def test_an_environment_of_the_mix_that_always_fails_ends_the_run(
    monkeypatch: pytest.MonkeyPatch, tiny: Path, tokenizer: Any
) -> None:
    session = Played(monkeypatch, tiny, Router(tokenizer)).session
    turn = Turn([1], [2], None, 1.0, "", "", "stop")
    good, other = (Episode(env, 0, [turn], True, False, "terminated") for env in ("good", "other"))
    bad = Episode("bad", 0, [], False, False, "env_error", "step() failed: KeyError: 3", trainable=False)
    session._finished = dict(enumerate([good, *[bad] * 8]))
    assert session.report("eval", 3, list(range(9)))["gem/error_rate"] == pytest.approx(8 / 9)
    session._finished = dict(enumerate([good, *[bad] * 8]))
    with pytest.raises(EnvError, match=r"step 3: all 8 episodes of bad .*step\(\) failed: KeyError: 3"):
        session.report("train", 3)
    session._finished = {0: good, 1: other}
    assert session.report("train", 4)["gem/played/other"] == 1


def test_a_failing_environment_is_played_again(
    monkeypatch: pytest.MonkeyPatch, tiny: Path, tokenizer: Any
) -> None:
    fails = iter([1, None])  # the second step of the first environment

    class Recovers(ScriptedEnv):
        def __init__(self) -> None:
            super().__init__(fail_at=next(fails))

    gem_core.register("rl2samples:Recovers", Recovers)
    router = Router(tokenizer)
    words = ["+gem.on_env_error=retry", "+gem.max_env_retries=1"]
    played = Played(monkeypatch, tiny, router, *words, env="Recovers")
    (row,) = played.play().state_dicts
    assert sum(row["rewards"]) == 1.5
    metrics = played.session.report("train", 1)
    assert (metrics["gem/error_rate"], metrics["gem/retry_rate"]) == (0.0, 1.0)
    assert len(router.requests) == 2 + 3


def test_without_a_limit_a_response_may_fill_the_row(
    monkeypatch: pytest.MonkeyPatch, tiny: Path, tokenizer: Any
) -> None:
    router = Router(tokenizer)
    Played(monkeypatch, tiny, router, "rollout.train.sampling_params.max_new_tokens=null").play()
    first = router.requests[0]
    assert first["sampling_params"]["max_new_tokens"] == 1024 - len(first["input_ids"])


def test_a_response_without_a_token_ends_the_episode(
    monkeypatch: pytest.MonkeyPatch, tiny: Path, tokenizer: Any
) -> None:
    router = Router(tokenizer, ("one" + END, "stop"), ("", "stop"))
    sample = Played(monkeypatch, tiny, router).play()
    (row,) = sample.state_dicts
    assert row["states"] == [*router.requests[0]["input_ids"], *tokenizer.encode("one" + END)]
    assert sample.metrics["turns"] == [1]


def test_a_row_is_never_longer_than_rl2_takes(
    monkeypatch: pytest.MonkeyPatch, tiny: Path, tokenizer: Any
) -> None:
    router = Router(tokenizer)
    longest = len(Played(monkeypatch, tiny, router).play().state_dicts[0]["states"]) - 2
    sample = Played(monkeypatch, tiny, router, f"actor.max_length_per_device={longest}").play()
    assert len(sample.state_dicts[0]["states"]) == longest
    assert sample.metrics["length_clip_ratio"] == [False, False, True]


@pytest.mark.parametrize("part", ["on", ""])
def test_a_response_that_was_paused_continues(
    monkeypatch: pytest.MonkeyPatch, tiny: Path, tokenizer: Any, part: str
) -> None:
    router = Router(tokenizer, (part, "abort"), ("e" + END, "stop"))
    played = Played(monkeypatch, tiny, router, "rollout.train.partial_rollout=true")
    status = type(played.group.samples[0]).Status
    begun = len(tokenizer.encode(part, add_special_tokens=False)) if part else 0

    async def rollouts() -> int:
        for number in range(10):
            await played.go_on()
            if played.group.samples[0].status == status.DONE:
                return number
            assert played.group.samples[0].status == status.ABORTED
        raise AssertionError

    assert asyncio.run(rollouts()) == 3  # each of the three turns was paused once
    (row,) = played.group.samples[0].state_dicts
    assert sum(row["action_mask"]) == 3 * (begun + 2)
    first, second = router.requests[:2]
    assert second["input_ids"][: len(first["input_ids"])] == first["input_ids"]
    assert len(second["input_ids"]) == len(first["input_ids"]) + begun
    assert second["sampling_params"]["max_new_tokens"] == 16 - begun


def test_a_response_that_ends_at_the_limit_is_complete(
    monkeypatch: pytest.MonkeyPatch, tiny: Path, tokenizer: Any
) -> None:
    """SGLang looks at the limit first, and reports "length"."""
    answers = [("one" + END, "length"), ("two" + END, "length"), ("three", "length")]
    sample = Played(monkeypatch, tiny, Router(tokenizer, *answers)).play()
    assert sample.metrics["length_clip_ratio"] == [False, False, True]
    assert sample.metrics["rewards"] == [1.5]


def test_a_minimum_length_is_one_of_the_whole_response_and_at_most_the_room_that_is_left(
    monkeypatch: pytest.MonkeyPatch, tiny: Path, tokenizer: Any
) -> None:
    """SGLang rejects a larger one, and the run would end."""
    least = "+rollout.train.sampling_params.min_new_tokens=3"
    router = Router(tokenizer, ("on", "abort"), ("e" + END, "stop"))
    played = Played(monkeypatch, tiny, router, "rollout.train.partial_rollout=true", least)
    begun = len(tokenizer.encode("on", add_special_tokens=False))

    async def rollouts() -> None:
        while played.group.samples[0].status.value != "done":
            await played.go_on()

    asyncio.run(rollouts())
    asked = [request["sampling_params"]["min_new_tokens"] for request in router.requests]
    assert asked == [3, 3 - begun] * 3
    router = Router(tokenizer)
    Played(monkeypatch, tiny, router, least, "+gem.max_tokens_per_turn=2").play()
    assert {request["sampling_params"]["min_new_tokens"] for request in router.requests} == {2}


@pytest.mark.parametrize(
    ("rewards", "kept"),
    [
        ([1.0, 1.0, math.nan], [1.0, 1.0]),
        ([1.0, 0.5, math.nan], [1.0, 0.5]),
        ([math.nan, math.nan, math.nan], []),
    ],
)
def test_dynamic_filtering_compares_the_played_episodes_of_a_group(
    monkeypatch: pytest.MonkeyPatch, tiny: Path, tokenizer: Any, rewards: list[float], kept: list[float]
) -> None:
    """RL2 drops a group whose rewards have a standard deviation of 0; with a NaN, it would keep any group."""
    from RL2.datasets import SampleGroup

    method = "to_all_tensor_dicts_and_metrics"
    monkeypatch.setattr(SampleGroup, method, keep_nan_out(getattr(SampleGroup, method)))
    played = Played(monkeypatch, tiny, Router(tokenizer), "rollout.train.responses_per_prompt=3")
    played.play()
    for sample, reward in zip(played.group.samples, rewards, strict=True):
        sample.metrics["rewards"] = [reward]
    tensors, metrics = played.group.to_all_tensor_dicts_and_metrics()
    assert (len(tensors), metrics["rewards"]) == (3, kept)


def test_a_paused_engine_gets_no_requests(
    monkeypatch: pytest.MonkeyPatch, tiny: Path, tokenizer: Any
) -> None:
    router = Router(tokenizer)
    played = Played(monkeypatch, tiny, router, "rollout.train.partial_rollout=true")

    async def rollouts() -> None:
        played.session.paused = True
        await played.go_on()
        assert not router.requests
        played.session.paused = False
        await played.go_on()

    asyncio.run(rollouts())
    assert played.group.samples[0].metrics["turns"] == [3]


def test_an_abort_without_a_pause_is_an_error(
    monkeypatch: pytest.MonkeyPatch, tiny: Path, tokenizer: Any
) -> None:
    played = Played(monkeypatch, tiny, Router(tokenizer, ("", "abort")))
    with pytest.raises(PolicyError, match="the engine aborted a request"):
        played.play()


def lengths(monkeypatch: pytest.MonkeyPatch, tiny: Path, tokenizer: Any, *overrides: str) -> int | None:
    return Played(monkeypatch, tiny, Router(tokenizer), *overrides).session._max_row_length


def test_a_row_has_the_length_that_all_devices_of_a_group_hold(
    monkeypatch: pytest.MonkeyPatch, tiny: Path, tokenizer: Any
) -> None:
    fsdp = ("actor.max_length_per_device=10", "actor.cp_size=2", "actor.tp_size=2")
    assert lengths(monkeypatch, tiny, tokenizer, *fsdp) == 40
    megatron = (
        "actor=megatron",
        "ref_actor=megatron",
        "actor.max_length_per_device=10",
        "actor.tf_config.context_parallel_size=2",
        "actor.tf_config.tensor_model_parallel_size=4",
    )
    assert lengths(monkeypatch, tiny, tokenizer, *megatron) == 80


def test_an_episode_ends_before_the_models_context_length(
    monkeypatch: pytest.MonkeyPatch, tiny: Path, tokenizer: Any
) -> None:
    config = json.loads((tiny / "config.json").read_text())
    own = config["max_position_embeddings"]
    long = f"actor.max_length_per_device={10 * own}"
    assert lengths(monkeypatch, tiny, tokenizer, long) == own - 1
    given = "+rollout.server_args.context_length=100"
    assert lengths(monkeypatch, tiny, tokenizer, long, given) == 99
    assert lengths(monkeypatch, tiny, tokenizer, "actor.max_length_per_device=20") == 20


def test_a_canceled_sample_leaves_nothing_open(
    monkeypatch: pytest.MonkeyPatch, tiny: Path, tokenizer: Any
) -> None:
    from RL2.datasets import SampleGroup

    played = Played(monkeypatch, tiny, Router(tokenizer))
    row = rl2_row(TaskRow(env_id=ENV_ID, env_kwargs={}, seed=7, index=3))

    async def work() -> None:
        group = SampleGroup(played.config.rollout.train, tokenizer, row)
        config = played.config.rollout.train
        await played.session.generate(config, tokenizer, "router", group.samples[0])

    assert cancel_everywhere(work, lambda: played.session._player._envs) >= 4
    assert not played.session._plays

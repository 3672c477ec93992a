from __future__ import annotations

import asyncio
import contextlib
from collections import Counter

import numpy as np
import pytest

torch = pytest.importorskip("torch", reason="needs the extra 'train'")

from gem_chat import AppendContext  # noqa: E402
from gem_core import render_observation  # noqa: E402
from gem_core._tasks import evaluation_tasks  # noqa: E402
from gem_core._util.seeds import derive_int  # noqa: E402
from gem_core.rollout import Generation  # noqa: E402
from gem_core.tasks import EnvChoice  # noqa: E402
from gem_lab._engines.sampling import BatchingPolicy, _uniforms, full_attention  # noqa: E402
from gem_lab.train import TrainConfig  # noqa: E402
from gem_lab.train._batches import compute_logprobs, make_batch  # noqa: E402
from gem_lab.train._rollouts import Rollouts  # noqa: E402
from tests.train.helpers import LONG, options  # noqa: E402


@pytest.fixture
def make_policy(model, tokenizer):
    def make(**changes):
        given = {"eos_token_ids": [tokenizer.eos_token_id], "pad_token_id": 0, **changes}
        return BatchingPolicy(model, **given)

    return make


@pytest.fixture
def prompts(tokenizer):
    """Return prompts of unequal lengths."""
    context = AppendContext(tokenizer)
    text = str(render_observation(*EnvChoice.parse(LONG).make().reset(seed=0)))
    return [context.first(text + " word" * (3 * number % 7)) for number in range(12)]


def ask(policy, prompts, *, max_tokens=6, first=0) -> list[Generation]:
    """Request all responses at the same time; the id of a request is the number of its prompt."""

    async def everything():
        return await asyncio.gather(
            *(
                policy.generate(prompt, max_tokens=max_tokens, request_id=str(index))
                for index, prompt in enumerate(prompts, first)
            )
        )

    return asyncio.run(everything())


def play(model, tokenizer, tmp_path, **changes):
    """Return episodes of several turns with unequal prompts."""
    config = TrainConfig(**options("m", tmp_path, env=[LONG]))
    policy = BatchingPolicy(model, eos_token_ids=[tokenizer.eos_token_id], pad_token_id=0, **changes)
    players = {"": (policy, AppendContext(tokenizer))}
    rollouts = Rollouts(config, players, None)
    try:
        episodes = rollouts.play(evaluation_tasks(config.sources[:1], 24), players, name="test")
    finally:
        rollouts.close()
    assert max(len(episode.turns) for episode in episodes) >= 4
    assert len({len(episode.turns) for episode in episodes}) > 1
    return episodes


def assert_same(first, second):
    assert [g.token_ids for g in first] == [g.token_ids for g in second]
    assert [g.finish_reason for g in first] == [g.finish_reason for g in second]
    for one, other in zip(first, second, strict=True):
        assert one.logprobs == pytest.approx(other.logprobs, abs=1e-4)


def test_a_response_does_not_depend_on_the_company(make_policy, prompts):
    together = ask(make_policy(), prompts)
    alone = [ask(make_policy(), [prompt], first=index)[0] for index, prompt in enumerate(prompts)]
    assert len({tuple(generation.token_ids) for generation in together}) > 1
    assert_same(together, alone)
    assert_same(together, ask(make_policy(max_batch=5), prompts))


def test_seed_and_request_decide_the_response(make_policy, prompts):
    same_prompt = [prompts[0]] * 40
    first, again, other = (ask(make_policy(seed=seed), same_prompt) for seed in (1, 1, 2))
    assert first == again
    assert [g.token_ids for g in first] != [g.token_ids for g in other]
    assert len({tuple(g.token_ids) for g in first}) > 1  # each request has its own random numbers


def test_requests_of_one_episode_are_samples_of_their_own(make_policy, prompts):
    policy = make_policy()

    async def four():
        asked = [policy.generate(prompts[0], max_tokens=6, request_id="episode") for _ in range(4)]
        return await asyncio.gather(*asked)

    at_once = asyncio.run(four())
    assert len({tuple(generation.token_ids) for generation in at_once}) > 1
    later = asyncio.run(four())
    assert [g.token_ids for g in later] != [g.token_ids for g in at_once]
    policy.forget_request("episode")
    assert asyncio.run(four()) == at_once


@pytest.mark.parametrize("temperature", [1.0, 0.6])
@pytest.mark.parametrize("max_batch", [512, 7])
def test_reported_logprobs_match_the_objective(model, tokenizer, tmp_path, temperature, max_batch):
    episodes = play(model, tokenizer, tmp_path, temperature=temperature, max_batch=max_batch)
    batch = make_batch(episodes)
    with torch.no_grad():
        computed = compute_logprobs(model, batch, temperature=temperature)
    assert batch.response_mask.sum() > 50
    torch.testing.assert_close(computed, batch.logprobs, rtol=0, atol=1e-4)


def test_the_kept_cache_saves_work_and_changes_nothing(model, tokenizer, tmp_path):
    counts, all_episodes = [], []
    for reuse in (True, False):
        seen = []
        hook = model.register_forward_pre_hook(
            lambda _, __, kwargs, seen=seen: seen.append(kwargs["input_ids"].numel()), with_kwargs=True
        )
        all_episodes.append(play(model, tokenizer, tmp_path, reuse_prefix=reuse, max_batch=9))
        hook.remove()
        counts.append(sum(seen))
    with_cache, without = all_episodes
    for one, other in zip(with_cache, without, strict=True):
        assert [turn.response_ids for turn in one.turns] == [turn.response_ids for turn in other.turns]
        for turn, same in zip(one.turns, other.turns, strict=True):
            assert turn.logprobs == pytest.approx(same.logprobs, abs=1e-5)
    assert counts[0] < 0.8 * counts[1]


def test_equal_prompts_are_processed_once_and_finished_rows_are_dropped(make_policy, model, prompts):
    shapes = []
    hook = model.register_forward_pre_hook(
        lambda _, __, kwargs: shapes.append(tuple(kwargs["input_ids"].shape)), with_kwargs=True
    )
    together = ask(make_policy(), [prompts[0]] * 20 + [prompts[1]] * 20)
    hook.remove()
    assert shapes[0][0] == 2
    rows = [shape[0] for shape in shapes[1:]]
    for number, count in enumerate(rows, 1):  # never more than twice the rows that still run
        assert count <= max(1, 2 * sum(len(generation.token_ids) > number for generation in together))
    alone = [ask(make_policy(), [prompts[index // 20]], first=index)[0] for index in range(40)]
    assert_same(together, alone)


def test_responses_share_a_row_while_they_are_equal(make_policy, model, prompts):
    shapes = []
    hook = model.register_forward_pre_hook(
        lambda _, __, kwargs: shapes.append(kwargs["input_ids"].shape[0]), with_kwargs=True
    )
    policy = make_policy(eos_token_ids=[], top_k=2, temperature=3.0)
    responses = ask(policy, [prompts[0]] * 40, max_tokens=4)
    texts = [tuple(generation.token_ids) for generation in responses]
    assert shapes == [len({text[:length] for text in texts}) for length in range(4)]
    assert 4 < len({*texts}) < 40
    # The next turn continues from the shared rows.
    shapes.clear()
    following = continued([prompts[0]] * 40, responses)
    again = ask(policy, following, max_tokens=4)
    hook.remove()
    assert shapes[0] == len({*texts})
    alone = [
        ask(make_policy(eos_token_ids=[], top_k=2, temperature=3.0), [prompt], max_tokens=4, first=index)[0]
        for index, prompt in enumerate(following)
    ]
    assert_same(again, alone)


def distribution(model, prompt):
    with torch.no_grad():
        return model(input_ids=torch.tensor([prompt])).logits[0, -1].softmax(-1)


def test_tokens_are_drawn_from_the_models_distribution(model, make_policy, prompts):
    count = 2000
    drawn = Counter(g.token_ids[0] for g in ask(make_policy(), [prompts[0]] * count, max_tokens=1))
    wanted = distribution(model, prompts[0])
    distance = sum(abs(drawn[token] / count - float(wanted[token])) for token in range(len(wanted))) / 2
    assert float(wanted.max()) < 0.9
    assert distance < 0.06


def test_random_numbers_are_uniform_and_independent():
    keys = np.array([derive_int(0, f"step 1/{request}", 9, sep="/", bits=64) for request in range(5000)])
    columns = np.stack([_uniforms(keys.astype(np.uint64), number) for number in range(8)])
    assert 0 <= columns.min() < columns.max() < 1
    for column in columns:
        counts, _ = np.histogram(column, 20, (0, 1))
        assert ((counts - 250) ** 2 / 250).sum() < 50  # chi-squared with 19 degrees of freedom
    assert np.abs(np.corrcoef(columns) - np.eye(8)).max() < 0.06


def test_top_k_keeps_the_likeliest_and_normalizes_them(model, make_policy, prompts):
    wanted = distribution(model, prompts[0])
    values, kept = wanted.topk(3)
    for generation in ask(make_policy(top_k=3), [prompts[0]] * 200, max_tokens=1):
        (token,) = generation.token_ids
        assert token in kept.tolist()
        expected = (wanted[token] / values.sum()).log().item()
        assert generation.logprobs == pytest.approx([expected], abs=1e-4)
    greedy = ask(make_policy(top_k=1), prompts, max_tokens=1)
    assert [g.token_ids[0] for g in greedy] == [int(distribution(model, p).argmax()) for p in prompts]
    assert [g.logprobs for g in greedy] == [[0.0]] * len(prompts)


def test_top_p_keeps_the_smallest_sufficient_set(model, make_policy, prompts):
    wanted = distribution(model, prompts[0])
    ordered, order = wanted.sort(descending=True)
    p = float(ordered[:2].sum()) - 1e-3  # so that exactly two tokens are needed
    drawn = {g.token_ids[0] for g in ask(make_policy(top_p=p), [prompts[0]] * 300, max_tokens=1)}
    assert drawn == set(order[:2].tolist())
    sure = ask(make_policy(top_p=1e-6), [prompts[0]] * 20, max_tokens=1)
    assert {g.token_ids[0] for g in sure} == {int(order[0])}


def test_a_token_that_was_left_out_is_never_drawn(make_policy):
    policy = make_policy(top_k=1)
    logits = torch.tensor([[0.0, 0.0, 5.0, 0.0]] * 2)
    tokens, logprobs = policy._draw(logits, torch.tensor([0.0, 1.0 - 1e-16], dtype=torch.float64))
    assert (tokens.tolist(), logprobs.tolist()) == ([2, 2], [0.0, 0.0])


def test_the_token_limit_cuts_and_says_so(make_policy, prompts):
    cut = ask(make_policy(eos_token_ids=[]), prompts, max_tokens=5)
    assert {(len(g.token_ids), len(g.logprobs), g.finish_reason) for g in cut} == {(5, 5, "length")}


def test_each_request_of_a_batch_has_its_own_limit(make_policy, prompts):
    policy = make_policy(eos_token_ids=[])

    async def everything():
        return await asyncio.gather(
            *(
                policy.generate(prompt, max_tokens=index + 1, request_id=str(index))
                for index, prompt in enumerate(prompts)
            )
        )

    limited = asyncio.run(everything())
    assert [len(g.token_ids) for g in limited] == list(range(1, len(prompts) + 1))
    free = ask(make_policy(eos_token_ids=[]), prompts, max_tokens=len(prompts))
    for one, longer in zip(limited, free, strict=True):
        assert one.token_ids == longer.token_ids[: len(one.token_ids)]


def test_a_finished_row_does_not_run_out_of_learned_positions():
    transformers = pytest.importorskip("transformers")
    torch.manual_seed(0)
    config = transformers.GPT2Config(vocab_size=50, n_positions=32, n_embd=16, n_layer=1, n_head=2)
    model = transformers.GPT2LMHeadModel(config)

    def policy(**changes):
        return BatchingPolicy(model, eos_token_ids=[], pad_token_id=0, **changes)

    async def both(policy):
        return await asyncio.gather(
            policy.generate([1] * 28, max_tokens=4, request_id="long"),
            policy.generate([1] * 4, max_tokens=28, request_id="short"),
        )

    together, alone = policy(), policy(max_batch=1)
    answers = asyncio.run(both(together))
    assert [answer.token_ids for answer in answers] == [
        answer.token_ids for answer in asyncio.run(both(alone))
    ]


def test_the_end_token_stops_and_is_part_of_the_response(make_policy, prompts, tokenizer):
    responses = ask(make_policy(), prompts * 3, max_tokens=4)
    stopped = [g for g in responses if g.finish_reason == "stop"]
    assert 5 < len(stopped) < len(responses)
    for generation in stopped:
        assert generation.token_ids[-1] == tokenizer.eos_token_id
        assert tokenizer.eos_token_id not in generation.token_ids[:-1]
    for generation in responses:
        if generation.finish_reason == "length":
            assert tokenizer.eos_token_id not in generation.token_ids


def test_a_canceled_request_is_not_sampled_and_does_not_disturb_others(make_policy, prompts):
    expected = ask(make_policy(), prompts)
    policy, sampled = make_policy(), []
    sample = policy.sample

    def spy(requests):
        sampled.extend(request.request_id for request in requests)
        sample(requests)

    policy.sample = spy

    async def everything():
        tasks = [
            asyncio.ensure_future(policy.generate(prompt, max_tokens=6, request_id=str(index)))
            for index, prompt in enumerate(prompts)
        ]
        await asyncio.sleep(0)  # all requests have been made
        tasks[3].cancel()
        return await asyncio.gather(*tasks, return_exceptions=True)

    results = asyncio.run(everything())
    assert isinstance(results.pop(3), asyncio.CancelledError)
    assert_same(results, [g for index, g in enumerate(expected) if index != 3])
    assert sorted(sampled, key=int) == [str(n) for n in range(len(prompts)) if n != 3]


def test_errors_of_the_model_reach_every_waiting_caller_and_later_requests_work(make_policy, model, prompts):
    policy = make_policy(max_batch=5)

    def fail(*_):
        raise RuntimeError("out of memory")

    hook = model.register_forward_pre_hook(fail)

    async def everything():
        asked = [policy.generate(p, max_tokens=6, request_id=str(n)) for n, p in enumerate(prompts)]
        return await asyncio.wait_for(asyncio.gather(*asked, return_exceptions=True), 30)

    failures = asyncio.run(everything())
    assert [str(failure) for failure in failures] == ["out of memory"] * len(prompts)
    hook.remove()
    for number in range(len(prompts)):  # their episodes end
        policy.forget_request(str(number))
    assert_same(ask(policy, prompts), ask(make_policy(), prompts))


def continued(prompts, responses):
    return [prompt + g.token_ids + [7, 8, 9] for prompt, g in zip(prompts, responses, strict=True)]


def test_after_forget_nothing_of_the_old_weights_is_left(make_policy, model, prompts):
    policies = [make_policy(eos_token_ids=[]) for _ in range(2)]
    first = [ask(policy, prompts) for policy in policies]
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.mul_(1.3)
    second = continued(prompts, first[0])
    expected = ask(make_policy(eos_token_ids=[]), second)
    policies[0].forget()
    assert_same(ask(policies[0], second), expected)
    stale = ask(policies[1], second)  # the reason for `forget`
    assert [g.logprobs for g in stale] != [pytest.approx(g.logprobs, abs=1e-4) for g in expected]


def test_the_cache_of_an_episode_lasts_as_long_as_the_episode(model, tokenizer, tmp_path, monkeypatch):
    sizes = []
    sample = BatchingPolicy.sample

    def counted(self, requests):
        sample(self, requests)
        sizes.append((len(self._prefixes), self))

    monkeypatch.setattr(BatchingPolicy, "sample", counted)
    episodes = play(model, tokenizer, tmp_path)
    counts, policies = zip(*sizes, strict=True)
    assert counts[0] == len(episodes)
    assert list(counts) == sorted(counts, reverse=True), "ended episodes leave"
    assert counts[-1] < len(episodes)
    assert len(policies[-1]._prefixes) == 0

    sizes.clear()
    config = TrainConfig(**options("m", tmp_path, env=['multi:KuhnPoker-v0(opponent="self")']))
    policy = BatchingPolicy(model, eos_token_ids=[tokenizer.eos_token_id], pad_token_id=0)
    players = {"": (policy, AppendContext(tokenizer))}
    with contextlib.closing(Rollouts(config, players, None)) as rollouts:
        rollouts.play(evaluation_tasks(config.sources[:1], 4), players, name="test")
    assert max(count for count, _ in sizes) >= 4
    assert len(policy._prefixes) == 0


def small(kind, **changes):
    """Return a config of a model of one layer."""
    import transformers

    sizes = {"vocab_size": 50, "hidden_size": 16, "intermediate_size": 16, "num_hidden_layers": 1}
    heads = {"num_attention_heads": 2, "num_key_value_heads": 2, "head_dim": 8, "pad_token_id": 0}
    return getattr(transformers, f"{kind}Config")(**sizes, **heads, **changes)


@pytest.mark.parametrize(
    ("kind", "changes", "whole"),
    [
        ("Llama", {}, True),
        ("Qwen3", {}, True),
        ("Mistral", {"sliding_window": None}, True),
        ("Mistral", {"sliding_window": 8}, False),
        ("Starcoder2", {"sliding_window": 8}, False),
        ("Qwen3", {"use_sliding_window": True, "sliding_window": 8, "max_window_layers": 0}, False),
        ("Gemma2", {}, False),
        ("GptOss", {}, False),
    ],
)
def test_a_window_is_not_the_whole_context(kind, changes, whole):
    assert full_attention(small(kind, **changes)) is whole


def test_a_rebuilt_context_is_not_mistaken_for_a_longer_one(make_policy, prompts):
    policy = make_policy(eos_token_ids=[])
    ask(policy, prompts)
    rebuilt = [[5, 6, *prompt, 7, 8, 9, 10, 11, 12, 13] for prompt in prompts]
    assert_same(ask(policy, rebuilt), ask(make_policy(eos_token_ids=[]), rebuilt))


def test_a_model_in_training_mode_stays_so(make_policy, model, prompts):
    model.train()
    ask(make_policy(), prompts[:1])
    assert model.training
    model.eval()
    ask(make_policy(), prompts[:1])
    assert not model.training

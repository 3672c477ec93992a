from __future__ import annotations

import math

import pytest

torch = pytest.importorskip("torch", reason="needs the extra 'train'")

from gem_core.rollout import Episode, Turn  # noqa: E402
from gem_lab._engines.loading import load_model  # noqa: E402
from gem_lab.train._batches import compute_logprobs, make_batch, policy_gradient, score_tokens  # noqa: E402
from gem_lab.train._trainer import policy_loss, token_weights  # noqa: E402


def episode(*turns, seed=0, trainable=True, mode="append"):
    """Return an episode of random tokens; a turn is (context tokens, response tokens, advantage)."""
    generator = torch.Generator().manual_seed(seed)

    def ids(count):
        return torch.randint(5, 200, (count,), generator=generator).tolist()

    return Episode(
        env_id="test",
        seed=seed,
        turns=[
            Turn(ids(context), ids(response), [-0.5] * response, 0.0, "", "", "stop", {}, advantage)
            for context, response, advantage in turns
        ],
        terminated=True,
        truncated=False,
        stop_reason="terminated",
        trainable=trainable,
        context_mode=mode,
    )


EPISODES = [
    episode((4, 3, 1.0), (2, 5, -0.5), (1, 1, 2.0), seed=1),
    episode((9, 2, -1.5), seed=2),
    episode((3, 1, 0.25), (6, 4, 0.75), seed=3),
]


def by_hand(model, episodes, temperature=1.0):
    """Return the gradient, computed one response token at a time from plain logits of one turn at a time."""
    loss, tokens = 0.0, 0
    for one in episodes:
        for index, row in enumerate(one.rows("turn")):
            prompt, response = row.prompt_ids, row.response_ids
            ids = torch.tensor([prompt + response])
            logprobs = (model(input_ids=ids).logits[0] / temperature).log_softmax(-1)
            for place, token in enumerate(response, len(prompt)):
                loss = loss - (one.turns[index].advantage or 0.0) * logprobs[place - 1, token]
                tokens += 1
    names, parameters = zip(*model.named_parameters(), strict=True)
    return dict(zip(names, torch.autograd.grad(loss / tokens, parameters), strict=True))


def assert_same(first, second):
    assert first.keys() == second.keys()
    largest = max(float(value.abs().max()) for value in first.values())
    assert largest > 1e-4  # the comparison is not trivial
    for name in first:
        torch.testing.assert_close(first[name], second[name], rtol=1e-4, atol=1e-6 * largest + 1e-7, msg=name)


@pytest.mark.parametrize("rows", ["auto", "turn"])
@pytest.mark.parametrize("max_tokens", [1, 30, 100_000])
def test_gradient_is_the_one_written_by_hand(model, rows, max_tokens):
    assert_same(policy_gradient(model, EPISODES, rows=rows, max_tokens=max_tokens), by_hand(model, EPISODES))


def test_gradient_matches_the_tempered_distribution(model):
    assert_same(policy_gradient(model, EPISODES, temperature=0.7), by_hand(model, EPISODES, 0.7))


def test_rows_that_take_turns_have_the_gradient_of_their_turns(model):
    rebuilt = [episode((4, 3, 1.0), (2, 5, -0.5), (3, 2, 0.75), (0, 1, 2.0), seed=1, mode="rebuild")]
    rebuilt[0].turns[1].parent, rebuilt[0].turns[2].parent = None, -2  # and turn 3 adds no token
    rebuilt.append(EPISODES[0])
    assert [row.turns for row in rebuilt[0].rows()] == [(0, 2, 3), (1,)]
    assert len(make_batch(rebuilt)) == 3
    for rows in ("auto", "turn"):
        assert_same(policy_gradient(model, rebuilt, rows=rows), by_hand(model, rebuilt))


def test_untrainable_episodes_and_padding_contribute_nothing(model):
    expected = policy_gradient(model, EPISODES)
    failed = episode((2, 50, 9.0), seed=4, trainable=False)
    assert_same(policy_gradient(model, [failed, *EPISODES, failed]), expected)
    alone = [policy_gradient(model, [one]) for one in EPISODES]
    tokens = [one.num_response_tokens for one in EPISODES]
    summed = {
        name: sum(gradient[name] * count for gradient, count in zip(alone, tokens, strict=True)) / sum(tokens)
        for name in expected
    }
    assert_same(expected, summed)


def test_nothing_to_learn_from_is_a_zero_gradient(model):
    gradient = policy_gradient(model, [episode((2, 5, 9.0), trainable=False)])
    assert gradient.keys() == dict(model.named_parameters()).keys()
    assert all(not value.any() for value in gradient.values())
    assert len(make_batch([])) == 0


def test_a_turn_without_an_advantage_counts_as_zero_and_stays_in_the_mean(model):
    without = [*EPISODES, episode((3, 6, None), seed=5)]
    assert_same(policy_gradient(model, without), by_hand(model, without))


def test_the_models_own_gradients_are_left_alone(model):
    policy_gradient(model, EPISODES)
    assert all(parameter.grad is None for parameter in model.parameters())


def test_logprobs_and_entropy_match_the_plain_model(model):
    batch = make_batch(EPISODES)
    with torch.no_grad():
        scores = score_tokens(model, batch, temperature=1.3, entropy=True)
        plain = model(input_ids=batch.token_ids, attention_mask=batch.attention_mask).logits
    distribution = (plain[:, :-1] / 1.3).log_softmax(-1)
    chosen = distribution.gather(-1, batch.token_ids[:, 1:, None])[..., 0]
    mask = batch.response_mask[:, 1:]
    torch.testing.assert_close(scores.logprobs[:, 1:], chosen * mask)
    entropy = -(distribution.exp() * distribution).sum(-1)
    torch.testing.assert_close(scores.entropy[:, 1:], entropy * mask)
    assert not scores.logprobs[:, 0].any()


def test_a_shared_prompt_is_processed_once_with_equal_results(model):
    shared = [3, 4, 5, 6, 7, 8]
    episodes = [episode((number % 3 + 1, 2, 1.0), (2, 3, -0.5), seed=number) for number in range(40)]
    for one in episodes:
        one.turns[0].context_ids[:0] = shared
    batch, counts, results = make_batch(episodes), [], []
    for share in (False, True):
        model.zero_grad()
        tokens = []
        handle = model.register_forward_pre_hook(
            lambda _, __, kwargs, tokens=tokens: tokens.append(kwargs["input_ids"].numel()), with_kwargs=True
        )
        scores = score_tokens(model, batch, entropy=True, hidden=True, share_prompt=share)
        handle.remove()
        (scores.logprobs.square().sum() + scores.entropy.sum() + scores.hidden.tanh().sum()).backward()
        counts.append(sum(tokens))
        gradients = {name: value.grad.clone() for name, value in model.named_parameters()}
        results.append((scores, gradients))
    inside = batch.attention_mask.bool()[:, :-1]
    (plain, gradients), (faster, same_gradients) = results
    assert counts[0] == batch.token_ids[:, 1:].numel()  # the last column is not needed
    assert counts[0] - counts[1] == (len(shared) - 1) * (len(batch) - 1)
    torch.testing.assert_close(faster.logprobs, plain.logprobs, rtol=0, atol=1e-5)
    torch.testing.assert_close(faster.entropy, plain.entropy, rtol=0, atol=1e-5)
    torch.testing.assert_close(faster.hidden[inside], plain.hidden[inside], rtol=0, atol=1e-4)
    torch.testing.assert_close(faster.distribution, plain.distribution, rtol=0, atol=1e-4)
    assert_same(same_gradients, gradients)


def test_autocast_rounds_and_follows_the_weights(model, tiny_folder):
    rounded = load_model(str(tiny_folder), torch.device("cpu"), "float32", autocast=True)
    batch = make_batch(EPISODES)
    for _ in range(2):
        with torch.no_grad():
            exact = compute_logprobs(model, batch)
            without_gradient = compute_logprobs(rounded, batch)
        logprobs = compute_logprobs(rounded, batch)
        logprobs.sum().backward()
        assert torch.equal(logprobs, without_gradient)
        assert 0 < (logprobs - exact).abs().max() < 0.1
        for weights, copy in zip(model.parameters(), rounded.parameters(), strict=True):
            assert copy.dtype == copy.grad.dtype == torch.float32
            assert copy.grad.any()
            copy.grad = None
            with torch.no_grad():
                weights.mul_(1.3)
                copy.mul_(1.3)
    with torch.no_grad():
        assert (compute_logprobs(model, batch) - exact).abs().max() > 0.5  # the weights matter


def test_a_model_that_fails_is_left_as_it_was(model):
    batch = make_batch(EPISODES)
    broken = make_batch(EPISODES)
    broken.token_ids[0, 0] = 10**6
    expected = model(input_ids=batch.token_ids).logits.shape
    with pytest.raises(IndexError):
        compute_logprobs(model, broken)
    assert model(input_ids=batch.token_ids).logits.shape == expected


def test_a_batch_has_one_row_per_episode_with_numbered_turns():
    batch = make_batch([EPISODES[1], EPISODES[2]])
    first, second = EPISODES[1].rows()[0], EPISODES[2].rows()[0]
    assert batch.token_ids.tolist() == [first.token_ids + [0] * 3, second.token_ids]
    assert batch.attention_mask.tolist() == [[1] * 11 + [0] * 3, [1] * 14]
    assert batch.turn_ids.tolist() == [
        [-1] * 9 + [0] * 2 + [-1] * 3,
        [-1] * 3 + [1] + [-1] * 6 + [2] * 4,
    ]
    assert torch.equal(batch.response_mask, (batch.turn_ids >= 0).float())
    assert batch.advantages[1].tolist() == [0.0] * 3 + [0.25] + [0.0] * 6 + [0.75] * 4
    assert torch.equal(batch.logprobs, -0.5 * batch.response_mask)


@pytest.mark.parametrize("limit", [1, 25, 40, 10_000])
def test_chunks_hold_every_row_once_within_the_limit(limit):
    batch = make_batch(EPISODES * 3, rows="turn")
    chunks = list(batch.row_chunks(limit))
    assert sorted(row for rows in chunks for row in rows) == list(range(len(batch)))
    for rows, part in zip(chunks, batch.chunks(limit), strict=True):
        assert part.token_ids.numel() <= limit or len(rows) == 1
        assert part.attention_mask.any(0).all()  # no column of padding only


LOGPROBS = torch.tensor([[0.0, -1.0, -2.0, -1.0], [0.0, -0.5, 0.0, 0.0]])
OLD = torch.tensor([[0.0, -1.5, -1.0, -1.0], [0.0, -1.0, 0.0, 0.0]])
MASK = torch.tensor([[0.0, 1.0, 1.0, 1.0], [0.0, 1.0, 0.0, 0.0]])
TURNS = torch.tensor([[-1, 0, 0, 1], [-1, 2, -1, -1]])
ADVANTAGES = torch.tensor([[0.0, 2.0, 2.0, -1.0], [0.0, 0.5, 0.0, 0.0]])
RATIOS = [math.exp(0.5), math.exp(-1.0), 1.0, math.exp(0.5)]


def test_token_mean_divides_by_the_tokens():
    expected = -(2 * RATIOS[0] + 2 * RATIOS[1] - RATIOS[2] + 0.5 * RATIOS[3]) / 4
    assert policy_loss(LOGPROBS, OLD, ADVANTAGES, MASK).item() == pytest.approx(expected)


def test_turn_mean_gives_every_turn_the_same_weight():
    expected = -((2 * RATIOS[0] + 2 * RATIOS[1]) / 2 - RATIOS[2] + 0.5 * RATIOS[3]) / 3
    loss = policy_loss(LOGPROBS, OLD, ADVANTAGES, MASK, turn_ids=TURNS, scale="turn-mean")
    assert loss.item() == pytest.approx(expected)
    with pytest.raises(ValueError, match="turn-mean needs turn_ids"):
        policy_loss(LOGPROBS, OLD, ADVANTAGES, MASK, scale="turn-mean")


def test_clip_takes_the_smaller_gain():
    advantages = ADVANTAGES * torch.tensor([[1.0, 1.0, -1.0, 1.0], [1.0, 1.0, 1.0, 1.0]])
    # 2 * 1.2 (clipped), -2 * 0.8 (clipped: -2 * exp(-1) would be larger), -1, 0.5 * 1.2 (clipped)
    expected = -(2 * 1.2 - 2 * 0.8 - 1.0 + 0.5 * 1.2) / 4
    assert policy_loss(LOGPROBS, OLD, advantages, MASK, clip=0.2).item() == pytest.approx(expected)


def test_a_clipped_ratio_has_no_gradient():
    logprobs = LOGPROBS.clone().requires_grad_()
    policy_loss(logprobs, OLD, ADVANTAGES, MASK, clip=0.2).backward()
    assert logprobs.grad[0, 1] == 0  # above 1.2 with a positive advantage
    assert logprobs.grad[0, 2] != 0  # below 0.8 with a positive advantage: still pulled up
    assert logprobs.grad[1, 1] == 0


@pytest.mark.parametrize("scale", ["token-mean", "turn-mean"])
def test_parts_with_the_denominator_of_the_whole_add_up_to_it(scale):
    whole = policy_loss(LOGPROBS, OLD, ADVANTAGES, MASK, turn_ids=TURNS, scale=scale)
    total = token_weights(MASK, TURNS, scale).sum().item()
    parts = [
        policy_loss(
            LOGPROBS[[row]], OLD[[row]], ADVANTAGES[[row]], MASK[[row]],
            turn_ids=TURNS[[row]], scale=scale, denominator=total,
        )
        for row in (0, 1)
    ]  # fmt: skip
    torch.testing.assert_close(parts[0] + parts[1], whole)


def test_the_old_logprobs_get_no_gradient():
    old = OLD.clone().requires_grad_()
    policy_loss(LOGPROBS.clone().requires_grad_(), old, ADVANTAGES, MASK).backward()
    assert old.grad is None

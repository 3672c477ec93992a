"""Samples of several rows in OpenRLHF's own batches, in one process."""

from __future__ import annotations

import json
import random
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from gem_openrlhf import _failures, _hooks
from gem_openrlhf._executor import GemExecutor, lay_out
from gem_openrlhf._failures import actor_step, rollout_stats
from gem_openrlhf._labels import ROWS
from gem_openrlhf._options import VARIABLE
from gem_openrlhf._rows import UPDATES, actor_updates
from openrlhf.models.loss import PolicyLoss
from openrlhf.trainer.ppo_trainer import BasePPOTrainer
from openrlhf.trainer.ppo_utils import NaiveReplayBuffer
from openrlhf.trainer.ppo_utils.samples_generator import SamplesGenerator
from openrlhf.trainer.ray.ppo_actor import ActorPPOTrainer

from gem_core.errors import ConfigError
from gem_core.rollout import Episode, Turn
from gem_core.tasks import TaskRow
from gem_lab.train._batches import policy_gradient
from tests.trainers.evidence import oracle
from tests.trainers.openrlhf import correction, harness
from tests.trainers.openrlhf.args import experience_maker, parse

pytestmark = pytest.mark.skipif(not correction.has_levels(), reason="needs OpenRLHF 0.11.2")

TURN_ROWS = ("--algo.advantage.estimator", "rebn", "--gem.rows", "turn")
MEANS = ("--actor.loss_agg_mode", "seq-mean-token-mean")
OPTIONS = {"estimator": "rebn", "rows": "auto", "context": "rebuild"}
REWARDS = [[0.5, 1.0, 0.0], [0.25], [], [2.0, 0.0]]
"""Rewards of the turns of each episode; none for a failed one."""
PARTS = [[0, 1, 1], [0], [], [0, 1]]
"""Index of the row of each turn."""
LENGTHS = [[2, 3, 1], [4], [], [1, 2]]


def made(number: int, *, rows: bool) -> Episode:
    """Return an episode of several rows or of one."""
    turns, rest = [], zip(REWARDS[number], PARTS[number], LENGTHS[number], strict=True)
    for index, (reward, part, length) in enumerate(rest):
        begins = rows and index > 0 and part != PARTS[number][index - 1]
        context = [7 + part] * (2 + part)
        turns.append(
            Turn(context, [20 + index] * length, None, reward, "", "", "stop", parent=None if begins else -1)
        )
    return Episode("test", number, turns, True, False, "terminated", trainable=bool(turns))


def sample(number: int, *, rows: bool) -> Any:
    """Return an episode as a sample of OpenRLHF."""
    episode = made(number, rows=rows)
    task = TaskRow(env_id="test", env_kwargs={}, seed=number, index=0)
    response = lay_out(episode, task, "", pad_id=0, with_logprobs=False, split="auto")
    assert len(response[ROWS]) == (max(PARTS[number], default=0) if rows else 0)
    generator = SamplesGenerator.__new__(SamplesGenerator)
    generator.gem_groups = None
    process = _failures.process_response(SamplesGenerator._process_response_into_experience)
    return process(generator, response, max_len=4096)


def computed(
    estimator: str, *words: str, rows: bool, numbers: tuple[int, ...] = (0, 1, 2, 3)
) -> tuple[Any, list[Any]]:
    """Return the experience maker and its batch of the episodes."""
    flags = {
        "rollout.n_samples_per_prompt": "2", "rollout.micro_batch_size": "3", "train.micro_batch_size": "2",
        "train.batch_size": "4", "algo.advantage.gamma": "0.5", "actor.num_gpus_per_node": "1",
    }  # fmt: skip
    given = [word for name, value in flags.items() for word in (f"--{name}", value)]
    maker = experience_maker(
        "--algo.advantage.estimator", estimator, *given, *words,
        environment={**OPTIONS, "estimator": estimator},
    )  # fmt: skip
    maker.tokenizer = SimpleNamespace(pad_token_id=0)
    batches = maker.split_rollout_samples([sample(number, rows=rows) for number in numbers])
    for batch in batches:
        batch.kl = torch.zeros(batch.action_mask.shape)
        batch.info["kl"] = batch.total_length.float()
    return maker, maker.compute_advantages_and_returns(batches)


def by_turn(batches: list[Any], name: str = "advantages") -> dict[tuple[int, int], float]:
    """Return the value of each turn by seed and index, after checking that all of its tokens have it."""
    result: dict[tuple[int, int], float] = {}
    seed = -1
    for batch in batches:
        for label, tokens, mask, values in zip(
            batch.labels, batch.sequences, batch.action_mask, getattr(batch, name), strict=True
        ):
            fields = json.loads(label)
            seed = fields["gem_episode"]["seed"] if fields["gem_episode"] else seed
            assert not values[mask == 0].any()
            for turn in fields["turns"]:
                on = (mask != 0) & (tokens[1:] == 20 + turn)
                assert int(on.sum()) == LENGTHS[seed][turn]
                assert len(set(values[on].tolist())) == 1
                assert (seed, turn) not in result
                result[seed, turn] = float(values[on][0])
    return result


EVERY_TURN = {(number, turn) for number, of in enumerate(REWARDS) for turn in range(len(of))}


@pytest.mark.parametrize(
    "estimator", ["rebn", "gem_grpo", "gem_rloo", "gem_opo", "gem_reinforce", "gem_mt_grpo"]
)
def test_advantages_do_not_depend_on_rows(estimator: str) -> None:
    random.seed(0)
    _, whole = computed(estimator, rows=False)
    _, cut = computed(estimator, rows=True)
    wanted, found = by_turn(whole), by_turn(cut)
    assert set(wanted) == set(found) == EVERY_TURN
    assert found == pytest.approx(wanted, abs=1e-6)
    assert any(wanted.values())


def test_a_mean_over_rows_is_weighted_as_a_mean_over_episodes() -> None:
    _, plain = computed("gem_reinforce", rows=True)
    _, weighted = computed("gem_reinforce", *MEANS, rows=True)
    rows, episodes = 5, 3
    for (number, turn), value in by_turn(weighted).items():
        part = PARTS[number][turn]
        in_row = sum(n for n, of in zip(LENGTHS[number], PARTS[number], strict=True) if of == part)
        factor = in_row / sum(LENGTHS[number]) * rows / episodes
        assert value == pytest.approx(by_turn(plain)[number, turn] * factor, abs=1e-6)
    assert by_turn(weighted, "returns") == by_turn(plain, "returns")


def test_updates_have_whole_episodes_and_equally_many_rows() -> None:
    words = ("--train.batch_size", "2", "--actor.num_gpus_per_node", "2")
    maker, batches = computed("rebn", *words, rows=True)
    layout = maker.gem_layout
    assert [len(batch.labels) for batch in batches] == [3] * (len(layout.updates) // 3)
    half = len(layout.updates) // 2
    for rank in (layout.updates[:half], layout.updates[half:]):
        assert rank == [0] * (half // 2) + [1] * (half // 2)
        assert half // 2 % 2 == 0  # micro-batches of two rows
    for number in range(4):
        rows = [n for n, episode in enumerate(layout.episodes) if episode == number]
        assert len(rows) == max(1, len(set(PARTS[number])))
        assert len({layout.updates[row] for row in rows}) == 1
    assert {layout.updates.count(update) for update in (0, 1)} == {half}
    assert {float(value) for batch in batches for value in batch.info[UPDATES]} == {2.0}


class GemActor(ActorPPOTrainer):
    """OpenRLHF's actor trainer with GEM's hooks."""

    ppo_train = actor_updates(ActorPPOTrainer.ppo_train)
    training_step = actor_step(ActorPPOTrainer.training_step)


class Engine:
    """DeepSpeed's counting of micro-batches."""

    def __init__(self) -> None:
        self.optimizer, self.micro_steps, self.dp_world_size, self.steps = SimpleNamespace(), 3, 1, 2

    def train_micro_batch_size_per_gpu(self) -> int:
        return 2

    def set_train_batch_size(self, size: int) -> None:
        self.steps, rest = divmod(size, 2)
        assert not rest


def updates_of(model: Any, batches: list[Any], mode: str) -> list[dict[str, torch.Tensor]]:
    """Return the gradient of each update that OpenRLHF's actor makes from the batches."""
    found: list[dict[str, torch.Tensor]] = []
    engine = Engine()

    class Actor:
        def __init__(self) -> None:
            self.model = engine

        def train(self) -> None: ...

        def __call__(
            self, sequences: Any, mask: Any, attention_mask: Any, **unused: Any
        ) -> tuple[torch.Tensor, None]:
            logits = model(sequences, attention_mask=attention_mask).logits[:, :-1]
            chosen = logits.log_softmax(-1).gather(2, sequences[:, 1:, None])[..., 0]
            return chosen * mask, None

    def optimizer_step(*unused: Any, **also_unused: Any) -> None:
        engine.micro_steps += 1
        if engine.micro_steps % engine.steps == 0:
            found.append(
                {n: value.grad.clone() for n, value in model.named_parameters() if value.grad is not None}
            )
            model.zero_grad()

    buffer = NaiveReplayBuffer(2)
    for batch in batches:
        batch.action_log_probs = Actor()(batch.sequences, batch.action_mask, batch.attention_mask)[0].detach()
        buffer.append(batch)
    args = SimpleNamespace(
        train=SimpleNamespace(dynamic_batch_enable=False),
        ds=SimpleNamespace(tensor_parallel_size=1),
        algo=SimpleNamespace(kl=SimpleNamespace(use_loss=False)),
        actor=SimpleNamespace(entropy_coef=None),
    )
    strategy = SimpleNamespace(
        args=args, ring_attn_group=None, is_rank_0=lambda: False, accumulated_gradient=2,
        all_reduce=lambda data: data, backward=lambda loss, *unused: (loss / engine.steps).backward(),
        optimizer_step=optimizer_step, get_grad_norm=lambda model: 0.0,
    )  # fmt: skip
    trainer = GemActor.__new__(GemActor)
    trainer.__dict__ |= {
        "args": args, "strategy": strategy, "replay_buffer": buffer, "dataloader_pin_memory": False,
        "max_epochs": 1, "actor": Actor(), "ema_model": None, "aux_loss": False, "actor_optim": None,
        "actor_loss_fn": PolicyLoss(token_level_loss=mode == "token-mean"),
        "actor_scheduler": SimpleNamespace(get_last_lr=lambda: [0.0]),
    }  # fmt: skip
    model.zero_grad()
    trainer.ppo_train(0.0)
    return found


@pytest.mark.parametrize("mode", ["token-mean", "seq-mean-token-mean"])
@pytest.mark.parametrize("size", [2, 4])
def test_openrlhfs_actor_has_the_gradient_of_one_row_per_turn(mode: str, size: int, model: Any) -> None:
    random.seed(0)
    maker, batches = computed(
        "rebn", "--train.batch_size", str(size), "--actor.loss_agg_mode", mode, rows=True
    )
    updates = updates_of(model, batches, mode)
    assert len(updates) == 4 // size
    trained = [number for number, rewards in enumerate(REWARDS) if rewards]
    advantages = dict(zip(trained, oracle([REWARDS[n] for n in trained], 0.5), strict=True))
    layout = maker.gem_layout
    for index, gradient in enumerate(updates):
        pairs = zip(layout.episodes, layout.updates, strict=True)
        numbers = {number for number, update in pairs if update == index and number in advantages}
        episodes = {number: made(number, rows=True) for number in numbers}
        tokens = sum(episode.num_response_tokens for episode in episodes.values())
        for number, episode in episodes.items():
            weight = tokens / (len(episodes) * episode.num_response_tokens)
            for turn, advantage in zip(episode.turns, advantages[number], strict=True):
                turn.advantage = float(advantage) * (1 if mode == "token-mean" else weight)
        reference = policy_gradient(model, episodes.values(), rows="turn")
        flat = [torch.cat([of[name].flatten() for name in reference]) for of in (gradient, reference)]
        assert float((flat[0] - flat[1]).norm() / flat[1].norm()) < 1e-5


def test_metrics_count_episodes() -> None:
    _, batches = computed("rebn", rows=True)

    class Actor:
        def step(self, experience: Any, kl_ctl: float, step: int, loss_batch_info: Any = None) -> Any:
            metrics = {**experience.info, "response_length": experience.response_length}
            return {
                "metrics": metrics, "weights": dict.fromkeys(metrics, "sample"),
                "num_samples": float(len(experience.labels)), "num_action_tokens": 1.0,
            }  # fmt: skip

    train = actor_step(Actor.step)
    sums: dict[str, float] = {}
    count = 0.0
    for batch in batches:
        status = train(Actor(), batch, 0.0, 0, {"batch_num_tokens": 1})
        count += status["num_samples"]
        for name, values in status["metrics"].items():
            sums[name] = sums.get(name, 0.0) + float(values.float().mean()) * status["num_samples"]
    assert count == pytest.approx(3)
    means = {name: value / count for name, value in sums.items()}
    assert means["reward"] == means["return"] == pytest.approx((1.5 + 0.25 + 2.0) / 3)
    assert means["response_length"] == pytest.approx((2 + 7 + 4 + 1 + 2) / 3)
    assert means["total_length"] == pytest.approx((4 + 10 + 6 + 3 + 5) / 3)
    # The mean over tokens of the lengths of rows, which stand for the KL divergence here.
    assert means["kl"] == pytest.approx(((2 * 4 + 4 * 10) / 6 + 6 + (3 + 2 * 5) / 3) / 3)
    assert means["rebn/turns"] == 6
    assert means["gem/error_rate"] == 0.25

    class Trainer(BasePPOTrainer):
        _compute_rollout_stats = rollout_stats(BasePPOTrainer._compute_rollout_stats)

    stats = Trainer.__new__(Trainer)._compute_rollout_stats(batches)
    assert stats["rollout/num_samples"] == 3
    assert stats["rollout/reward_mean"] == pytest.approx(means["reward"])
    assert stats["rollout/response_length_mean"] == pytest.approx(means["response_length"])


def test_an_agent_has_several_rows_only_if_its_trainer_takes_them(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(VARIABLE, json.dumps(OPTIONS))
    monkeypatch.setattr(_hooks, "_set_up", False)  # other tests of this process have run it
    with pytest.raises(ConfigError, match=r"--gem\.context=rebuild: .* pass this option to gem_openrlhf"):
        GemExecutor()  # the hook did not run, as in OpenRLHF's own command
    monkeypatch.setattr(_hooks, "_set_up", True)
    assert GemExecutor({"rows": "turn"})._several_rows
    monkeypatch.setenv(VARIABLE, "{}")
    with pytest.raises(ConfigError, match=r"--gem\.rows=turn: an episode may have several rows"):
        GemExecutor({"rows": "turn"})


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ((*TURN_ROWS, "--actor.policy_loss_type", "gspo"), r"policy_loss_type=gspo: .* ratio of a whole row"),
        ((*TURN_ROWS, "--actor.aux_loss_coef", "0.1"), r"aux_loss_coef=0\.1: averages over micro-batches"),
        (
            (*TURN_ROWS, "--train.dynamic_batch_enable"),
            r"dynamic_batch_enable=True: .* rows would be left out",
        ),
        ((*TURN_ROWS, *harness.words(correction.flags("seq-mask-tis"))), r"seq.*: weighs a whole row"),
        ((*TURN_ROWS, *MEANS, "--actor.entropy_coef", "0.1"), r"entropy_coef=0\.1: averages over rows"),
        (
            (*TURN_ROWS, *MEANS, "--algo.kl.use_loss", "--algo.kl.init_coef", "0.1"),
            r"kl\.init_coef=0\.1: averages over rows",
        ),
    ],
)
def test_what_depends_on_rows_is_rejected(words: tuple[str, ...], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        parse(*words)

"""The comparison finds every fault in verl's adapter, on the shared step in this process.

verl's own worker, replay buffer, and trainer take the step. `ScriptedServer` replaces verl's inference
servers behind their own interface, and `MemoryQueue` its TransferQueue.
"""

from __future__ import annotations

from typing import Any

import pytest
from gem_verl import _loop
from verl.workers.rollout.replica import TokenOutput

from gem_core.errors import UnsupportedTrainer
from gem_core.rollout import Episode
from gem_core.trainers import _estimators as kit_estimators
from gem_lab.consistency import Played
from tests.consistency import faults, scenario
from tests.consistency.scenario import Scenario
from tests.trainers.spies.gem_script import NotInScript, Script
from tests.trainers.verl.memory import MemoryQueue, make_trainer, play_tasks, update, use_memory_queue

WORDS = (
    "algorithm.adv_estimator=rebn",
    f"algorithm.gamma={scenario.GAMMA}",
    f"data.max_response_length={scenario.TOKENS}",
    f"actor_rollout_ref.rollout.n={scenario.SAMPLES}",
    f"actor_rollout_ref.rollout.max_model_len={scenario.TOKENS}",
    f"+gem.max_turns={scenario.MAX_TURNS}",
    f"+gem.max_tokens_per_turn={scenario.TOKENS_PER_TURN}",
    "+gem.wrappers=named",
)

REJECTED = {"discount per token", "statistics after subsampling"}
"""Faults that the trainer itself rejects: its estimator sees another number of turns than were played."""


class ScriptedServer:
    """Answers from the script.

    Attributes:
        error: A prompt that the script lacks; verl logs the error and trains on the other episodes.
    """

    def __init__(self, script: Script) -> None:
        self._script = script
        self.error: NotInScript | None = None

    async def generate(self, request_id: str, *, prompt_ids: list[int], sampling_params: Any) -> TokenOutput:
        try:
            answer = self._script.answer(prompt_ids, sampling_params["max_tokens"])
        except NotInScript as error:
            self.error = error
            raise
        return TokenOutput(
            token_ids=answer.token_ids, log_probs=answer.logprobs, stop_reason="completed", extra_fields={}
        )


@pytest.fixture
def queue(monkeypatch: pytest.MonkeyPatch) -> MemoryQueue:
    return use_memory_queue(monkeypatch)


def step(made: Scenario, tokenizer: Any, queue: MemoryQueue) -> list[Played]:
    """Play the tasks in verl's worker, sample them from its replay buffer, and compute its advantages."""
    trainer, server = make_trainer(*WORDS), ScriptedServer(Script(made.script))
    by_uid = {str(index): task for index, task in enumerate(scenario.tasks())}
    play_tasks(
        trainer,
        by_uid,
        server,
        samples=dict.fromkeys(by_uid, scenario.SAMPLES),
        tokenizer=tokenizer,
        model_type="llama",
    )
    if server.error is not None:
        raise server.error
    batch = update(trainer, queue, len(by_uid))
    result = [faults.read_row(e, [], [], [], []) for e in trainer._episodes if not e.trainable]
    for key in batch.keys:
        row = queue.rows["train"][key]
        before = [0.0] * len(row["prompts"])
        columns = ([*before, *row[name].tolist()] for name in ("response_mask", "rm_scores", "advantages"))
        tokens = row["prompts"].tolist() + row["responses"].tolist()
        outline = Episode.from_dict(row["extra_fields"]["gem"]["episode"])
        result.append(faults.read_row(outline, tokens, *columns))
    return result


def test_the_step_matches_gem_core(shared_step: Scenario, shared_tokenizer: Any, queue: MemoryQueue) -> None:
    assert faults.findings(shared_step, lambda: step(shared_step, shared_tokenizer, queue)) == set()


@pytest.mark.parametrize("fault", faults.SEEN)
def test_a_fault_is_found(
    fault: str,
    shared_step: Scenario,
    shared_tokenizer: Any,
    queue: MemoryQueue,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    patches = {
        **faults.estimator_patches(kit_estimators),
        "mask shifted by one": faults.argument_patch(_loop, "lay_out", faults.shifted),
        "last reward dropped": faults.argument_patch(_loop, "lay_out", faults.unpaid),
        "response re-tokenized": faults.retokenized(_loop.ServerPolicy, shared_tokenizer),
        "group with different seeds": faults.own_seeds(_loop),
    }
    patches[fault](monkeypatch)
    if fault in REJECTED:
        with pytest.raises(UnsupportedTrainer, match="turns were played"):
            step(shared_step, shared_tokenizer, queue)
    else:
        assert (
            faults.findings(shared_step, lambda: step(shared_step, shared_tokenizer, queue))
            >= faults.SEEN[fault]
        )

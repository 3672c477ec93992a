"""`gem-core conform --trainer trl`: estimators of TRL's trainers.

TRL takes each row for a sample, and groups the samples by position. It computes advantages in the method that
samples and scores, so a whole trainer is created, with a model of a few weights; only the samples are given.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from tempfile import TemporaryDirectory
from typing import Any

import torch
from datasets import Dataset
from tokenizers import Tokenizer, decoders, models, pre_tokenizers
from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast
from trl import GRPOConfig, GRPOTrainer, RLOOConfig, RLOOTrainer

from gem_core.rollout import Episode
from gem_core.trainers._imports import replaced
from gem_lab._conform import ExactRows, GradedEstimator, estimators_of_plugin
from gem_trl._config import GemConfig
from gem_trl._dataset import tasks
from gem_trl._trainer import GemGRPOTrainer

ENV = "game:GuessTheNumber-v0-easy"
TEMPLATE = (
    "{% for message in messages %}{{ message['role'] + message['content'] }}<|end|>{% endfor %}"
    "{% if add_generation_prompt %}assistant{% endif %}"
)


def estimators() -> dict[str, GradedEstimator]:
    """Return TRL's estimators that compare the samples of a prompt, and gem-core's in their place."""
    grpo = partial(_theirs, GRPOTrainer, partial(GRPOConfig, scale_rewards="none"), lambda ids: (ids, None))
    rloo = partial(_theirs, RLOOTrainer, RLOOConfig, lambda ids: ids)
    return {
        "TRL grpo, without std": GradedEstimator("group mean", grpo),
        "TRL rloo": GradedEstimator("leave one out", rloo),
    } | estimators_of_plugin("TRL", _ours)


def _theirs(
    trainer_class: type[Any],
    config_class: Callable[..., Any],
    sampled: Callable[[list[list[int]]], Any],
    rows: ExactRows,
) -> torch.Tensor:
    row_scores = rows.scores().sum(1).tolist()
    scores = [score if turns else None for score, turns in zip(row_scores, rows.turns, strict=True)]
    ids = [[1] * rows.mask.shape[1]] * len(scores)
    inputs = [{"prompt": group} for group in rows.groups]
    with TemporaryDirectory() as folder:
        args = _config(config_class, folder, rows, len(inputs))
        trainer = trainer_class(
            _model(), lambda **_: scores, args, Dataset.from_list(inputs), processing_class=_tokenizer()
        )
        with replaced(trainer, "_generate_single_turn", lambda *_: sampled(ids)):
            output = trainer._generate_and_score_completions(inputs)
    advantages: torch.Tensor = output["advantages"]
    return advantages[:, None]


def _ours(name: str, gamma: float, rows: ExactRows) -> torch.Tensor:
    async def play(*_: Any) -> list[Episode]:
        return rows.played

    dataset = tasks([ENV], len(rows.played))
    with TemporaryDirectory() as folder:
        trainer = GemGRPOTrainer(
            _model(),
            args=_config(GRPOConfig, folder, rows, len(dataset)),
            train_dataset=dataset,
            processing_class=_tokenizer(),
            gem=GemConfig(estimator=name, gamma=gamma, context="rebuild"),
        )
        with replaced(trainer.gem_rollout, "_play", play):
            output = trainer._generate_and_score_completions(list(dataset))
    return output["advantages"]


def _config(config_class: Callable[..., Any], folder: str, rows: ExactRows, samples: int) -> Any:
    return config_class(
        folder, num_generations=max(rows.group_sizes), per_device_train_batch_size=samples, beta=0.0,
        use_cpu=True, bf16=False, report_to="none", disable_tqdm=True,
    )  # fmt: skip


def _model() -> Any:
    sizes: Any = {"hidden_size": 8, "intermediate_size": 8, "num_hidden_layers": 1, "num_attention_heads": 1}
    return LlamaForCausalLM(LlamaConfig(vocab_size=257, max_position_embeddings=64, **sizes))


def _tokenizer() -> Any:
    alphabet = ["<|end|>", *sorted(pre_tokenizers.ByteLevel.alphabet())]
    tokenizer = Tokenizer(models.BPE(vocab={text: id for id, text in enumerate(alphabet)}, merges=[]))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    tokenizer.decoder = decoders.ByteLevel()
    return PreTrainedTokenizerFast(
        tokenizer_object=tokenizer, eos_token="<|end|>", pad_token="<|end|>", chat_template=TEMPLATE
    )

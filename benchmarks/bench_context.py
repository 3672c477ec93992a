"""Cost of token-exact contexts: late turns against early ones, and against rendering everything each turn.

The tokenizer is a byte-level BPE with 2,000 tokens and a ChatML template, trained for this benchmark. A turn
adds a response of 30 to 40 tokens and an observation of the same length.
"""

from __future__ import annotations

import importlib.util
from collections.abc import Callable
from itertools import count
from random import Random
from typing import Any

import common

TURNS = 128
CHATML = (
    "{% for message in messages %}"
    "{{ '<|im_start|>' + message['role'] + '\n' + message['content'] + '<|im_end|>\n' }}{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}"
)


def make_tokenizer(texts: list[str]) -> Any:
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
    from transformers import PreTrainedTokenizerFast

    backend = Tokenizer(models.BPE())
    backend.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    backend.decoder = decoders.ByteLevel()
    specials = ["<|endoftext|>", "<|im_start|>", "<|im_end|>"]
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    backend.train_from_iterator(
        texts,
        trainers.BpeTrainer(
            vocab_size=2000, special_tokens=specials, initial_alphabet=alphabet, show_progress=False
        ),
    )
    tokenizer = PreTrainedTokenizerFast(tokenizer_object=backend, eos_token="<|im_end|>")
    tokenizer.chat_template = CHATML
    return tokenizer


def run(quick: bool) -> list[common.Result]:
    if importlib.util.find_spec("transformers") is None:
        raise SystemExit("bench_context needs transformers: pip install 'gem-core[train]'")
    from gem_chat import AppendContext

    random = Random(0)
    words = [
        "the",
        "next",
        "guess",
        "is",
        "higher",
        "lower",
        "number",
        "between",
        "I",
        "think",
        "try",
        "again",
    ]
    sentences = [" ".join(random.choices(words, k=35)) + f" {turn}." for turn in range(2 * TURNS)]
    observations, answers = sentences[:TURNS], sentences[TURNS:]
    tokenizer = make_tokenizer(sentences)
    context = AppendContext(tokenizer)
    end = context.extra_stop_id(())
    responses = [[*tokenizer.encode(answer), end] for answer in answers]

    # No message is repeated, because a context caches the token ids of messages.
    turns, ours, theirs = count(), count(), count()

    def one_turn(turn: int) -> Callable[[], int]:
        def work() -> int:
            context.extend(f"{next(turns):08} {observations[turn]}", responses[turn - 1])
            return 1

        return work

    def append() -> int:
        episode = f"{next(ours):08}"
        ids = context.first(f"{episode} {observations[0]}")
        for observation, response in zip(observations[1:], responses, strict=False):
            ids += response
            ids += context.extend(f"{episode} {observation}", response)
        return len(ids)

    def render_all() -> int:
        episode = f"{next(theirs):08}"
        messages: list[dict[str, str]] = []
        ids: list[int] = []
        for observation, answer in zip(observations, answers, strict=True):
            messages.append({"role": "user", "content": f"{episode} {observation}"})
            text = tokenizer.apply_chat_template(messages, tokenize=False, add_generation_prompt=True)
            ids = tokenizer.encode(text, add_special_tokens=False)
            messages.append({"role": "assistant", "content": answer})
        return len(ids)

    if append() != render_all():
        raise SystemExit("both ways must give the same number of tokens")
    seconds = 0.02 if quick else 0.2
    last_turn = common.compare(one_turn(TURNS - 1), one_turn(1), seconds=seconds)
    episode = common.compare(append, render_all, seconds=seconds)
    return [
        common.Result("context: turn 128", *last_turn.times(1e6), "us", at_most=2, note="peer: turn 2"),
        common.Result(
            "context: 128-turn episode",
            *episode,
            "tokens/s",
            at_least=10,
            note="peer: rendering the whole conversation each turn",
        ),
    ]


if __name__ == "__main__":
    common.main(run)

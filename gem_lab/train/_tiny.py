"""A tiny causal language model and its tokenizer, created for the environments that it will play.

The tokenizer is a byte-level BPE trained on the text of these environments. Repeated lines become single
tokens, so an episode is a few dozen tokens long. The model is a small Llama. Both are saved as an ordinary
Hugging Face folder that any trainer or engine can load.

The warm start teaches only the format, by supervised learning on *random legal play*
(`Env.sample_random_action`, never the oracle's actions). Afterwards the model knows the format of answers and
the text of the environment; reinforcement learning has to find the good answers.
"""

from __future__ import annotations

import asyncio
import hashlib
import json
import logging
import os
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from random import Random
from typing import Any

import torch
from tokenizers import Regex, Tokenizer, decoders, models, pre_tokenizers, trainers
from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast

import gem_core
from gem_chat import AppendContext, RebuildContext
from gem_chat._vision import is_processor, tokenizer_of
from gem_core import Env, Wrapper
from gem_core._observations import readable_text
from gem_core._tasks import TRAIN_SEEDS, count_items
from gem_core._util.seeds import derive_rng, derive_seed
from gem_core.errors import ConfigError
from gem_core.multiagent import MultiAgentEnv
from gem_core.rollout import Episode, EpisodeLimits, Generation, run_episode
from gem_core.tasks import EnvChoice
from gem_envs.multiagent import OneAgent
from gem_envs.tools import Tools
from gem_lab._options import check_path
from gem_lab.train._batches import make_batch, score_tokens
from gem_lab.train._checkpoint import save_processor
from gem_lab.train._output import replace_folder
from gem_lab.train._tiny_options import TinyOptions
from gem_lab.train._tiny_vision import make_processor, make_vision_model

logger = logging.getLogger(__name__)

MAX_RANDOM_TOKENS = 4096
RECORD_NAME = "gem_tiny.json"
SPECIAL_TOKENS = ("<|endoftext|>", "<|system|>", "<|user|>", "<|assistant|>", "<|end|>")
CHAT_TEMPLATE = (
    "{% for message in messages %}"
    "{{ '<|' + message['role'] + '|>' + message['content'] + '<|end|>' }}"
    "{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|assistant|>' }}{% endif %}"
    "{% if enable_thinking is defined %}{# these models never think #}{% endif %}"
)

_PIECES = r"\\boxed\{[^{}\n]*\}|[^\n\\]*\n+|[^\n\\]+|\\"
"""Pieces of text whose boundaries no token crosses: an answer, and each line around it."""


def recorded_options(folder: Path) -> dict[str, Any] | None:
    """Return the options of the tiny model in a folder, or None if the folder holds no tiny model."""
    path = folder / RECORD_NAME
    if not path.exists():
        return None
    options: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))["options"]
    return options


def make_tiny(options: TinyOptions, progress: Callable[[int], None] | None = None) -> tuple[Any, Any]:
    """Create the model and its tokenizer in memory.

    Args:
        options: Options of the model.
        progress: Called with the number of finished steps of the warm start; None reports nothing.

    Returns:
        ``(model, tokenizer)``, a `LlamaForCausalLM` and a `PreTrainedTokenizerFast`; if an environment
        shows images, a `Qwen2VLForConditionalGeneration` and a `gem_chat._vision.Processor`.
    """
    sources = [EnvChoice.parse(text) for text in options.env]
    for source in sources:
        count_items(source, "train")  # rejects evaluation-only environments
    envs = [_one_agent(source.make()) for source in sources]
    for env in envs:
        _set_random_calls(env, options.random_calls)
    try:
        threads = torch.get_num_threads()
        torch.set_num_threads(1)  # a fixed order of summation, so that every machine gets the same weights
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(options.seed)
            processor = _make_tokenizer(_corpus(envs, options), options.vocab_size)
            if any(env.shows_images for env in envs):
                processor = make_processor(processor)
            model = _make_model(processor, options)
            _warm_start(model, processor, envs, options, progress)
    finally:
        torch.set_num_threads(threads)
        for env in envs:
            env.close()
    return model, processor


def save_tiny(
    folder: str | os.PathLike[str], options: TinyOptions, progress: Callable[[int], None] | None = None
) -> str:
    """Create a tiny model and save it as a Hugging Face folder.

    Args:
        folder: Path of the folder, which is replaced atomically.
        options: Options of the model.
        progress: As in `make_tiny`.

    Returns:
        SHA-256 of the files in the folder, also recorded in its ``gem_tiny.json``.

    Raises:
        ConfigError: The folder holds something else, or its path is not UTF-8.
        CheckpointError: It cannot be written.
    """
    check_path("folder", folder)
    target = Path(folder)
    if target.exists() and not (target / RECORD_NAME).exists() and any(target.iterdir()):
        raise ConfigError(f"{target} exists and is not a tiny model; choose a new folder")
    model, processor = make_tiny(options, progress)
    with replace_folder(target) as temporary:
        model.save_pretrained(temporary)
        save_processor(processor, temporary)
        digest = folder_hash(temporary)
        record = {"options": options.to_dict(), "sha256": digest, "gem_core": gem_core.__version__}
        (temporary / RECORD_NAME).write_text(json.dumps(record, indent=2) + "\n", encoding="utf-8")
    return digest


def folder_hash(folder: Path) -> str:
    """Return the SHA-256 of the names and contents of the files in a folder, except ``gem_tiny.json``."""
    digest = hashlib.sha256()
    for path in sorted(folder.iterdir()):
        if path.name != RECORD_NAME:
            digest.update(path.name.encode() + b"\0" + path.read_bytes())
    return digest.hexdigest()


def _one_agent(env: Env) -> Env:
    """Return `env` or, if it has several agents, a random one of them; the others also play at random."""
    return OneAgent(env) if isinstance(env, MultiAgentEnv) else env


def _set_random_calls(env: Env, probability: float) -> None:
    """Set the probability of tool calls in random play, in all `Tools` wrappers of an environment."""
    while isinstance(env, Wrapper):
        if isinstance(env, Tools):
            env.random_calls = probability
        env = env.env


# -- parts ------------------------------------------------------------------------------------


class RandomPlayer:
    """A `Policy` that plays random legal actions of one environment."""

    takes_images = True

    def __init__(self, env: Env, tokenizer: Any, end_id: int) -> None:
        self.env = env
        self.tokenizer = tokenizer
        self.end_id = end_id

    async def generate(
        self, prompt_ids: Sequence[int], *, max_tokens: int, request_id: str, images: Sequence[str] = ()
    ) -> Generation:
        ids = self.tokenizer.encode(self.env.sample_random_action(), add_special_tokens=False)
        return Generation([*ids, self.end_id], None, "stop")


def _corpus(envs: Sequence[Env], options: TinyOptions) -> Iterator[str]:
    """Yield the texts of conversations in random legal play: prompts, actions, and replies."""
    bytes_only = _byte_tokenizer()
    for env in envs:
        # Only the texts are used here, so any tokenizer can provide the image placeholders.
        processor = make_processor(_byte_tokenizer()) if env.shows_images else bytes_only
        stream = derive_seed(options.seed, "corpus", sep="/")
        for episode in asyncio.run(random_play(env, processor, stream, episodes=options.corpus_episodes)):
            for turn in episode.turns:
                yield readable_text(turn.observation)
                yield turn.action


async def random_play(
    env: Env,
    processor: Any,
    stream: str,
    *,
    episodes: int = 0,
    tokens: float = 0,
    max_total_tokens: int | None = None,
    rebuild: bool = False,
) -> list[Episode]:
    """Return random legal play on training items and a separate stream of seeds.

    Args:
        env: Environment to play.
        processor: Tokenizer or image processor.
        stream: Seed of the tasks.
        episodes: Minimum number of episodes.
        tokens: Minimum number of tokens of all episodes.
        max_total_tokens: Maximum number of tokens of an episode; None means no limit.
        rebuild: Whether each observation is the whole prompt of its turn.
    """
    context = RebuildContext(processor) if rebuild else AppendContext(processor)
    tokenizer = tokenizer_of(processor)
    player = RandomPlayer(env, tokenizer, tokenizer.eos_token_id)
    random = Random(stream)
    items = env.items("train")
    played: list[Episode] = []
    while len(played) < episodes or tokens > 0:
        seed = random.randrange(TRAIN_SEEDS.start, TRAIN_SEEDS.stop)
        episode = await run_episode(
            env,
            player,
            context,
            seed=seed,
            options=None if items is None else {"index": items[random.randrange(len(items))]},
            limits=EpisodeLimits(max_tokens_per_turn=MAX_RANDOM_TOKENS),
            max_total_tokens=max_total_tokens,
        )
        if not episode.trainable:
            raise ConfigError(f"{episode.env_id} cannot be played at random: {episode.error}")
        played.append(episode)
        tokens -= sum(map(len, episode.rows()))
    return played


def _draw(episodes: Sequence[Episode], tokens: int, random: Random) -> list[Episode]:
    """Return random episodes with a total of `tokens` tokens, but at least one episode."""
    sample = []
    while tokens > 0:
        sample.append(random.choice(episodes))
        tokens -= sum(map(len, sample[-1].rows()))
    return sample


def _byte_tokenizer() -> Any:
    """Return the untrained tokenizer, with one token per byte."""
    return _wrap(Tokenizer(models.BPE(vocab=_alphabet(), merges=[])))


def _alphabet() -> dict[str, int]:
    return {text: id for id, text in enumerate(sorted(pre_tokenizers.ByteLevel.alphabet()))}


def _make_tokenizer(corpus: Iterator[str], vocab_size: int) -> Any:
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = _splitter()
    tokenizer.train_from_iterator(
        corpus,
        trainers.BpeTrainer(
            vocab_size=vocab_size,
            special_tokens=list(SPECIAL_TOKENS),
            initial_alphabet=sorted(pre_tokenizers.ByteLevel.alphabet()),
            show_progress=False,
        ),
    )
    return _wrap(tokenizer)


def _splitter() -> Any:
    return pre_tokenizers.Sequence(
        [
            pre_tokenizers.Split(Regex(_PIECES), "isolated"),
            pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
        ]
    )


def _wrap(tokenizer: Tokenizer) -> Any:
    tokenizer.pre_tokenizer = _splitter()
    tokenizer.decoder = decoders.ByteLevel()
    wrapped = PreTrainedTokenizerFast(
        tokenizer_object=tokenizer,
        eos_token="<|end|>",
        pad_token="<|endoftext|>",
        additional_special_tokens=["<|system|>", "<|user|>", "<|assistant|>"],
        clean_up_tokenization_spaces=False,
        model_input_names=["input_ids", "attention_mask"],  # transformers 4 adds token_type_ids
    )
    wrapped.chat_template = CHAT_TEMPLATE
    return wrapped


def _make_model(processor: Any, options: TinyOptions) -> Any:
    tokenizer = tokenizer_of(processor)
    if is_processor(processor):
        return make_vision_model(tokenizer, options.hidden_size, options.layers, options.max_positions)
    heads = options.hidden_size // 32
    config = LlamaConfig(
        vocab_size=(len(tokenizer) + 63) // 64 * 64,
        hidden_size=options.hidden_size,
        intermediate_size=2 * options.hidden_size,
        num_hidden_layers=options.layers,
        num_attention_heads=heads,
        num_key_value_heads=heads,
        max_position_embeddings=options.max_positions,
        # 1 / sqrt(fan in), because with the usual 0.02, such a narrow model needs three times as many
        # steps before it attends to its context.
        initializer_range=options.hidden_size**-0.5,
        tie_word_embeddings=True,
        head_dim=32,
        bos_token_id=None,
        eos_token_id=tokenizer.eos_token_id,
        pad_token_id=tokenizer.pad_token_id,
    )
    return LlamaForCausalLM(config)


def _warm_start(
    model: Any,
    processor: Any,
    envs: Sequence[Env],
    options: TinyOptions,
    progress: Callable[[int], None] | None,
) -> None:
    """Train next-token prediction on transcripts of random legal play.

    The text of the environment is learned as well as the actions, because a model that can predict the
    replies needs fewer episodes to learn how to react to them.
    """
    if not options.warm_start_steps:
        return
    tokens = min(options.warm_start_tokens, options.warm_start_steps * options.warm_start_batch)
    episodes: list[Episode] = []
    for env in envs:
        play = random_play(
            env,
            processor,
            derive_seed(options.seed, "warm start", sep="/"),
            tokens=tokens / len(envs),
            max_total_tokens=options.max_positions,
            rebuild=options.context == "rebuild",
        )
        episodes += asyncio.run(play)
    image_processor = AppendContext(processor).image_processor
    random = derive_rng(options.seed, "batches", sep="/")
    optimizer = torch.optim.Adam(model.parameters(), lr=options.warm_start_learning_rate, betas=(0.9, 0.99))
    model.train()
    for step in range(options.warm_start_steps):
        if progress is not None:
            progress(step)
        batch = make_batch(_draw(episodes, options.warm_start_batch, random), image_processor=image_processor)
        batch.response_mask = batch.attention_mask.float()
        if image_processor is not None:
            batch.response_mask[batch.token_ids == image_processor.token_id] = 0.0
        batch.response_mask[:, 0] = 0.0
        loss = -score_tokens(model, batch).logprobs.sum() / batch.response_mask.sum()
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
    model.eval()
    logger.info(
        "warm start: %d steps on random legal actions (never an oracle's); loss %.3f per token",
        options.warm_start_steps, loss.item(),
    )  # fmt: skip

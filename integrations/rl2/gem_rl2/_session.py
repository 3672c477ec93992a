"""The shared state of a run's episodes, in the only process that plays them: RL2's rank 0.

`gem_rl2.env`, the file named by ``rollout.env_path``, forwards its calls to the `Session` here. The
environments are kept here as well, because RL2 copies and saves the whole content of a sample.
"""

from __future__ import annotations

import functools
import itertools
import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, ClassVar

from gem_chat import EpisodePlayer
from gem_core.errors import ConfigError, PolicyError
from gem_core.rollout import Episode, Policy, episode_metrics
from gem_core.rollout._sources import SourceLedger, split_by_source
from gem_rl2._options import read_options
from gem_rl2._play import Play
from gem_rl2._router import RouterPolicy, fill
from gem_rl2._rows import task_of
from gem_rl2._texts import TextPlay, read_response
from gem_rl2._upstream import SPLITS, Upstream

EPISODE = "gem_episode"
"""Key of an episode's number: in ``extra_info`` (rl-square 0.0.2), or in the metrics of a sample."""

UNLIMITED = 2**31


class Session:
    """Plays episodes for RL2, and keeps finished ones until RL2 reports its rollout.

    Args:
        config: RL2's whole config.
        upstream: The installed RL2.

    Attributes:
        paused: Whether RL2 has paused its engines. SGLang then holds back new requests, and RL2 waits for the
            samples (newer tree, partial rollouts).
        played: Training episodes of the last rollout.

    Raises:
        UnsupportedTemplate: The chat template is not supported; the message says why.
    """

    _current: ClassVar[Session | None] = None

    @classmethod
    def start(cls, config: Any, upstream: Upstream) -> Session:
        """Create the session of this process."""
        cls._current = cls(config, upstream)
        return cls._current

    @classmethod
    def current(cls) -> Session:
        """Return the session of this process.

        Raises:
            ConfigError: `start` was not called, so this process was not started by the launcher of gem_rl2.
        """
        if cls._current is None:
            raise ConfigError(
                "rollout.env_path needs the launcher of gem_rl2: start RL2 with python -m gem_rl2.train"
            )
        return cls._current

    def __init__(self, config: Any, upstream: Upstream) -> None:
        from transformers import AutoTokenizer

        self._config, self._upstream = config, upstream
        model, options = config.rollout.server_args.model_path, read_options(config)
        self._tokenizer = AutoTokenizer.from_pretrained(model, trust_remote_code=True)
        # `report` writes the traces, when it knows the step and the split.
        self._player = EpisodePlayer(replace(options, traces=None), self._tokenizer)
        self._traces = options.trace_writers(self._tokenizer)
        if upstream.is_index:
            for split in SPLITS:
                known = upstream.sampling_params(config, split).get("stop_token_ids") or ()
                option = f"+{upstream.sampling_section(split)}.stop_token_ids"
                self._player.require_engine_stops(known, f"add {option}=[{self._player.extra_stop_id}]")
        self._plays: dict[int, tuple[Any, Play]] = {}  # by id() of the sample, which is kept alive here
        self._texts: dict[int, TextPlay] = {}
        self._numbers = itertools.count()
        self._finished: dict[int, Episode] = {}
        self.paused = False
        self.played: list[Episode] = []
        self._ledger = SourceLedger()

    # -- the newer tree: ``generate`` --------------------------------------------------------------

    async def generate(self, config: Any, tokenizer: Any, router_url: str, sample: Any) -> None:
        """Play the episode of an RL2 `Sample`, or continue it after a pause.

        Args:
            config: RL2's section ``rollout.train`` or ``rollout.test``.
            tokenizer: Ignored; it is the tokenizer of the model, which the session has.
            router_url: URL of the router to sample from.
            sample: Receives the rows and RL2's metrics; its status is ABORTED if the engines were paused.
        """
        status = type(sample).Status
        if sample.status == status.DONE:  # the rest of its group was paused
            return
        if id(sample) not in self._plays:
            self._plays[id(sample)] = (sample, self._start(config, router_url, sample))
        sample.status = status.RUNNING
        play = self._plays.pop(id(sample))
        episode = await play[1].resume()
        if episode is None:
            self._plays[id(sample)] = play
            sample.status = status.ABORTED
            return
        fill(sample, episode, self._tokenizer)
        # RL2 may keep a finished sample for its next rollout. The number lets `report` find its episode.
        sample.metrics[EPISODE].append(self._keep(episode))

    def _start(self, config: Any, router_url: str, sample: Any) -> Play:
        from omegaconf import OmegaConf

        play = Play()
        params: Any = OmegaConf.to_container(config.sampling_params)
        policy = RouterPolicy(
            router_url,
            params | self._player.engine_options(params),
            is_paused=lambda: self.paused,
            resumed=play.wait if config.get("partial_rollout") else None,
        )
        limits = [n for n in (self._player.options.max_tokens_per_turn, params.get("max_new_tokens")) if n]
        self._begin(
            play,
            sample.sample.get("extra_info"),
            policy,
            max_tokens_per_turn=min(limits, default=UNLIMITED),
            max_total_tokens=self._max_row_length,
        )
        return play

    @functools.cached_property
    def _max_row_length(self) -> int | None:
        """Number of tokens above which RL2 fails on a row, or SGLang on a prompt."""
        from transformers import AutoConfig

        actor, server = self._config.actor, self._config.rollout.server_args
        sizes = actor.get("tf_config") or actor  # Megatron uses other names
        names = ("context_parallel_size", "tensor_model_parallel_size", "cp_size", "tp_size")
        row, prompt = actor.max_length_per_device, server.get("context_length")
        if not prompt:
            model = AutoConfig.from_pretrained(server.model_path, trust_remote_code=True).get_text_config()
            prompt = getattr(model, "max_position_embeddings", None)
        limits = [] if row is None else [row * math.prod(sizes.get(name, 1) for name in names)]
        return min([*limits, prompt - 1] if prompt else limits, default=None)

    # -- rl-square 0.0.2: ``reset`` and ``step`` -----------------------------------------------------

    async def reset(self, extra_info: Mapping[str, Any]) -> tuple[str, dict[str, Any]]:
        """Start an episode; return its first prompt, and ``extra_info`` with its number."""
        number, play = next(self._numbers), TextPlay(self._player.context, self._tokenizer)
        self._begin(
            play,
            extra_info,
            play,
            context=play.context,
            max_turns=self._player.options.max_turns or self._config.rollout.max_turns,
            max_tokens_per_turn=UNLIMITED,
            on_turn=play.on_turn,
        )
        failed = await play.resume()
        self._texts[number] = play
        # RL2 samples once even if the environment failed here; `step` then ends the episode.
        text = play.text if failed is None else self._player.context.first_text("(no environment)")
        return text, {**extra_info, EPISODE: number}

    async def step(self, state_text: str, action_text: str, extra_info: Mapping[str, Any]) -> dict[str, Any]:
        """Pass the text of a response to an episode.

        Returns:
            RL2's dict. The reward and the score are NaN once the environment has failed.

        Raises:
            ConfigError: The row of the dataset has a prompt, so RL2 did not call `reset`.
            PolicyError: The response has no tokens.
        """
        if EPISODE not in extra_info:
            raise ConfigError(
                "RL2 did not reset the environment, because a row of the dataset has its own prompt; "
                "generate the data with `gem-core export --to rl2`"
            )
        if not action_text:
            raise PolicyError(
                "SGLang returned a response without a token, which rl-square 0.0.2 cannot train on; is a "
                "prompt longer than its context_length?"
            )
        play = self._texts.pop(extra_info[EPISODE])
        episode = await play.resume(read_response(action_text, self._tokenizer, self._stop_texts))
        next_state = play.text
        if episode is not None:
            self._keep(episode)
            next_state = state_text + action_text
        else:
            self._texts[extra_info[EPISODE]] = play
            if self._player.context.mode == "append":
                next_state = state_text + action_text + next_state
        failed = episode is not None and not episode.trainable
        reward = math.nan if failed else play.rewards[-1] if play.rewards else 0.0
        return {
            "next_state": next_state,
            "reward": reward,
            "score": reward,
            "done": episode is not None,
            "extra_info": dict(extra_info),
        }

    @functools.cached_property
    def _stop_texts(self) -> list[str]:
        """Texts at which SGLang stops in either split: stop tokens and stop strings."""
        texts: list[str] = []
        ids = {*self._player.stop_ids}
        for split in SPLITS:
            params = self._upstream.sampling_params(self._config, split)
            stop = params.get("stop") or []
            texts += [stop] if isinstance(stop, str) else stop
            ids |= {*(params.get("stop_token_ids") or ())}
        texts += [str(self._tokenizer.decode([token_id])) for token_id in ids]
        return [text for text in texts if text]  # a token outside the vocabulary has none

    # -- both ----------------------------------------------------------------------------------------

    def _begin(self, play: Play, extra_info: Any, policy: Policy, **options: Any) -> None:
        task = task_of(extra_info)
        metadata = {"index": task["index"], **({"token_ids": "of texts"} if self._upstream.is_index else {})}
        # `report` replaces the split.
        play.start(self._player.play(task, policy, split="train", metadata=metadata, **options))

    def _keep(self, episode: Episode) -> int:
        number = next(self._numbers)
        self._finished[number] = episode
        return number

    def report(self, split: str, step: int, numbers: Sequence[int] | None = None) -> dict[str, float]:
        """Write the traces of finished episodes and return their metrics.

        Args:
            split: "train" or "eval".
            step: Training step.
            numbers: Numbers of the episodes. None means all that finished since the last call.

        Raises:
            EnvError: A training step lost all episodes of an environment; see `SourceLedger`.
        """
        finished = list(self._finished) if numbers is None else numbers
        episodes = [self._finished.pop(number) for number in finished]
        if split == "train":
            self.played = episodes
        for episode in episodes:
            episode.metadata |= {"step": step, "split": split}
            if split in self._traces:
                self._traces[split].write(episode)
        metrics = episode_metrics(episodes)
        if split == "train":
            metrics |= self._ledger.close_step(f"step {step}", *split_by_source(episodes))
        return metrics

"""What the episodes of a run share, in the one process that plays them: RL2's rank 0.

`gem_rl2.env`, the file that ``rollout.env_path`` names, forwards its calls to the `Session` here. The
environments live here as well: RL2 copies and saves what it knows of a sample.
"""

from __future__ import annotations

import itertools
import logging
import math
from collections.abc import Mapping, Sequence
from typing import Any

from gem_core.errors import ConfigError, PolicyError
from gem_core.rollout import EnvPool, Episode, engine_stop_ids, episode_metrics, extra_stop_id
from gem_rl2.options import GemOptions, sampling_params
from gem_rl2.play import Play
from gem_rl2.router import RouterPolicy, fill
from gem_rl2.rows import task_of
from gem_rl2.texts import TextPlay, read_response
from gem_rl2.upstream import Upstream

logger = logging.getLogger(__name__)

EPISODE = "gem_episode"
"""Key of an episode's number: in ``extra_info`` (rl-square 0.0.2), or in the metrics of a sample."""

UNLIMITED = 2**31


class Session:
    """Plays episodes for RL2, and keeps those that ended until RL2 reports its rollout.

    Args:
        config: RL2's whole config.
        upstream: The RL2 that runs.

    Raises:
        UnsupportedTemplate: The chat template cannot be used; says why.
    """

    def __init__(self, config: Any, upstream: Upstream) -> None:
        from transformers import AutoTokenizer

        self._config = config
        self._upstream = upstream
        self._options = GemOptions.from_config(config)
        self._tokenizer = AutoTokenizer.from_pretrained(
            config.rollout.server_args.model_path, trust_remote_code=True
        )
        self._context = self._options.make_context(self._tokenizer, self._options.template_kwargs)
        self._envs = EnvPool(self._options.wrappers)
        self._traces = self._options.trace_writers(self._tokenizer)
        known = engine_stop_ids(self._tokenizer)
        self._extra_stop_id = extra_stop_id(self._context, self._tokenizer)
        self._stop_texts = [self._tokenizer.decode([token_id]) for token_id in known]
        if upstream.is_index and self._extra_stop_id is not None:
            for train in (True, False):
                _expect_stop(sampling_params(config, upstream, train=train), self._extra_stop_id, train)
            self._stop_texts.append(self._tokenizer.decode([self._extra_stop_id]))
        self._plays: dict[int, tuple[Any, Play]] = {}  # with what must stay alive for its id() to be one
        self._texts: dict[int, TextPlay] = {}
        self._numbers = itertools.count()
        self._finished: dict[int, Episode] = {}
        self.paused = False
        """Whether RL2 has its engines paused: SGLang then keeps new requests waiting, and RL2 waits for
        the samples (newer tree, partial rollouts)."""
        self.played: list[Episode] = []
        """The training episodes of the last rollout."""

    # -- the newer tree: ``generate`` --------------------------------------------------------------

    async def generate(self, config: Any, router_url: str, sample: Any) -> None:
        """Play the episode of an RL2 `Sample`, or go on with it after a pause.

        Args:
            config: RL2's section ``rollout.train`` or ``rollout.test``.
            router_url: Where to sample.
            sample: Gets the rows and RL2's metrics; its status is ABORTED when the engines were paused.
        """
        status = type(sample).Status
        if sample.status == status.DONE:  # the rest of its group was paused
            return
        if id(sample) not in self._plays:
            self._plays[id(sample)] = (sample, self._begin(config, router_url, sample))
        sample.status = status.RUNNING
        episode = await self._plays[id(sample)][1].go_on()
        if episode is None:
            sample.status = status.ABORTED
            return
        del self._plays[id(sample)]
        fill(sample, episode, self._tokenizer)
        # RL2 may keep a finished sample for its next rollout. Its metrics come with the right one.
        sample.metrics[EPISODE].append(self._keep(episode))

    def _begin(self, config: Any, router_url: str, sample: Any) -> Play:
        from omegaconf import OmegaConf

        play = Play()
        params: Any = OmegaConf.to_container(config.sampling_params)
        policy = RouterPolicy(
            router_url,
            params,
            self._extra_stop_id,
            is_paused=lambda: self.paused,
            resumed=play.wait if config.get("partial_rollout") else None,
        )
        limits = [
            limit for limit in (self._options.max_tokens_per_turn, params.get("max_new_tokens")) if limit
        ]
        task = task_of(sample.sample.get("extra_info"))
        play.start(
            self._envs.play(
                task,
                policy,
                self._context,
                self._options.limits(max_tokens_per_turn=min(limits, default=UNLIMITED)),
                max_total_tokens=self._longest_row(),
                metadata={"index": task["index"]},
            )
        )
        return play

    def _longest_row(self) -> int | None:
        """RL2 fails on a longer row, SGLang on a longer prompt."""
        actor = self._config.actor
        longest = actor.max_length_per_device
        limits = [] if longest is None else [longest * actor.get("cp_size", 1) * actor.get("tp_size", 1)]
        context_length = self._config.rollout.server_args.get("context_length")
        return min([*limits, context_length - 1] if context_length else limits, default=None)

    # -- rl-square 0.0.2: ``reset`` and ``step`` -----------------------------------------------------

    async def reset(self, extra_info: Mapping[str, Any]) -> tuple[str, dict[str, Any]]:
        """Begin an episode: its first prompt, and ``extra_info`` with its number."""
        number, play = next(self._numbers), TextPlay(self._context)
        task = task_of(extra_info)
        max_turns = self._options.max_turns or self._config.rollout.max_turns
        play.start(
            self._envs.play(
                task,
                play,
                play.context,
                self._options.limits(max_tokens_per_turn=UNLIMITED, max_turns=max_turns),
                metadata={"index": task["index"], "token_ids": "of texts"},
                on_turn=play.on_turn,
            )
        )
        self._texts[number] = play
        failed = await play.go_on()
        # RL2 samples once whatever happened here; `step` then ends the episode.
        text = play.context.text if failed is None else self._context.first_text("(no environment)")
        return text, {**extra_info, EPISODE: number}

    async def step(self, state_text: str, action_text: str, extra_info: Mapping[str, Any]) -> dict[str, Any]:
        """Tell an episode the text of a response.

        Returns:
            What RL2 wants; reward and score of a trajectory whose environment failed end in NaN.

        Raises:
            ConfigError: The row of the data set had a prompt, so there was no reset.
            PolicyError: The response has no token.
        """
        if EPISODE not in extra_info:
            raise ConfigError(
                "RL2 did not reset the environment: a row of the data set has a prompt of its own; make the "
                "data with `gem-core export --to rl2`"
            )
        if not action_text:
            raise PolicyError(
                "SGLang returned a response without a token, which rl-square 0.0.2 cannot train on; is a "
                "prompt longer than its context_length?"
            )
        play = self._texts[extra_info[EPISODE]]
        episode = await play.go_on(read_response(action_text, self._tokenizer, self._ends()))
        reward = play.rewards[-1] if play.rewards else 0.0
        grown = self._context.mode == "append"
        next_state = state_text + action_text + play.context.text if grown else play.context.text
        if episode is not None:
            del self._texts[extra_info[EPISODE]]
            self._keep(episode)
            next_state = state_text + action_text
        failed = episode is not None and not episode.trainable
        return {
            "next_state": next_state,
            "reward": math.nan if failed else reward,
            "score": math.nan if failed else reward,
            "done": episode is not None,
            "extra_info": dict(extra_info),
        }

    def _ends(self) -> list[str]:
        """Texts at which SGLang stops by itself or was told to."""
        stop = sampling_params(self._config, self._upstream, train=True).get("stop") or []
        return [*self._stop_texts, *([stop] if isinstance(stop, str) else stop)]

    # -- both ----------------------------------------------------------------------------------------

    def _keep(self, episode: Episode) -> int:
        number = next(self._numbers)
        self._finished[number] = episode
        return number

    def report(self, split: str, step: int, numbers: Sequence[int] | None = None) -> dict[str, float]:
        """Write the traces of episodes that ended, and give their metrics.

        Args:
            split: "train" or "eval".
            step: Of the training.
            numbers: Of the episodes; None for all that ended since the last call.
        """
        if numbers is None:
            numbers = list(self._finished)
        episodes = [self._finished.pop(number) for number in numbers]
        if split == "train":
            self.played = episodes
        for episode in episodes:
            episode.metadata |= {"step": step, "split": split}
            if split in self._traces:
                self._traces[split].write(episode)
        return episode_metrics(episodes)


def _expect_stop(params: Any, end: int, train: bool) -> None:
    if end not in (params.get("stop_token_ids") or ()):
        where = f"rollout.{'train' if train else 'test'}_sampling_params.stop_token_ids"
        raise ConfigError(
            f"the chat template ends a turn with token {end}, at which SGLang would not stop by itself; "
            f"add +{where}=[{end}]"
        )


_current: Session | None = None


def use(session: Session) -> None:
    """Make this the session of the process."""
    global _current
    _current = session


def current() -> Session:
    """The session of the process; `gem_rl2.activate` makes it."""
    assert _current is not None
    return _current

"""Grade recorded answers again, without a model: `rescore`.

    result = rescore("runs/mini", "runs/mini-rescored")
    result.differences, result.unscored

The recorded actions are replayed in the environments of this version, with the same seeds, items, wrappers,
and limits. The model answered the recorded observations, so an episode is scored only if the replay shows the
same observations up to the last answer. Any other episode counts as an error that names the first difference.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Any

import gem_core
from gem_chat import MessagesContext
from gem_chat._concurrency import play_tasks
from gem_core._tasks import evaluation_tasks
from gem_core.errors import ConfigError
from gem_core.rollout import ChatReply, ContextFull, EnvPool, Episode, EpisodeLimits, TraceWriter, Turn
from gem_core.rollout._messages import Message
from gem_core.tasks import EnvChoice, TaskRow
from gem_lab._run_folders import claimed
from gem_lab.eval import _folder as folders
from gem_lab.eval._config import file_hashes
from gem_lab.eval._run import EvalReporter
from gem_lab.eval._summary import summarize_envs
from gem_lab.eval._token_texts import read_token_texts
from gem_lab.eval._trust import check_trusted


@dataclass(frozen=True)
class Rescoring:
    """Result of `rescore`.

    Attributes:
        folder: Folder with the new scores, which `read_run` reads like the folder of an evaluation.
        summary: Content of its ``summary.json``.
        scored: Number of episodes with a new score.
        differences: Episodes whose return or success changed, as dictionaries with the keys ``env``,
            ``task``, ``sample``, ``return``, and ``success``; the last two hold the old and the new value.
        unscored: Episodes that cannot be scored, as dictionaries with the keys ``env``, ``task``, ``sample``,
            and ``reason``.
    """

    folder: Path
    summary: dict[str, Any]
    scored: int
    differences: list[dict[str, Any]]
    unscored: list[dict[str, Any]]


def rescore(
    run: str | Path,
    out: str | Path,
    reporter: EvalReporter | None = None,
    *,
    concurrency: int = 8,
    trust_run: bool = False,
) -> Rescoring:
    """Replay the answers of an evaluation, and write a run folder with the new scores.

    Args:
        run: Folder of an evaluation, which may be unfinished and is not changed.
        out: New folder.
        reporter: Observer that is notified of the progress; None for no observer.
        concurrency: Maximum number of environments at the same time.
        trust_run: Whether environments from files, and wrappers and arguments that start programs or connect
            to servers, may come from the recorded configuration.

    Raises:
        ConfigError: `run` holds no evaluation or no episode, needs `trust_run`, or `out` holds a run already
            or is a link.
        TraceError: The episodes of `run` are damaged.
        UnknownEnv: An environment no longer exists.
    """
    run, out = Path(run), Path(out)
    config = folders.read_config(run)
    if out.is_symlink():
        raise ConfigError(f"{out} is a link; choose another folder with --out")
    if not trust_run:
        check_trusted(config)
    recorded = folders.finished(run)
    if not recorded:
        raise ConfigError(f"{run} holds no episodes to score; finish the run, or name another folder")
    if any((out / name).exists() for name in (folders.CONFIG, folders.EPISODES)):
        raise ConfigError(f"{out} holds a run already; choose another folder with --out")
    sources = list(map(EnvChoice.parse, config["env"]))
    tasks = {
        source.label: {row["index"]: row for row in evaluation_tasks([source], config["episodes"])}
        for source in sources
    }
    names = {field.name for field in fields(EpisodeLimits)}
    limits = EpisodeLimits(**{name: value for name, value in config.items() if name in names})
    texts = read_token_texts(run / folders.EPISODES)
    episodes: dict[folders.Key, Episode] = {}
    pool = EnvPool(config.get("wrappers", ""))
    context = MessagesContext(native_tools=bool(config.get("native_tools")))

    reporter = reporter or EvalReporter()

    async def replay(index: int, key: folders.Key) -> None:
        episodes[key] = await _replay(pool, context, recorded[key], tasks[key[0]].get(key[1]), limits)
        reporter.episode(key[0], episodes[key])

    totals = Counter(label for label, _, _ in recorded)
    with claimed(out, "evaluation"):
        try:
            reporter.start(totals, dict.fromkeys(totals, 0))
            asyncio.run(play_tasks(list(recorded), replay, at_once=concurrency))
        finally:
            reporter.close()
            pool.close()
        episodes = {key: episodes[key] for key in recorded}  # not in the order in which they ended
        origin: dict[str, Any] = {"gem_core": gem_core.__version__, "rescored_from": str(run.resolve())}
        if files := file_hashes(sources):
            origin["files"] = files
        folders.write_config(out, {**config, **origin})
        decode = (lambda ids: texts.get(ids[0], "")) if texts else None
        with TraceWriter(out / folders.EPISODES, decode=decode) as traces:
            for episode in episodes.values():
                traces.write(episode)
        summary = _summary(config, episodes)
        folders.write_summary(out, summary)
    return Rescoring(
        out,
        summary,
        sum(episode.error is None for episode in episodes.values()),
        [
            _difference(key, recorded[key], episodes[key])
            for key in recorded
            if _differs(recorded[key], episodes[key])
        ],
        [
            {**_named(key), "reason": episodes[key].error}
            for key in recorded
            if episodes[key].error is not None
        ],
    )


class _Recorded:
    """Policy that gives the recorded answers of an episode, in order."""

    def __init__(self, turns: list[Turn]) -> None:
        self._left = iter(turns)

    async def reply(
        self, messages: list[Message], *, max_tokens: int, request_id: str, **offered: Any
    ) -> ChatReply:
        turn = next(self._left, None)
        if turn is None:
            raise ContextFull("the recording ends here")
        return ChatReply(turn.action, turn.finish_reason)


async def _replay(
    pool: EnvPool, context: MessagesContext, recorded: Episode, task: TaskRow | None, limits: EpisodeLimits
) -> Episode:
    """Return the recorded episode with the rewards and infos of a replay, or with an error."""
    if recorded.error is not None:
        return recorded
    if task is None or (task["seed"], task.get("item")) != (recorded.seed, recorded.metadata.get("item")):
        return _unscored(recorded, "the task has changed since the recording")
    replayed = await pool.play(task, _Recorded(recorded.turns), context, limits, log_errors=False)
    if replayed.error is not None and recorded.turns:
        return _unscored(recorded, f"the environment failed: {replayed.error}")
    for number, (then, now) in enumerate(zip(recorded.turns, replayed.turns, strict=False), 1):
        if then.observation != now.observation:
            return _unscored(recorded, f"the observation before answer {number} has changed")
    if len(replayed.turns) < len(recorded.turns):
        return _unscored(
            recorded, f"the episode now ends after answer {len(replayed.turns)} of {len(recorded.turns)}"
        )
    # Only an episode that the environment did not end, such as one that ran out of tokens, may stay open.
    is_open = replayed.stop_reason == "token_budget"
    if is_open and recorded.stop_reason not in ("token_budget", "empty_response"):
        return _unscored(recorded, "the episode no longer ends with the last answer")
    turns = [
        replace(then, reward=now.reward, info=_info(then, now), advantage=None)
        for then, now in zip(recorded.turns, replayed.turns, strict=True)
    ]
    ended = recorded if is_open else replayed
    return replace(
        recorded,
        turns=turns,
        terminated=ended.terminated,
        truncated=ended.truncated,
        stop_reason=ended.stop_reason,
        metadata={**recorded.metadata, "rescored": True},
    )


def _info(then: Turn, now: Turn) -> dict[str, Any]:
    """Return the new info with the recorded reply, which came from the model and not from the environment."""
    info = {key: value for key, value in now.info.items() if key != "reply"}
    return {**info, "reply": then.info["reply"]} if "reply" in then.info else info


def _unscored(recorded: Episode, reason: str) -> Episode:
    return replace(recorded, error=f"not scored: {reason}", trainable=False)


def _differs(old: Episode, new: Episode) -> bool:
    return new.error is None and (old.total_reward, old.success) != (new.total_reward, new.success)


def _difference(key: folders.Key, old: Episode, new: Episode) -> dict[str, Any]:
    return {
        **_named(key),
        "return": [old.total_reward, new.total_reward],
        "success": [old.success, new.success],
    }


def _named(key: folders.Key) -> dict[str, Any]:
    return dict(zip(("env", "task", "sample"), key, strict=True))


def _summary(config: Mapping[str, Any], episodes: Mapping[folders.Key, Episode]) -> dict[str, Any]:
    by_env: dict[str, list[Episode]] = {EnvChoice.parse(text).label: [] for text in config["env"]}
    for (label, _, _), episode in episodes.items():
        by_env[label].append(episode)
    summary = summarize_envs({label: group for label, group in by_env.items() if group})
    for results in (*summary["envs"].values(), summary["overall"]):
        results["cost"] = None  # no model was called
    return {"model": config["model"], **summary}

"""What a run would do with its rows: checked before anything starts, and described in a plan."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from gem_chat._vision import processor_problem
from gem_core._core import Split
from gem_core.errors import ConfigError
from gem_core.tasks import EnvChoice, TaskRow
from gem_core.trainers import Plan
from gem_core.trainers._plan import SourceRows, count_rows, describe_budget
from gem_core.trainers._tasks import check_tasks
from gem_openrlhf._dataset import NO_LABEL_KEY, NO_LABELS, plays_rows, split_words, spread, tasks_beside
from gem_openrlhf._files import blend, check_defines, check_knows_tasks, on_hub, read_rows, unread_files
from gem_openrlhf._labels import names_task, own_source, task_of
from gem_openrlhf._options import GAE_OF_BOTH, GemOptions, estimator_names

OUR_AGENT = "--train.agent_func_path $(gem-core path openrlhf-agent)"
OURS, THEIRS = "gem-core's agent", "OpenRLHF's single-turn agent"


class _Row(NamedTuple):
    """A row of the data, with its place for messages; `task` is None for one of the user's own rows.

    `labeled`: whether the row has a label.
    """

    place: str
    source: str
    task: TaskRow | None
    labeled: bool = True


def preview(args: Any, options: GemOptions) -> Plan:
    """Check the rows of a run, and return its plan.

    Every environment of the data is built once. Only the rollout workers check files that are not local.

    Args:
        args: OpenRLHF's flags.
        options: Options of GEM.

    Raises:
        GemError: Nothing plays or rewards a row, a row lacks a column, an environment cannot be built, or a
            training row selects an evaluation item. The message names the file and the line.
    """
    agent = args.train.agent_func_path
    if agent and not (agent.endswith(".py") and Path(agent).is_file()):
        raise ConfigError(f"--train.agent_func_path {agent}: expected a .py file; gem-core's is {OUR_AGENT}")
    if agent:
        check_defines("--train.agent_func_path", agent, "AgentExecutor")
    if (first := str(args.reward.remote_url or "").split(",")[0]).endswith(".py"):
        check_defines("--reward.remote_url", first, "reward_func")
    model = args.actor.model_name_or_path or ""
    if model.startswith(("/", "./", "../")) and not Path(model).exists():
        raise ConfigError(f"--actor.model_name_or_path {model}: there is no such folder")
    sources = _sources("train", args.data.prompt_dataset, args, options)
    sources += _sources("eval", args.eval.dataset, args, options)
    players = {source.player for source in sources}
    if args.algo.advantage.estimator == "gae" and {OURS, THEIRS} <= players:
        raise ConfigError(GAE_OF_BOTH)
    return Plan(
        sources, _estimator(args, options), [*_budget(args, options, players)], [*_notes(args, sources)]
    )


def _sources(split: Split, text: str | None, args: Any, options: GemOptions) -> list[SourceRows]:
    """Check the rows of one list of data, and count them by source."""
    files, envs = split_words(text)
    unread = unread_files(files)
    probs = args.data.prompt_probs if split == "train" else None
    if probs is not None and probs.count(",") + 1 != len(files):
        raise ConfigError(
            f"--data.prompt_probs {probs}: expected one number for each file, {len(files)} in all; an "
            "environment has its weight after ="
        )
    limit = args.data.max_samples
    rows = found = [row for file in files if file not in unread for row in _rows(file, split, args)]
    if files and not unread:
        _check_labels(found, args)
        read = blend(files, probs, split, args)  # the files may not fit together
        if probs is not None or len(read) < len(found):
            rows = [_row("", row, args) for row in read]
    tasks = tasks_beside(envs, split, len(rows) if files else None, args.train.seed) if envs else []
    env_rows = [_Row("", EnvChoice.of(task).label, task) for task in tasks]
    for row in env_rows[:1]:
        check_knows_tasks(args.train.agent_func_path, row.source)
    check_tasks(
        ((row.place, row.task) for row in [*found, *env_rows] if row.task is not None),
        options.wrappers,
        no_images=lambda: images_unsupported(args),
        for_training=split == "train",
    )
    used = spread(rows, env_rows)[:limit]
    kept = {row.source for row in used}
    sources = dict.fromkeys(row.source for row in [*found, *env_rows])
    if lost := " and ".join(source for source in sources if source not in kept):
        raise ConfigError(
            f"--data.max_samples {limit} leaves no row of {lost}: OpenRLHF uses the first {limit} rows of "
            "all files together; raise it, or put the rows of one file between those of the other"
        )
    result = count_rows((split, row.source, *_player(row, args)) for row in used)
    if unread:  # their number of rows determines the number of tasks
        result = [row._replace(rows=None) if row.source in {e.label for e in envs} else row for row in result]
    return result + [SourceRows(split, file, *_player(None, args), None) for file in unread]


def _player(row: _Row | None, args: Any) -> tuple[str, str]:
    """Return what plays and what rewards a row; None for a row that only the run reads."""
    agent, reward = args.train.agent_func_path, args.reward.remote_url
    if agent and not plays_rows(agent):
        return agent, agent
    if agent and row is None:
        return f"{OURS}, or {THEIRS} if the label names no task", reward or "the environment"
    if agent and row is not None and row.task is not None:
        return OURS, "the environment"
    return THEIRS, str(reward or args.reward.model_name_or_path)


def _rows(file: str, split: Split, args: Any) -> list[_Row]:
    """Return the checked rows of a local file.

    Raises:
        ConfigError: A row is not usable, or there is none.
    """
    rows = [_row(place, row, args) for place, row in read_rows(file, split, args)]
    if not rows:
        raise ConfigError(f"{file} has no rows")
    return rows


def _row(place: str, row: Any, args: Any) -> _Row:
    """Check one row of a file.

    Raises:
        ConfigError: As in `preview`.
    """
    key, agent = args.data.label_key, args.train.agent_func_path
    if isinstance(row, Mapping) and row.get(args.data.input_key, "") is None:
        raise ConfigError(f"{place}: no prompt in the column {args.data.input_key!r}")
    if not isinstance(row, Mapping) or args.data.input_key not in row:
        found = ", ".join(row) if isinstance(row, Mapping) else type(row).__name__
        raise ConfigError(
            f"{place}: no column {args.data.input_key!r}, only {found}; set --data.input_key to the column "
            "of the prompts"
        )
    columns = [name for name, value in row.items() if isinstance(value, str) and names_task(value)]
    if columns and not agent:
        raise ConfigError(f"{place}: nothing plays this task; add {OUR_AGENT} --data.label_key {columns[0]}")
    if columns and key not in columns:
        raise ConfigError(
            f"{place}: the task is in the column {columns[0]!r}, but --data.label_key is {key!r}; set it to "
            f"{columns[0]!r}, or name the environment itself in --data.prompt_dataset instead of this file"
        )
    if columns:
        check_knows_tasks(agent, place)
        try:
            task = task_of(row[key])
        except ConfigError as error:
            raise ConfigError(f"{place}: {error}") from None
        return _Row(place, EnvChoice.of(task).label, task)
    if not agent and not (args.reward.remote_url or args.reward.model_name_or_path):
        raise ConfigError(f"{place}: nothing rewards this row; add --reward.remote_url or an agent")
    if plays_rows(agent):
        if key is None:
            raise ConfigError(NO_LABEL_KEY)
        if row.get(key) is None and not args.reward.remote_url:
            raise _no_label(place, key)
        if not args.reward.remote_url:
            raise ConfigError(
                f"{place}: the label {row[key]!r:.80} names no task, and nothing else rewards the row; set "
                "--reward.remote_url to your reward function or server (for a reward model, the URL of "
                "openrlhf.cli.serve_rm)"
            )
    if not agent or plays_rows(agent):
        _check_prompt(place, row[args.data.input_key], args.data)
    return _Row(place, own_source(row), None, key == NO_LABELS or key in row)


def _no_label(place: str, key: str) -> ConfigError:
    return ConfigError(f"{place}: no label in the column {key!r}; set --data.label_key to another one")


def _check_labels(rows: Sequence[_Row], args: Any) -> None:
    """Check that some file has the column of the labels; where others lack it, OpenRLHF reads None."""
    own = [row for row in rows if row.task is None]
    if own and plays_rows(args.train.agent_func_path) and not any(row.labeled for row in rows):
        raise _no_label(own[0].place, args.data.label_key)


def _check_prompt(place: str, prompt: Any, data: Any) -> None:
    """Check that OpenRLHF's single-turn agent can read a prompt.

    Raises:
        ConfigError: It cannot.
    """
    listed = isinstance(prompt, list) and all(isinstance(each, Mapping) and "role" in each for each in prompt)
    chat = data.apply_chat_template
    if not (isinstance(prompt, str) or (listed and prompt if chat else data.input_template)):
        wanted = "a text or a list of messages" if chat else "a text"
        hint = "; for a list of messages, add --data.apply_chat_template" if listed and not chat else ""
        raise ConfigError(
            f"{place}: nothing plays the prompt {prompt!r:.60} in the column {data.input_key!r}: expected "
            f"{wanted}{hint}"
        )


def _estimator(args: Any, options: GemOptions) -> str:
    name = options.estimator or args.algo.advantage.estimator
    if name not in estimator_names():
        return f"{name}, OpenRLHF's own"
    return options.estimator_choice(name, args.algo.advantage.gamma).summary


def _budget(args: Any, options: GemOptions, players: set[str]) -> Iterator[str]:
    limit, per_response = args.data.max_len, args.rollout.max_new_tokens
    if any(player.startswith(OURS) for player in players):
        per_turn = options.max_tokens_per_turn or per_response
        text = describe_budget(
            options.max_turns, min(per_turn, limit) if per_turn else None, limit, "--data.max_len"
        )
        yield f"{text}; the first prompt counts, too"
    if any(player.endswith(THEIRS) for player in players):
        most = f"one response of at most {per_response:,} tokens" if per_response else "one response"
        yield f"{THEIRS} has {most}; it has at most --data.max_len={limit:,} tokens with its prompt"


def _notes(args: Any, sources: Sequence[SourceRows]) -> Iterator[str]:
    agent, reward, advantage = args.train.agent_func_path, args.reward, args.algo.advantage
    players = {source.player for source in sources}
    files = [file for text in (args.data.prompt_dataset, args.eval.dataset) for file in split_words(text)[0]]
    for file in dict.fromkeys(filter(on_hub, files)):
        yield f"{file} is not a local file, so OpenRLHF loads it from the Hub; only the run reads it"
    if args.eval.dataset and args.eval.steps == -1:
        yield "--eval.steps=-1: no evaluation takes place"
    if agent and reward.model_name_or_path:
        yield "--reward.model_name_or_path has no effect: with an agent, OpenRLHF loads no reward model"
    if agent and reward.remote_url and players <= {OURS, agent}:
        yield f"--reward.remote_url={reward.remote_url} rewards no row: {agent} rewards all of them"
    if args.algo.dynamic_filtering_enable:
        low, high = args.algo.dynamic_filtering_range
        yield (
            f"dynamic filtering keeps the tasks whose episodes have a mean return between {low:g} and "
            f"{high:g}, both excluded (--algo.dynamic_filtering_range)"
        )
    corrects = getattr(advantage, "is_correction_level", "off") != "off" or getattr(
        advantage, "is_correction_enable", False
    )
    if args.rollout.top_p < 1 and corrects:
        yield (
            f"--rollout.top_p={args.rollout.top_p:g} samples from a part of the distribution, and the "
            "actor's probabilities are of the whole one, so the ratios of --algo.advantage.is_correction_* "
            "are too small; set it to 1"
        )
    if reward.overlong_buffer_len is not None and OURS in players:
        yield "--reward.overlong_buffer_len counts the observations between the responses of an episode, too"
    rows = [source.rows for source in sources if source.split == "train"]
    if None not in rows and not (args.data.prompt_probs or args.algo.dynamic_filtering_enable):
        prompts = sum(filter(None, rows)) % args.rollout.batch_size
        rest = prompts * args.rollout.n_samples_per_prompt % args.train.batch_size
        if rest:
            yield (
                f"{rest:,} samples at the end of an epoch do not fill an update of --train.batch_size="
                f"{args.train.batch_size}, so OpenRLHF makes no step of the optimizer for them"
            )
    if args.data.prompt_probs:
        yield "--data.prompt_probs draws from the rows of the files, so the numbers above count some twice"


def images_unsupported(args: Any) -> str | None:
    """Return why OpenRLHF's model cannot take images; None if it can.

    Args:
        args: OpenRLHF's flags.
    """
    if getattr(args.data, "max_images_per_prompt", 0) < 1:
        return (
            "OpenRLHF's engines accept none without --data.max_images_per_prompt N; set N to the maximum "
            "number of images in an episode"
        )
    from openrlhf.utils.utils import get_tokenizer

    model = args.actor.model_name_or_path
    return processor_problem(model, lambda: get_tokenizer(model, None))

"""The plan of a run: what plays and rewards each row of its data. Rows that nothing plays are an error."""

from __future__ import annotations

import inspect
from collections import Counter
from collections.abc import Collection, Iterator, Mapping
from typing import Any, NamedTuple

from hydra.utils import get_class
from omegaconf import OmegaConf
from verl.experimental.agent_loop.agent_loop import _agent_loop_registry
from verl.trainer.ppo.reward import get_custom_reward_fn, resolve_reward_manager_cls
from verl.utils.dataset.rl_dataset import RLHFDataset
from verl.utils.import_utils import import_external_libs, load_class_from_fqn, resolve_config_path
from verl.utils.reward_score import default_compute_score

from gem_core._core import Split
from gem_core._util.messages import error_line, unknown
from gem_core.errors import ConfigError
from gem_core.rollout._metrics import HARNESS_METRICS, METRICS
from gem_core.tasks import EnvChoice
from gem_core.trainers import Plan
from gem_core.trainers._options import option_at, reject_listed
from gem_core.trainers._plan import SourceRows, describe_budget, describe_truncation
from gem_verl import _SUPPORTED
from gem_verl._dataset import GemDataset
from gem_verl._options import (
    MANAGER,
    TRAINER_MODES,
    check_data,
    chosen_estimator,
    estimator_names,
    read_options,
)
from gem_verl._rows import AGENT_NAME, ROW_COLUMNS, agent_of, verl_row

VERL_LOOPS = ("single_turn_agent", "tool_agent")
"""verl's own agent loops, which leave the score of an episode to verl's reward manager."""
SPLITS: tuple[Split, Split] = ("train", "eval")
ROLLOUT = "actor_rollout_ref.rollout"


class _Table(NamedTuple):
    """Rows that have the same columns.

    Attributes:
        name: File of the rows, or a phrase for the rows of all files.
        rows: Hugging Face dataset.
        joined: Columns that verl finds in each batch, even if these rows lack them.
    """

    name: str
    rows: Any
    joined: Collection[str]


def make_plan(config: Any, train: Any, val: Any) -> Plan:
    """Check the rows of both datasets, and return what would play and reward them.

    Args:
        config: The whole verl config, which `gem_verl._options.check_config` accepts.
        train: Dataset that verl created from the config for training.
        val: Same for validation.

    Raises:
        GemError: Nothing can play a row or reward it, an environment cannot be built, or an option would have
            no effect.
    """
    reject_listed(_SUPPORTED, config, {"rewards": True})
    _has_manager(config)
    resolve_reward_manager_cls(config)
    _check_scorer(config)
    loops = _find_loops(config)
    counts: Counter[tuple[Split, str, str, str]] = Counter()
    for split, dataset in zip(SPLITS, (train, val), strict=True):
        for source in _count_sources(config, split, dataset, loops):
            counts[source[:4]] += source.rows or 0
    sources = [SourceRows(*kind, rows) for kind, rows in counts.items()]
    _check_filter(config, {source.player for source in sources if source.split == "train"})
    if len(train) < config.data.train_batch_size:
        raise ConfigError(
            f"data.train_batch_size={config.data.train_batch_size}: there are {len(train)} rows to train on, "
            "and verl leaves out an incomplete batch, so no batch would be left"
        )
    games = any(source.player == AGENT_NAME for source in sources)
    others = any(source.player != AGENT_NAME for source in sources)
    choice = chosen_estimator(config)
    return Plan(
        sources,
        f"verl's own {config.algorithm.adv_estimator}" if choice is None else choice.summary,
        [*_budget(config, games, others)],
        [*_notes(config, games, others, (train, val))],
    )


def _find_loops(config: Any) -> Mapping[str, Any]:
    """Return the agent loops that a worker of this config would know, by name.

    Raises:
        ConfigError: A file or class that the config names does not exist.
    """
    agent = config.actor_rollout_ref.rollout.agent
    import_external_libs(config.actor_rollout_ref.model.get("external_lib"))
    loops = dict(_agent_loop_registry)
    if agent.agent_loop_config_path:
        option = f"{ROLLOUT}.agent.agent_loop_config_path={agent.agent_loop_config_path}"
        try:
            entries = OmegaConf.load(resolve_config_path(agent.agent_loop_config_path))
            own = {entry.name: get_class(entry._target_) for entry in entries}
        except Exception as error:
            raise ConfigError(f"{option}: {error_line(error)}") from error
        loops |= own
    tools = config.actor_rollout_ref.rollout.multi_turn
    for name in ("tool_config_path", "function_tool_path"):
        if tools.get(name):
            try:
                with open(resolve_config_path(tools[name])):
                    pass
            except OSError as error:
                raise ConfigError(
                    f"{ROLLOUT}.multi_turn.{name}={tools[name]}: {error_line(error)}"
                ) from error
    return loops


def _count_sources(config: Any, split: Split, dataset: Any, loops: Mapping[str, Any]) -> Iterator[SourceRows]:
    """Count the rows of a dataset by source, agent loop, and reward, and check one row of each kind."""
    ours = isinstance(dataset, GemDataset)
    if not ours and type(dataset).__getitem__ is not RLHFDataset.__getitem__:  # it may change the rows
        default = config.actor_rollout_ref.rollout.agent.default_agent_loop
        player = f"the agent loop that a row names, or else {default}"
        yield SourceRows(split, type(dataset).__name__, player, _reward(config, None), len(dataset))
        if hasattr(getattr(dataset, "dataframe", None), "select_columns"):
            _check_tasks(config, split, dataset.dataframe)
        return
    files = dataset.files if ours else [(f"the files for {split}", dataset)]
    for name, part in files:
        joined = dataset.missing if ours else part.dataframe.column_names
        yield from _count_table(config, split, _Table(name, part.dataframe, joined), loops)
    if ours and dataset.tasks:
        _check_loop(config, AGENT_NAME, loops, f"{len(dataset.tasks)} {split} rows of environments")
        check_data(config, map(verl_row, dataset.tasks), for_training=split == "train")
        for label, count in Counter(EnvChoice.of(task).label for task in dataset.tasks).items():
            yield SourceRows(split, label, AGENT_NAME, _reward(config, AGENT_NAME), count)


def _count_table(config: Any, split: Split, table: _Table, loops: Mapping[str, Any]) -> Iterator[SourceRows]:
    default = str(config.actor_rollout_ref.rollout.agent.default_agent_loop)
    prompt = config.data.prompt_key
    columns = {"agent_name", "data_source", "reward_model", "extra_info", prompt} & {*table.rows.column_names}
    rows = table.rows.select_columns(sorted(columns)) if columns else [{}] * len(table.rows)
    kinds: Counter[tuple[str, Any, str, tuple[str, ...]]] = Counter()
    examples: dict[str, Any] = {}
    names_differ = False
    for row in rows:
        name, source = row.get("agent_name"), row.get("data_source")
        agent = agent_of(name, default)
        names_differ |= name != agent
        label = source if source is None else str(source)
        column = _unplayable(agent, row, prompt)
        examples.setdefault(column, row.get(column))
        kinds[agent, label, column, _unrewarded(config, row, table.joined)] += 1
    if "agent_name" in {*table.joined, *columns} and names_differ:
        problem = "verl plays rows that name no agent loop only if no other row names one"
        _require_manager(config, f"{table.name}: {problem}")
    for (agent, source, column, missing), count in kinds.items():
        shown = source or f"{table.name} without data_source"
        described = f"{count} {split} rows of {shown}"
        _check_loop(config, agent, loops, described)
        if column:
            message = "a list of messages, such as [{'role': 'user', 'content': 'What is 1 + 1?'}]"
            wanted = message if column == prompt else "names and values"
            raise ConfigError(
                f"nothing plays {described}: {column}={examples[column]!r:.40}: expected {wanted}"
            )
        if agent != AGENT_NAME:
            _check_reward(config, agent, source, missing, described)
        yield SourceRows(split, shown, agent, _reward(config, agent), count)
    _check_tasks(config, split, table.rows)


def _unplayable(agent: str, row: Mapping[str, Any], prompt: str) -> str:
    """Return the column of a row that verl cannot read; an empty text if it can read all of them."""
    messages, extra = row.get(prompt), row.get("extra_info")
    if extra is not None and not isinstance(extra, Mapping):
        return "extra_info"
    listed = isinstance(messages, list) and all(
        isinstance(each, Mapping) and "role" in each for each in messages
    )
    return prompt if agent in VERL_LOOPS and not (listed and messages) else ""


def _unrewarded(config: Any, row: Mapping[str, Any], joined: Collection[str]) -> tuple[str, ...]:
    """Return what a row lacks that verl's reward manager reads; a function of the user's may take None."""
    truth, own = row.get("reward_model"), config.reward.custom_reward_function.path
    named = "data_source" in {*row, *joined} if own else row.get("data_source") is not None
    missing = () if named else ("data_source",)
    if isinstance(truth, Mapping) and "ground_truth" in truth and (own or truth["ground_truth"] is not None):
        return missing
    return (*missing, "reward_model.ground_truth")


def _check_tasks(config: Any, split: Split, table: Any) -> None:
    """Check the rows of a table that the agent loop ``gem`` plays."""
    rows = table.select_columns([name for name in ROW_COLUMNS if name in table.column_names])
    check_data(config, rows, for_training=split == "train")


def _has_manager(config: Any) -> bool:
    """Return whether GEM's workers play the rows."""
    name = option_at(config, MANAGER)
    if not name:
        return config.trainer.v1.trainer_mode in TRAINER_MODES
    from gem_verl._manager import GemAgentLoopManager  # which may be the module that imports this one

    return issubclass(load_class_from_fqn(name, "AgentLoopManager"), GemAgentLoopManager)


def _require_manager(config: Any, problem: str) -> None:
    if not _has_manager(config):
        mode = config.trainer.v1.trainer_mode
        raise ConfigError(
            f"{problem}; use trainer.v1.trainer_mode=gem_{mode.removeprefix('gem_')}, or "
            f"+{MANAGER}=gem_verl.GemAgentLoopManager with verl's own modes"
        )


def _check_loop(config: Any, agent: str, loops: Mapping[str, Any], rows: str) -> None:
    if agent not in loops:
        hint = f"Registered: {', '.join(loops)}; others need {ROLLOUT}.agent.agent_loop_config_path"
        raise ConfigError(f"nothing plays {rows}: {unknown('agent loop', agent, loops, hint=hint)}")
    if agent == AGENT_NAME:
        _require_manager(config, f"nothing plays {rows}: the agent loop gem needs GEM's manager")


def _check_reward(config: Any, agent: str, source: str | None, missing: tuple[str, ...], rows: str) -> None:
    """Check that verl's reward manager finds in rows what it needs, and a score for their source."""
    reward = config.reward
    own = reward.custom_reward_function.path
    if agent not in VERL_LOOPS or reward.reward_manager.source != "register":
        return
    if reward.reward_model.enable and not own:
        return
    if missing:
        raise ConfigError(
            f"nothing rewards {rows}: verl's reward manager {reward.reward_manager.name} reads "
            f"{' and '.join(missing)}, which the rows do not have"
        )
    if not own and (problem := _score_problem(str(source))):
        raise ConfigError(
            f"nothing rewards {rows}: {problem}. Set reward.custom_reward_function.path, or use a "
            "data_source that verl scores"
        )


def _check_scorer(config: Any) -> None:
    """Check that a reward function of the user's exists, and takes what verl's reward managers pass."""
    scorer = get_custom_reward_fn(config)
    if scorer is None or config.reward.reward_manager.source != "register":
        return
    function, given = scorer.args
    names = ["data_source", "solution_str", "ground_truth", "extra_info"]
    names += ["reward_router_address", "reward_model_tokenizer"] * bool(config.reward.reward_model.enable)
    try:
        inspect.signature(function).bind(**dict.fromkeys(names), **given)
    except TypeError as error:
        option = "reward.custom_reward_function"
        called = ", ".join([*names, *given])
        raise ConfigError(
            f"{option}.name={config.reward.custom_reward_function.name}: verl calls it with {called}: {error}"
        ) from error


def _check_filter(config: Any, players: set[str]) -> None:
    """Check that all rows have the metric that verl's filter of groups compares."""
    groups, options = option_at(config.algorithm, "filter_groups", {}), read_options(config)
    metric = groups.get("metric")
    if (
        not groups.get("enable")
        or metric == "reward"
        or option_at(config, "trainer.v1.sampler.custom_sampler.path")
    ):
        return
    of_games = metric in (METRICS + HARNESS_METRICS if options.harness else METRICS)
    for player in sorted(players & {AGENT_NAME, *VERL_LOOPS}):
        if of_games != (player == AGENT_NAME):
            raise ConfigError(
                f"algorithm.filter_groups.metric={metric}: the agent loop {player} reports no such metric, "
                "so verl would end the run; reward compares the rewards of all rows"
            )


class _ScoreIsKnown(BaseException):
    """Raised by `_Untouched`; not an Exception, because scorers catch those."""


class _Untouched:
    """A response and an answer that stop a scorer as soon as it looks at them."""

    def _stop(self, *args: Any, **kwargs: Any) -> Any:
        raise _ScoreIsKnown

    __getattr__ = __getitem__ = __len__ = __iter__ = __str__ = __contains__ = __eq__ = __hash__ = _stop


def _score_problem(data_source: str) -> str | None:
    """Return why verl's own scores do not cover a source; None if they do. Nothing is scored."""
    try:
        default_compute_score(data_source, _Untouched(), _Untouched())
    except (NotImplementedError, ImportError) as error:
        return error_line(error)
    except (_ScoreIsKnown, Exception):
        return None
    return None


def _reward(config: Any, agent: str | None) -> str:
    reward = config.reward
    if agent == AGENT_NAME:
        return "the environment"
    if reward.custom_reward_function.path:
        text = f"{reward.custom_reward_function.name} in {reward.custom_reward_function.path}"
    elif reward.reward_model.enable:
        text = f"the reward model {reward.reward_model.model_path}"
    elif reward.reward_manager.source != "register":
        text = f"the reward manager {reward.reward_manager.name}"
    else:
        text = "verl's score of this data_source"
    return text if agent in VERL_LOOPS else f"the agent loop, or else {text}"


def _budget(config: Any, games: bool, others: bool) -> Iterator[str]:
    data, options = config.data, read_options(config)
    rollout = config.actor_rollout_ref.rollout
    limit = data.max_response_length
    if games:
        turns, tokens = options.max_turns, options.max_tokens_per_turn
        yield f"{describe_budget(turns, tokens, limit, 'data.max_response_length')} (agent loop gem)"
    if others:
        yield f"a response of another agent loop has at most data.max_response_length={limit:,} tokens"
    served, longest = rollout.max_model_len, data.max_prompt_length + limit
    if served and served < longest:
        yield (
            f"{ROLLOUT}.max_model_len={served:,} cuts off what prompt and response may have together, "
            f"{longest:,}"
        )
    if others:
        what = "are left out of the data" if data.filter_overlong_prompts else "lose their first tokens"
        limit = data.max_prompt_length
        yield f"prompts of files with more than data.max_prompt_length={limit:,} tokens {what}"


def _notes(config: Any, games: bool, others: bool, datasets: Any) -> Iterator[str]:
    yield from describe_truncation(f"{ROLLOUT}.", config.actor_rollout_ref.rollout)
    if not games and config.get("gem"):
        yield f"gem.{' and gem.'.join(config.gem)} has no effect: the agent loop gem plays no row"
    for name in estimator_names().keys() & config.algorithm.keys() - {config.algorithm.adv_estimator}:
        yield f"algorithm.{name} has no effect: the estimator is {config.algorithm.adv_estimator}"
    for option in ("train_max_samples", "val_max_samples"):
        if (limit := config.data.get(option, -1)) < 1 and limit != -1:
            yield f"data.{option}={limit} limits nothing: verl uses all rows, as with -1"
    chosen, lam = config.algorithm.adv_estimator, config.algorithm.lam
    if estimator_names().get(chosen, "gae") != "gae" and lam != 1:
        yield f"algorithm.lam={lam} has no effect: the estimator is {chosen}"
    reward = config.reward
    if not others:
        if reward.custom_reward_function.path:
            yield "reward.custom_reward_function has no effect: the environments reward all rows"
        if reward.reward_model.enable:
            yield "reward.reward_model has no effect: the environments reward all rows"
    weighted = [env.label for data in datasets[1:] for env in getattr(data, "envs", []) if env.weight != 1]
    if weighted:
        yield f"the weight of {', '.join(weighted)} has no effect on validation"

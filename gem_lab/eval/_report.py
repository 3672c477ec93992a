"""Comparison of evaluations on one web page with tables, plots, and every episode: `write_report`.

The page is based on `gem_lab.eval._viewer`, with the comparison above the episodes. It loads nothing from the
network, and links can point to an episode. The comparison itself works without JavaScript.
"""

from __future__ import annotations

import html
import itertools
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from gem_core._util.messages import error_line
from gem_core._util.urls import without_secrets
from gem_core.errors import ConfigError
from gem_core.rollout import Episode
from gem_lab._pages.charts import COLORS, interval_chart
from gem_lab.eval import _folder as folders
from gem_lab.eval._compare import paired_differences
from gem_lab.eval._token_texts import read_token_texts
from gem_lab.eval._viewer import PageSummary, write_page

SUMMARY_COLUMNS = (
    "environment", "episodes", "items", "return", "success", "pass@k", "turns", "format errors", "tool calls",
    "tokens in/out", "cost", "errors",
)  # fmt: skip

DIFFERENCE_COLUMNS = ("environment", "run", "common tasks", "return", "success")

ALL_ENVS = "all, weighted equally"
"""Label of the row that averages all environments."""

_MISSING = "-"


@dataclass(frozen=True)
class EvalRun:
    """A finished evaluation, read from its folder.

    Attributes:
        name: Name shown on the page.
        folder: Folder of the evaluation.
        config: Options of the evaluation, from ``config.json``.
        summary: Results, from ``summary.json``.
        episodes: Episodes, ordered by environment, task, and sample.
    """

    name: str
    folder: Path
    config: dict[str, Any]
    summary: dict[str, Any]
    episodes: list[Episode]


def read_run(folder: str | Path) -> EvalRun:
    """Read the folder of a finished evaluation.

    Raises:
        ConfigError: The folder holds no evaluation, the evaluation has not finished, or its summary is
            damaged.
        TraceError: The episodes are damaged.
    """
    path = Path(folder)
    config = folders.read_config(path)
    if not (path / folders.SUMMARY).exists():
        raise ConfigError(f"the evaluation in {path} has not finished; repeat its command to continue")
    summary = folders.read_summary(path)
    try:
        summary_rows(summary)
    except (KeyError, TypeError, ValueError, AttributeError, IndexError) as error:
        raise ConfigError(
            f"{path / folders.SUMMARY} is damaged ({error_line(error)}); remove it and repeat the "
            "evaluation's command"
        ) from None
    return EvalRun(path.resolve().name, path, config, summary, list(folders.finished(path).values()))


def write_report(
    runs: Sequence[EvalRun],
    out: str | Path,
    *,
    differences: Mapping[str, Mapping[str, Any]] | None = None,
    advance: Callable[[int], None] = lambda done: None,
) -> PageSummary:
    """Write a page that compares evaluations.

    Args:
        runs: Evaluations to compare.
        out: Path of the HTML file.
        differences: Result of `differences_of`; None computes them.
        advance: Called before each episode with the number of episodes written so far.

    Returns:
        Statistics of the page.

    Raises:
        ConfigError: `runs` is empty or holds the same folder twice.
        OSError: The page cannot be written.
    """
    if not runs:
        raise ConfigError("no runs to compare: expected at least one folder of `gem-core eval`")
    runs = named_apart(runs)
    texts: dict[int, str] = {}
    if len({run.config["model"] for run in runs}) == 1:  # token ids of different models differ
        for run in runs:
            texts.update(read_token_texts(run.folder / folders.EPISODES))

    def episodes() -> Iterator[Episode]:
        everything = ((run.name, episode) for run in runs for episode in run.episodes)
        for index, (name, episode) in enumerate(everything):
            advance(index)
            yield replace(episode, metadata={**episode.metadata, "run": name})

    return write_page(
        episodes(),
        out,
        title="Evaluation: " + ", ".join(run.name for run in runs),
        token_text=texts.get,
        head=_comparison(runs, differences_of(runs) if differences is None else differences),
    )


def summary_rows(summary: Mapping[str, Any]) -> list[list[str]]:
    """Return the rows of an evaluation's table, with the columns `SUMMARY_COLUMNS`.

    If there are several environments, the last row averages them.

    Args:
        summary: Content of ``summary.json``.
    """
    envs = summary["envs"]
    rows = [_summary_row(short, envs[label]) for label, short in short_labels(envs).items()]
    average = _summary_row(ALL_ENVS, summary["overall"])
    return [*rows, average] if len(rows) > 1 else rows


def _summary_row(label: str, summary: Mapping[str, Any]) -> list[str]:
    metrics, tokens = summary.get("metrics", {}), (summary["prompt_tokens"], summary["response_tokens"])
    chances = [f"{k}: {_number(value)}" for k, value in summary.get("pass_at", {}).items() if k != "1"]
    return [
        label,
        str(summary["episodes"]),
        _MISSING if summary.get("items") is None else str(summary["items"]),
        estimate_text(summary["return"]),
        estimate_text(summary["success"]),
        ", ".join(chances) or _MISSING,
        _number(summary.get("turns", {}).get("mean"), 1),
        _number(metrics.get("gem/format_error_rate")),
        _number(metrics.get("gem/tool_calls"), 1),
        _MISSING if None in tokens else f"{tokens[0]}/{tokens[1]}",
        _MISSING if summary.get("cost") is None else f"${summary['cost']:.4f}",
        str(summary["errors"]),
    ]


def differences_of(runs: Sequence[EvalRun]) -> dict[str, dict[str, Any]]:
    """Return the paired differences of each later run from the first one, by the name of the run."""
    return {run.name: paired_differences(runs[0].episodes, run.episodes) for run in runs[1:]}


def difference_rows(differences: Mapping[str, Mapping[str, Any]]) -> list[list[str]]:
    """Return the rows of the table of paired differences, with `DIFFERENCE_COLUMNS`.

    Args:
        differences: Result of `differences_of`.
    """
    rows = []
    for name, comparison in differences.items():
        envs = [
            (short, comparison["envs"][label]) for label, short in short_labels(comparison["envs"]).items()
        ]
        if len(envs) > 1:
            envs.append((ALL_ENVS, comparison["overall"]))
        rows += [
            [
                label,
                name,
                str(difference["tasks"]),
                *(_difference(difference[column]) for column in ("return", "success")),
            ]
            for label, difference in envs
        ]
    return rows


def short_labels(labels: Iterable[str]) -> dict[str, str]:
    """Map labels of environments to shorter ones, without the folder of an environment in a file.

    A label keeps its folder if another label would then look the same.
    """
    short = {label: re.sub(r"^[^(]*[\\/](?=[^(\\/]+\.py:)", "", label) for label in labels}
    names = list(short.values())
    return {label: name if names.count(name) == 1 else label for label, name in short.items()}


def _comparison(runs: Sequence[EvalRun], differences: Mapping[str, Mapping[str, Any]]) -> str:
    labels = short_labels(label for run in runs for label in run.summary["envs"])

    def estimates(name: str) -> dict[str, list[Mapping[str, Any] | None]]:
        return {
            short: [run.summary["envs"].get(label, {}).get(name) for run in runs]
            for label, short in labels.items()
        }

    legend = " ".join(
        f'<span class="run"><i style="background:{COLORS[index % len(COLORS)]}"></i>'
        f"{html.escape(run.name)}{_described(run)}</span>"
        for index, run in enumerate(runs)
    )
    first = _table(
        ["environment", "run", "return", "success"],
        [
            [short, run.name, estimate_text(env_summary["return"]), estimate_text(env_summary["success"])]
            for label, short in labels.items()
            for run in runs
            if (env_summary := run.summary["envs"].get(label)) is not None
        ],
        "results",
    )
    rows = [[run.name, *row] for run in runs for row in summary_rows(run.summary)]
    filled = [any(cell != _MISSING for cell in column) for column in zip(*rows, strict=True)]
    details = _table(
        list(itertools.compress(["run", *SUMMARY_COLUMNS], filled)),
        [list(itertools.compress(row, filled)) for row in rows],
        "details",
    )
    names = sorted({name for run in runs for name in run.config})
    settings = _table(
        ["option", *(run.name for run in runs)],
        [[name, *(_value(run.config.get(name)) for run in runs)] for name in names],
        "settings",
    )
    return (
        f'<section id="comparison" aria-label="Comparison"><p id="legend">{legend}</p>{first}'
        '<p class="soft">Mean ± standard error over tasks [95% interval]: Wilson for success, bootstrap over '
        "tasks for the return. The dots below are means; the lines are intervals.</p>"
        f'<div class="charts">{interval_chart("Return", estimates("return"))}'
        f"{interval_chart('Success', estimates('success'))}</div>"
        f"{_differences(runs[0].name, differences)}<h2>Details</h2>{details}"
        f"<details><summary>Settings</summary>{settings}</details>"
        "<h2>Episodes</h2></section>"
    )


def _described(run: EvalRun) -> str:
    """Return the model of a run, unless it is the run's name, and the options that often distinguish runs."""
    words = [model] if (model := str(run.config["model"])) != run.name else []
    for name, ordinary in (("temperature", 1.0), ("seed", 0), ("wrappers", "")):
        if (value := run.config.get(name, ordinary)) != ordinary:
            words.append(f"{name}={value}")
    return f' <span class="soft">{html.escape(without_secrets(", ".join(words)))}</span>' if words else ""


def _differences(base: str, differences: Mapping[str, Mapping[str, Any]]) -> str:
    rows = difference_rows(differences)
    if not rows:
        return ""
    return (
        f"<h2>Differences from {html.escape(base)}</h2>"
        f"{_table(DIFFERENCE_COLUMNS, rows, 'differences')}"
        '<p class="soft">Paired by task: mean difference ± standard error [95% interval, bootstrap over '
        "tasks].</p>"
    )


def _table(columns: Sequence[str], rows: Sequence[Sequence[str]], id: str) -> str:
    head = "".join(f'<th scope="col">{html.escape(column)}</th>' for column in columns)
    body = "".join(
        "<tr>" + "".join(f"<td>{html.escape(cell)}</td>" for cell in row) + "</tr>" for row in rows
    )
    table = f'<table id="{id}"><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>'
    return f'<div class="wide">{table}</div>'


def estimate_text(estimate: Mapping[str, Any] | None, number_format: str = ".3f") -> str:
    """Return a mean with its standard error and interval as text, or "-" if there is none."""
    if not estimate or estimate["mean"] is None:
        return _MISSING
    text = f"{estimate['mean']:{number_format}}"
    if estimate.get("se") is not None:
        text += f" ± {estimate['se']:.3f}"
    if estimate.get("low") is not None:
        text += f" [{estimate['low']:{number_format}}, {estimate['high']:{number_format}}]"
    return text


def _difference(estimate: Mapping[str, Any]) -> str:
    return estimate_text(estimate, "+.3f")


def _number(value: float | None, digits: int = 3) -> str:
    return _MISSING if value is None else f"{value:.{digits}f}"


def _value(value: Any) -> str:
    return without_secrets(", ".join(map(str, value)) if isinstance(value, list) else str(value))


def named_apart(runs: Sequence[EvalRun]) -> list[EvalRun]:
    """Return the runs, named by their paths if their folders have the same name.

    Raises:
        ConfigError: Two runs are the same folder.
    """
    paths = [run.folder.resolve() for run in runs]
    for run, path in zip(runs, paths, strict=True):
        if paths.count(path) > 1:
            raise ConfigError(f"{run.folder} is listed twice; list each run once")
    names = [run.name for run in runs]
    return [replace(run, name=str(run.folder)) if names.count(run.name) > 1 else run for run in runs]

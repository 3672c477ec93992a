"""The runs in a folder, as a web page with a link to a page for each: `write_index`.

Evaluations, training runs, consistency records, and traces are recognized by their files. A run with a
damaged file is listed with the reason.
"""

from __future__ import annotations

import functools
import html
import os
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING

from gem_core._util.files import write_atomically
from gem_core._util.foreign_json import read_json_file
from gem_core._util.messages import error_line
from gem_core._util.visible import visible
from gem_core.errors import ConfigError
from gem_lab._cli import _console
from gem_lab._pages.document import PAGE_MARK, check_page
from gem_lab._run_folders import is_claimed, read_json_lines

if TYPE_CHECKING:
    from gem_core.rollout import Episode

PAGE, INDEX = "view.html", "index.html"
RUNNING, FINISHED, STOPPED, DAMAGED = "running", "finished", "stopped", "damaged"
_STYLE = """
:root { color-scheme: light dark; --line: light-dark(#dfe3e8, #313742); --soft: light-dark(#66707c, #929dab);
  --good: light-dark(#14763f, #5fcf93); --bad: light-dark(#b3361b, #ff9176);
  --link: light-dark(#2962c9, #7fa9ff); }
body { font: 14px/1.45 system-ui, sans-serif; margin: 20px; background: light-dark(#f6f7f9, #14171c);
  color: light-dark(#1d2329, #e2e6eb); }
h1 { font-size: 18px; margin: 0 0 2px; overflow-wrap: anywhere; }
p { color: var(--soft); margin: 0 0 14px; }
a { color: var(--link); }
.wide { overflow-x: auto; }
table { border-collapse: collapse; width: 100%; font-variant-numeric: tabular-nums; }
th { text-align: left; color: var(--soft); font-size: 12px; }
th, td { padding: 5px 14px 5px 0; border-bottom: 1px solid var(--line); vertical-align: top; }
td { white-space: nowrap; }
td.name, td.model, td.envs, td.score { white-space: normal; overflow-wrap: anywhere; min-width: 10em; }
td.score { min-width: 15em; }
@media (max-width: 720px) {
  thead { display: none; }
  table, tbody, tr { display: block; }
  tr { border-bottom: 1px solid var(--line); padding: 8px 0; }
  td { display: inline-block; border: 0; padding: 0 12px 0 0; min-width: 0 !important; }
  td.name, td.envs, td.score { display: block; }
}
.running { color: var(--link); font-weight: 600; } .finished { color: var(--good); }
.damaged { color: var(--bad); } .stopped { color: var(--soft); }
"""


@dataclass(frozen=True)
class RunEntry:
    """One run in the list.

    Attributes:
        kind: "evaluation", "training", "consistency", or "trace".
        path: Folder of the run, or file of a trace.
        model: Model that played; empty if unknown.
        envs: Environments.
        score: Result with its interval, or the progress of a run.
        changed: Time of the last change, in nanoseconds since the epoch.
        state: `RUNNING`, `FINISHED`, `STOPPED`, or `DAMAGED`.
        page: Path of the page; None if there is nothing to show yet.
    """

    kind: str
    path: Path
    model: str
    envs: tuple[str, ...]
    score: str
    changed: int
    state: str
    page: Path | None


def find_runs(root: Path) -> list[RunEntry]:
    """Return the runs in a folder and its subfolders, the most recently changed one first.

    Raises:
        ConfigError: `root` is not a folder.
    """
    if not root.is_dir():
        raise ConfigError(f"{root} is not a folder")
    entries: list[RunEntry] = []
    for name, subfolders, files in os.walk(root):
        folder = Path(name)
        subfolders[:] = sorted(sub for sub in subfolders if not sub.startswith(".") and sub != "checkpoints")
        entries += _runs_in(folder, sorted(file for file in files if (folder / file).is_file()))
    return sorted(entries, key=lambda entry: (-entry.changed, str(entry.path)))


def write_index(root: Path, out: Path, *, gamma: float = 1.0, refresh: float | None = None) -> list[RunEntry]:
    """Write the index of the runs in a folder, and the page of each run that changed since its page.

    Args:
        root: Folder to search.
        out: Page to write.
        gamma: Discount of the return-to-go, for episodes that do not record one.
        refresh: Seconds after which an open index loads itself again; None for a page that is never reloaded.

    Returns:
        The runs.

    Raises:
        ConfigError: `root` is not a folder, or `out` is a link or a file that this package did not write.
        OSError: A page cannot be written.
    """
    check_page(out)
    with _console.progress("reading", None):
        found = find_runs(root)
    with _console.progress("writing", len(found)) as advance:
        entries = [_with_page(entry, gamma) for entry in _console.counted(found, advance)]
    rows = "".join(_row(entry, root, out.parent) for entry in entries)
    columns = ("run", "kind", "model", "environments", "score", "changed", "state")
    head = "".join(f'<th scope="col">{column}</th>' for column in columns)
    reload = f'<meta http-equiv="refresh" content="{refresh:g}">' if refresh else ""
    title = html.escape(visible(f"Runs in {root}", lines=False))
    running = sum(entry.state == RUNNING for entry in entries)
    page = (
        f'<!doctype html><html lang="en"><head><meta charset="utf-8">{PAGE_MARK}{reload}'
        '<meta http-equiv="Content-Security-Policy" content="default-src &#39;none&#39;; '
        'style-src &#39;unsafe-inline&#39;">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f"<title>{title}</title><style>{_STYLE}</style></head><body><h1>{title}</h1>"
        f"<p>{len(entries)} runs, {running} running. Scores: success with its 95% interval, averaged over "
        "environments of equal weight; in training, success in the first and the latest evaluation.</p>"
        f'<div class="wide"><table><thead><tr>{head}</tr></thead><tbody>{rows}</tbody></table></div>'
        "</body></html>\n"
    )
    write_atomically(out, [page.encode(errors="replace")])  # names of files may not be UTF-8
    return entries


def _runs_in(folder: Path, files: list[str]) -> Iterator[RunEntry]:
    """Yield the runs whose files are directly in the folder."""
    readers = {
        "evaluation": (_evaluation, "config.json" in files and "episodes.jsonl" in files),
        "training": (_training, "config.json" in files and "metrics.jsonl" in files),
    }
    for kind, (reader, applies) in readers.items():
        if applies:
            yield _entry(kind, folder, reader)
            return
    if folder.name == "records" and any(file.endswith(".json") for file in files):
        yield _entry("consistency", folder, _steps)
    for file in files:
        if file.endswith(".jsonl"):
            path = folder / file
            if file == "learning.jsonl":
                yield _entry("consistency", path, _learning)
            elif _is_trace(path):
                yield _entry("trace", path, _trace)


def _entry(kind: str, path: Path, reader: Callable[[Path], RunEntry]) -> RunEntry:
    """Return the entry of a run, which is read again only if it has changed."""
    # Temporary files, whose names begin with a dot, may disappear before they are examined.
    names = [] if path.is_file() else [name for name in os.listdir(path) if name != PAGE and name[0] != "."]
    files = [path] if path.is_file() else [path / name for name in names]
    stamp = tuple(sorted((file.name, file.stat().st_mtime_ns) for file in files if file.is_file()))
    return _read_entry(kind, path, reader, (*stamp, ("", is_claimed(path) if path.is_dir() else False)))


@functools.lru_cache(maxsize=4096)
def _read_entry(
    kind: str, path: Path, reader: Callable[[Path], RunEntry], stamp: tuple[tuple[str, int], ...]
) -> RunEntry:
    try:
        return reader(path)
    except Exception as error:  # whatever the files hold
        return RunEntry(kind, path, "", (), error_line(error), path.stat().st_mtime_ns, DAMAGED, None)


def _evaluation(folder: Path) -> RunEntry:
    from gem_core.tasks import EnvChoice
    from gem_lab.eval._folder import CONFIG, EPISODES, SUMMARY, finished, read_config, read_summary
    from gem_lab.eval._report import estimate_text
    from gem_lab.eval._summary import summarize_envs

    config = read_config(folder)
    sources = [folder / name for name in (CONFIG, EPISODES, SUMMARY) if (folder / name).exists()]
    envs = tuple(EnvChoice.parse(text).label for text in config["env"])
    if (folder / SUMMARY).exists():
        state, overall, suffix = FINISHED, read_summary(folder)["overall"], ""
    else:
        state = RUNNING if is_claimed(folder) else STOPPED
        by_env: dict[str, list[Episode]] = {}
        for (label, _, _), episode in finished(folder).items():
            by_env.setdefault(label, []).append(episode)
        overall = summarize_envs(by_env)["overall"] if by_env else {"success": None}
        total = config["episodes"] * config["group_size"] * len(envs)
        suffix = f" after {sum(map(len, by_env.values()))} of {total} episodes"
    score = estimate_text(overall["success"]) + suffix
    return RunEntry(
        "evaluation", folder, str(config["model"]), envs, score, _newest(sources), state,
        folder / PAGE,
    )  # fmt: skip


def _training(folder: Path) -> RunEntry:
    config = read_json_file(folder / "config.json")
    steps = (folder / "metrics.jsonl").read_bytes().count(b"\n")
    evaluation = folder / "evaluation.json"
    results = read_json_file(evaluation) if evaluation.exists() else {}
    state = FINISHED if "after" in results else RUNNING if is_claimed(folder) else STOPPED
    score = _learned(folder / "evaluations.jsonl")
    if state != FINISHED:
        score += f" after {steps} of {config['steps']} steps"
    sources = [folder / name for name in ("config.json", "metrics.jsonl", "traces.jsonl")]
    sources = [source for source in sources if source.exists()]
    page = folder / PAGE if (folder / "traces.jsonl").exists() else None
    return RunEntry(
        "training", folder, str(config.get("model", "")), tuple(map(str, config.get("env", ()))), score,
        _newest(sources), state, page,
    )  # fmt: skip


def _learned(path: Path) -> str:
    """Return the success of the first and of the latest evaluation, averaged over environments."""
    from gem_lab.eval._intervals import average, estimate_rate
    from gem_lab.eval._report import estimate_text

    by_step: dict[int, list[dict[str, float | None]]] = {}
    for line in read_json_lines(path) if path.exists() else ():
        scored = [
            [float(success)]
            for success, failed in zip(line["success"], line["error"], strict=True)
            if not failed
        ]
        by_step.setdefault(line["step"], []).append(estimate_rate(scored))
    texts = (
        [estimate_text(average(by_step[step])) for step in sorted({min(by_step), max(by_step)})]
        if by_step
        else []
    )
    return " → ".join(texts) or "-"


def _steps(folder: Path) -> RunEntry:
    from gem_lab.consistency import compare
    from gem_lab.consistency._record import read_records

    records = read_records(folder)
    verdicts = [
        compare(records[record.reference], record).equal
        for record in records.values()
        if not record.is_reference and record.reference in records
    ]
    score = f"{sum(map(bool, verdicts))} of {len(verdicts)} trainers compute the same step"
    envs = tuple(sorted({episode.env_id for record in records.values() for episode in record.episodes}))
    sources = sorted(folder.glob("*.json"))
    return RunEntry(
        "consistency", folder, ", ".join(records), envs, score, _newest(sources), FINISHED,
        folder / PAGE,
    )  # fmt: skip


def _learning(path: Path) -> RunEntry:
    from gem_lab.consistency._learning import REBN, compare_learning, read_runs

    runs = read_runs(path)
    results = [result for result in compare_learning(runs) if result.variant == REBN]
    score = f"{sum(bool(result.equal) for result in results)} of {len(results)} comparisons are equivalent"
    envs = tuple(sorted({str(run.budget.get("env", run.task)) for run in runs}))
    trainers = ", ".join(dict.fromkeys(run.trainer for run in runs))
    return RunEntry(
        "consistency", path, trainers, envs, score, path.stat().st_mtime_ns, FINISHED,
        path.with_suffix(".html"),
    )  # fmt: skip


def _trace(path: Path) -> RunEntry:
    from gem_core.rollout import read_traces
    from gem_lab.eval._intervals import estimate_rate
    from gem_lab.eval._report import estimate_text

    episodes = [episode for episode in read_traces(path) if episode.error is None]
    by_task: dict[tuple[str, int | None], list[float]] = {}
    for episode in episodes:
        by_task.setdefault((episode.env_id, episode.seed), []).append(float(episode.success))
    models = sorted({str(episode.metadata["model"]) for episode in episodes if "model" in episode.metadata})
    envs = tuple(sorted({episode.env_id for episode in episodes}))
    score = f"{estimate_text(estimate_rate(list(by_task.values())))} in {len(episodes)} episodes"
    changed = path.stat().st_mtime_ns
    return RunEntry(
        "trace", path, ", ".join(models), envs, score, changed, FINISHED, path.with_suffix(".html")
    )


def _is_trace(path: Path) -> bool:
    with path.open("rb") as file:
        return b'"schema_version"' in (start := file.read(200)) and b'"env_id"' in start


def _newest(paths: Sequence[Path]) -> int:
    return max(path.stat().st_mtime_ns for path in paths)


def _with_page(entry: RunEntry, gamma: float) -> RunEntry:
    """Write the page of a run, unless it shows the run's last change; a damaged run gets no page."""
    page = entry.page
    # A run may change while its page is written, so the page gets the time of the change that it shows.
    if page is None:
        return entry
    try:
        check_page(page)
    except ConfigError as error:
        return replace(entry, score=f"{entry.score}; no page: {error}", page=None)
    if page.exists() and page.stat().st_mtime_ns == entry.changed:
        return entry
    try:
        _write_page(entry, page, gamma)
        os.utime(page, ns=(entry.changed, entry.changed))
    except OSError:
        raise
    except Exception as error:  # whatever the files hold
        return replace(entry, score=error_line(error), state=DAMAGED, page=None)
    return entry


def _write_page(entry: RunEntry, page: Path, gamma: float) -> None:
    from gem_core.rollout import read_traces
    from gem_lab.eval._report import read_run, write_report
    from gem_lab.eval._token_texts import read_token_texts
    from gem_lab.eval._viewer import write_page

    if entry.kind == "consistency":
        _write_consistency_page(entry.path, page)
    elif entry.kind == "evaluation" and entry.state == FINISHED:
        write_report([read_run(entry.path)], page)
    else:
        names = {"evaluation": "episodes.jsonl", "training": "traces.jsonl"}
        trace = entry.path / names[entry.kind] if entry.kind in names else entry.path
        texts = read_token_texts(trace)
        write_page(read_traces(trace), page, title=entry.path.name, token_text=texts.get, gamma=gamma)


def _write_consistency_page(path: Path, page: Path) -> None:
    from gem_lab.consistency import compare
    from gem_lab.consistency._learning import compare_learning, read_runs
    from gem_lab.consistency._learning_page import write_learning_page
    from gem_lab.consistency._page import write_page
    from gem_lab.consistency._record import read_records

    if path.is_file():
        runs = read_runs(path)
        write_learning_page(runs, compare_learning(runs), page)
        return
    records = read_records(path)
    compared = {
        name: compare(records[record.reference], record)
        for name, record in records.items()
        if not record.is_reference and record.reference in records
    }
    write_page(records, compared, page)


def _row(entry: RunEntry, root: Path, base: Path) -> str:
    from urllib.parse import quote

    from gem_lab.eval._report import short_labels

    path = entry.path.relative_to(root).as_posix() if entry.path != root else root.name
    name = html.escape(visible(path, lines=False))
    if entry.page is not None:
        link = quote(os.fsencode(Path(os.path.relpath(entry.page, base)).as_posix()))
        name = f'<a href="{link}">{name}</a>'
    try:
        when = datetime.fromtimestamp(entry.changed / 1e9).strftime("%Y-%m-%d %H:%M")
    except (ValueError, OverflowError, OSError):  # a year that does not exist
        when = "-"
    envs = ", ".join([*short_labels(entry.envs).values()][:3]) + (
        f" and {len(entry.envs) - 3} more" if len(entry.envs) > 3 else ""
    )
    return (
        f'<tr><td class="name">{name}</td><td>{entry.kind}</td>'
        f'<td class="model">{html.escape(entry.model)}</td>'
        f'<td class="envs" title="{html.escape(", ".join(entry.envs))}">{html.escape(envs)}</td>'
        f'<td class="score">{html.escape(entry.score)}</td><td>{when}</td>'
        f'<td class="{entry.state}">{entry.state}</td></tr>'
    )

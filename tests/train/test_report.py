"""Outputs of a run: the report, the terminal, TensorBoard, Weights & Biases, and the demo's verdict."""

from __future__ import annotations

import io
import math
import struct
import sys
import types

import pytest

torch = pytest.importorskip("torch", reason="needs the extra 'train'")

from gem_core.errors import ConfigError  # noqa: E402
from gem_core.rollout import Episode, Turn  # noqa: E402
from gem_lab.train import TrainConfig, TrainOutcome, _demo, train  # noqa: E402
from gem_lab.train._console import ConsoleReporter  # noqa: E402
from gem_lab.train._report import best_and_worst, new_figure, smooth  # noqa: E402
from tests.train.helpers import EASY, options  # noqa: E402


def episode(seed, rewards, *, success=False, trainable=True):
    turns = [Turn([1], [2], None, reward, "look", f"act {seed}", "stop", {}) for reward in rewards]
    if success:
        turns[-1].info["success"] = True
    return Episode("test", seed, turns, True, False, "terminated", trainable=trainable)


# -- files ------------------------------------------------------------------------------------


def test_the_curve_is_a_plot_of_reasonable_size(learned):
    image = pytest.importorskip("matplotlib.image")
    path = learned.folder / "curve.png"
    data = path.read_bytes()
    assert data[:8] == b"\x89PNG\r\n\x1a\n"
    width, height = struct.unpack(">II", data[16:24])
    assert 1000 <= width <= 3000
    assert 300 <= height <= 1200
    assert 20_000 < len(data) < 1_000_000
    pixels = image.imread(path)
    assert pixels.shape[:2] == (height, width)
    for part in (
        pixels[:, : width // 3],
        pixels[:, width // 3 : 2 * width // 3],
        pixels[:, 2 * width // 3 :],
    ):
        assert part[..., :3].std() > 0.02  # every panel shows something


def test_a_run_without_a_curve_does_not_need_matplotlib(tiny_folder, tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    train(TrainConfig(**options(tiny_folder, tmp_path, steps=1, curve=False)))
    assert (tmp_path / "episodes.txt").exists()
    assert not (tmp_path / "curve.png").exists()


def test_episodes_has_the_best_and_the_worst(learned):
    text = (learned.folder / "episodes.txt").read_text()
    best, _, worst = text.partition("Worst episodes")
    assert best.startswith("Best episodes")
    assert best.count("return 1.00, solved") == 3
    assert worst.count("seed ") == 3
    assert r"\boxed{" in best
    assert "Find the hidden number" in worst


def test_best_and_worst_are_chosen_by_return_and_length():
    episodes = [
        episode(1, [0.0, 1.0], success=True), episode(2, [1.0], success=True), episode(3, [-0.1]),
        episode(4, [0.5]), episode(5, [9.0], trainable=False),
    ]  # fmt: skip
    best, _, worst = best_and_worst(episodes, count=2).partition("Worst")
    assert [best.index(f"act {seed}") for seed in (2, 1)] == sorted(best.index(f"act {s}") for s in (2, 1))
    assert "act 4" not in best
    assert worst.index("act 3") < worst.index("act 4")
    assert "act 5" not in best + worst


def test_smooth_is_the_mean_of_the_last_values():
    assert smooth([1.0, 3.0, 5.0, 7.0], 2) == [1.0, 2.0, 4.0, 6.0]
    assert smooth([1.0, 3.0], 1) == [1.0, 3.0]


# -- the terminal -----------------------------------------------------------------------------


class Terminal(io.StringIO):
    def isatty(self):
        return True


def shown_by(stream, tiny_folder, out, **changes):
    config = TrainConfig(**options(tiny_folder, out, steps=3, **changes))
    train(config, ConsoleReporter(config, stream))
    return stream.getvalue()


def test_a_terminal_gets_a_table(tiny_folder, tmp_path, monkeypatch):
    monkeypatch.setenv("TERM", "xterm-256color")
    monkeypatch.setenv("COLUMNS", "160")
    for name in ("NO_COLOR", "FORCE_COLOR", "TTY_COMPATIBLE", "TTY_INTERACTIVE"):
        monkeypatch.delenv(name, raising=False)
    shown = shown_by(Terminal(), tiny_folder, tmp_path)
    assert "\x1b[" in shown
    for column in ("step", "return", "success", "format errors", "entropy", "grad norm"):
        assert column in shown
    assert "3/3 steps" in shown
    assert "  step    1/3  " not in shown
    assert shown.count("\x1b[?25l") == shown.count("\x1b[?25h") > 0  # the cursor is shown again


def test_anything_else_gets_lines(tiny_folder, tmp_path, monkeypatch):
    monkeypatch.delenv("FORCE_COLOR", raising=False)
    shown = shown_by(io.StringIO(), tiny_folder, tmp_path, zero_advantages=True)
    assert "\x1b" not in shown
    lines = shown.splitlines()
    assert [line.split()[1] for line in lines if line.startswith("  step ")] == ["1/3", "2/3", "3/3"]
    assert all("return " in line and "success " in line for line in lines if line.startswith("  step "))
    assert "(control: advantages set to 0)" in shown
    for part in (
        "an episode before training",
        "the same seed after training",
        "episodes.txt",
        "checkpoint",
    ):
        assert part in shown
    assert f"{EASY}, sampled policy: success" in shown


def test_square_brackets_are_not_markup():
    stream = io.StringIO()
    ConsoleReporter(TrainConfig(), stream).note("[bold]not a style[/bold] [/]")
    assert stream.getvalue() == "> [bold]not a style[/bold] [/]\n"


# -- other outputs ----------------------------------------------------------------------------


def test_tensorboard_has_every_metric_of_every_step(learned):
    accumulator = pytest.importorskip("tensorboard.backend.event_processing.event_accumulator")
    events = accumulator.EventAccumulator(str(learned.folder / "tensorboard")).Reload()
    for name in ("gem/return", "rebn/return_std", "train/grad_norm", "train/learning_rate"):
        scalars = events.Scalars(name)
        assert [scalar.step for scalar in scalars] == list(range(1, 31))
        expected = [metrics[name] for metrics in learned.history]
        assert [scalar.value for scalar in scalars] == pytest.approx(expected, rel=1e-5)


def test_a_resumed_run_continues_at_weights_and_biases(tiny_folder, tmp_path, monkeypatch):
    runs = []

    class Run:
        def __init__(self, **given):
            self.given, self.logged, self.finished = given, [], 0
            runs.append(self)

        def log(self, metrics, step):
            self.logged.append((step, metrics["gem/return"]))

        def finish(self):
            self.finished += 1

    stub = types.ModuleType("wandb")
    stub.init = Run  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "wandb", stub)
    config = options(tiny_folder, tmp_path, wandb="project", eval_episodes=0)
    outcome = train(TrainConfig(**config))
    train(TrainConfig(**config))
    train(TrainConfig(**config | {"resume": False}))
    first, resumed, other = runs
    assert first.logged == [(m["step"], m["gem/return"]) for m in outcome.history] == other.logged
    assert resumed.logged == []
    assert (first.given["project"], first.given["resume"]) == ("project", "allow")
    assert first.given["config"]["estimator"] == "rebn"
    assert first.given["id"] == resumed.given["id"] != other.given["id"]
    assert [run.finished for run in runs] == [1, 1, 1]


# -- the demo ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("before", "after", "code"),
    [(0.34, 0.99, 0), (0.30, 0.80, 0), (0.30, 0.79, 1), (0.34, 0.34, 1), (0.60, 0.84, 1), (0.60, 0.86, 0)],
)
def test_the_exit_code_of_the_demo_says_whether_the_agent_learned(
    before, after, code, tmp_path, monkeypatch, capsys
):
    import gem_lab.train

    def stub(config, reporter):
        assert (config.out, config.seed, config.estimator) == (str(tmp_path), 3, "rebn")
        rates = ({_demo.ENV: {"gem/success": rate}} for rate in (before, after))
        return TrainOutcome(tmp_path, tmp_path, [], *rates)

    monkeypatch.setattr(gem_lab.train, "train", stub)
    assert _demo.main(["--out", str(tmp_path), "--seed", "3"]) == code
    said = "the agent learned the game" if code == 0 else "the agent did NOT learn the game"
    assert f"{said}: success {before:.2f} -> {after:.2f}" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("error", "code", "said"),
    [
        (ConfigError("the folder\nis not a folder"), 2, "error: the folder is not a folder\n"),
        (OSError(28, "No space left on device"), 2, "error: [Errno 28] No space left on device\n"),
        (KeyboardInterrupt(), 130, "interrupted; repeat the command to continue from the last checkpoint\n"),
    ],
)
def test_a_demo_that_fails_says_so_in_one_line(error, code, said, tmp_path, monkeypatch, capsys):
    import gem_lab.train

    def stub(config, reporter):
        raise error

    monkeypatch.setattr(gem_lab.train, "train", stub)
    assert _demo.main(["--out", str(tmp_path)]) == code
    assert capsys.readouterr().err == said


def test_an_outcome_is_the_mean_of_its_environments(tmp_path):
    after = {"a": {"gem/success": 1.0}, "b": {"gem/success": 0.5}, "c": {"gem/error_rate": 1.0}}
    outcome = TrainOutcome(tmp_path, tmp_path, [], after, after)
    assert outcome.mean("after", "gem/success") == 0.75  # the failed episode does not count
    assert math.isnan(outcome.mean("after", "gem/return"))


def test_a_figure_has_at_most_four_panels_in_a_row():
    figure, axes = new_figure(6)
    places = [axis.get_subplotspec() for axis in axes]
    assert [place.rowspan.start for place in places] == [0, 0, 0, 0, 1, 1]
    assert [place.colspan.start for place in places] == [0, 1, 2, 3, 0, 1]
    width, height = figure.get_size_inches()
    assert width / height == pytest.approx(2 * 4.6 / 3.6)

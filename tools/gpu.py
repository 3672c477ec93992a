"""The stages of the measurements on a GPU, for machines that run commands of at most ten minutes.

    python tools/gpu.py A            # CUDA against the CPU: advantages and gradients
    python tools/gpu.py B            # a study; repeat the command until it is complete
    python tools/gpu.py B --toy --device cpu

Runs are in ``runs/gpu``. Each call continues from ``runs/gpu/state.tar.gz``, if it exists, and writes this
file again at its end, and to ``$OUT`` if the variable is set. The file contains the finished records and,
newest first, the unfinished runs and the models, each whole or not at all, at most 60 MiB before compression.
On a machine without the repository's history, ``STUDY_COMMIT`` names the commit for the records. With
``--toy``, the runs are in separate folders, so that no other run continues them.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import subprocess
import sys
import tarfile
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from gem_core.rollout import Episode

ROOT = Path(__file__).resolve().parents[1]
STATE = ROOT / "runs" / "gpu"
LIMIT = 60 * 2**20
"""Maximum number of bytes in the file, before compression."""

STUDIES = {
    "B": ("rebn", "algorithms", "discount"),
    "C": ("environments",),
    "D": ("scaling",),
    "E": ("critics",),
    "F": ("long",),
}
STAGES = {
    "A": "advantages in fp32 and bf16, and gradients, against the CPU",
    "B": "an ablation of ReBN, five algorithms, and discounts",
    "C": "24 environments",
    "D": "models from 0.1 to 150 million parameters",
    "E": "critics",
    "F": "more than 100 turns",
    "G": "the consistency tests of the trainers that are installed",
    "H": "SmolLM2-135M",
}

_NO_TESTS = 5
"""Exit code of pytest if it finds no tests."""


def main(argv: list[str] | None = None) -> int:
    """Continue from the packed state, run the stage, and pack the state again."""
    stages = "; ".join(f"{stage}: {text}" for stage, text in STAGES.items())
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0], epilog=stages)
    parser.add_argument("stage", choices=sorted(STAGES))
    parser.add_argument("--minutes", type=float, default=8.0, help="start no run after this time")
    parser.add_argument("--jobs", type=int, default=16, help="runs at a time; 0 for this process only")
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--toy", action="store_true", help="a small size, to check that the command runs")
    parser.add_argument("--state", type=Path, default=STATE, help="folder of the runs")
    arguments = parser.parse_args(argv)
    sys.path.insert(0, str(ROOT / "benchmarks"))
    unpack(arguments.state)
    try:
        return run(arguments)
    finally:
        pack(arguments.state)


def run(arguments: argparse.Namespace) -> int:
    """Execute or continue a stage; return 0 if nothing failed."""
    stage, state = arguments.stage, arguments.state
    if stage in STUDIES:
        return run_studies(STUDIES[stage], arguments)
    if stage == "A":
        result = compare_with_cpu(arguments.device)
        (state / "A.json").write_text(json.dumps(result, indent=2) + "\n", encoding="utf-8")
        sys.stdout.write(json.dumps(result, indent=2) + "\n")
        return 0 if result["passed"] else 1
    if stage == "H":
        import language_model

        folder = runs_folder("language_model", arguments)
        options = ["--out", str(folder), "--results", str(folder / "results"), "--device", arguments.device]
        if arguments.toy:
            options += ["--toy", "--model", str(toy_model(state)), "--envs", "guess"]
        language_model.main(options)
        return 0
    command = [sys.executable, "-m", "pytest", "tests/trainers", "-m", "not full", "-k", "consistency"]
    code = subprocess.call([*command, *(["--collect-only", "-q"] if arguments.toy else [])], cwd=ROOT)
    if code == _NO_TESTS:
        sys.stdout.write("No trainer is installed, so no test ran.\n")
    return code


def runs_folder(name: str, arguments: argparse.Namespace) -> Path:
    """Return the folder of the runs of a part of a stage."""
    state: Path = arguments.state
    return state / (f"toy-{name}" if arguments.toy else name)


def run_studies(names: tuple[str, ...], arguments: argparse.Namespace) -> int:
    """Run the studies of a stage until the time is up."""
    import study

    deadline = time.monotonic() + 60 * arguments.minutes
    for name in names:
        left = (deadline - time.monotonic()) / 60
        folder = runs_folder(name, arguments)
        options = [
            name,
            "--folder",
            str(folder),
            "--out",
            str(folder / "results"),
            "--device",
            arguments.device,
        ]
        options += ["--jobs", str(arguments.jobs), "--minutes", str(max(0.0, left))]
        study.main([*options, *(["--toy"] if arguments.toy else [])])
    return 0


def compare_with_cpu(device: str) -> dict[str, Any]:
    """Compare advantages and the gradient of a tiny model on a device with those on the CPU."""
    import torch

    from gem_core.advantages import rebn
    from gem_lab.train import TinyOptions, make_tiny
    from gem_lab.train._batches import policy_gradient

    result: dict[str, Any] = {"device": device, "torch": torch.__version__, "advantages": {}}
    generator = torch.Generator().manual_seed(0)
    rewards = torch.randn(64, 96, generator=generator)
    mask = (torch.rand(64, 96, generator=generator) < 0.7).float()
    for dtype in (torch.float32, torch.bfloat16):
        # Rewards are rounded to the dtype on both sides, so that only the computation differs.
        rounded = rewards.to(dtype)
        wanted = rebn.tensors(rounded.double(), mask, gamma=0.9).advantages
        computed = rebn.tensors(rounded.to(device), mask.to(device), gamma=0.9).advantages
        result["advantages"][str(dtype)] = float((computed.cpu().double() - wanted).abs().max())

    env_id = "game:GuessTheNumber-v0-easy"
    model, tokenizer = make_tiny(TinyOptions(env=(env_id,), warm_start_steps=0, corpus_episodes=20))
    episodes = _episodes(env_id, tokenizer)
    values = rebn([episode.rewards for episode in episodes], gamma=0.9)
    for episode, turn_values in zip(episodes, values, strict=True):
        for turn, value in zip(episode.turns, turn_values, strict=True):
            turn.advantage = float(value)
    on_cpu = policy_gradient(model, episodes)
    on_device = policy_gradient(model.to(device), episodes)
    norm = sum(float(gradient.square().sum()) for gradient in on_cpu.values()) ** 0.5
    gap = sum(float((on_cpu[name] - on_device[name].cpu()).square().sum()) for name in on_cpu) ** 0.5
    result["gradient"] = gap / norm
    result["passed"] = max(result["advantages"].values()) < 1e-4 and result["gradient"] < 1e-3
    return result


def _episodes(env_id: str, tokenizer: Any) -> list[Episode]:
    """Return episodes of random legal play."""
    import asyncio

    from gem_core.tasks import EnvChoice
    from gem_lab.train._tiny import random_play

    with EnvChoice.parse(env_id).make() as env:
        return asyncio.run(random_play(env, tokenizer, "0", episodes=16))


def toy_model(state: Path) -> Path:
    """Return the folder of a tiny model without a warm start."""
    from gem_lab.train import TinyOptions, save_tiny

    folder = state / "toy-model"
    if not folder.exists():
        save_tiny(folder, TinyOptions(warm_start_steps=0, layers=1, corpus_episodes=10))
    return folder


def unpack(state: Path) -> None:
    """Continue from the packed state, where files are missing."""
    state.mkdir(parents=True, exist_ok=True)
    packed = state / "state.tar.gz"
    if packed.exists():
        with tarfile.open(packed) as archive:
            for member in archive.getmembers():
                if not (state / member.name).exists():
                    archive.extract(member, state, filter="data")


def pack(state: Path) -> None:
    """Pack the state: first the records, then the newest models and unfinished runs, up to the limit."""
    temporary = state / ".state.tar.gz"
    parts: dict[Path, list[Path]] = {}
    for path in state.rglob("*"):
        if path.is_file() and path.name not in (temporary.name, "state.tar.gz"):
            # The files of a folder such as rebn/models/guess-0 are useless without each other.
            parts.setdefault(Path(*path.relative_to(state).parts[:3]), []).append(path)
    newest = {part: max(path.stat().st_mtime for path in files) for part, files in parts.items()}
    size = 0
    with tarfile.open(temporary, "w:gz") as archive:
        for part in sorted(parts, key=lambda part: ("records" not in part.parts, -newest[part])):
            size_of_part = sum(path.stat().st_size for path in parts[part])
            if size + size_of_part <= LIMIT:
                size += size_of_part
                for path in parts[part]:
                    archive.add(path, path.relative_to(state))
    temporary.replace(state / "state.tar.gz")
    if out := os.environ.get("OUT"):
        shutil.copy(state / "state.tar.gz", out)


if __name__ == "__main__":
    sys.exit(main())

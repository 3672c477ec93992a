"""Checkpoints that are written atomically and resume a run exactly.

A checkpoint ``checkpoints/step-000050`` is a Hugging Face folder (model and tokenizer) that also contains
the trainer's ``trainer_state.pt``: optimizer, critic, random states, and the metrics so far. An agent with
separate weights has its own Hugging Face folder inside, ``agents/<name>``. A checkpoint is written under a
temporary name, and renamed when it is complete and on disk.
"""

from __future__ import annotations

import contextlib
import json
import re
import shutil
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import IO, Any, cast

import torch

from gem_chat._vision import is_processor, tokenizer_of
from gem_core.errors import CheckpointError
from gem_lab.train._output import RememberingFile, reason, replace_folder

STATE_NAME = "trainer_state.pt"
FORMAT = 1
"""Version of the content of ``trainer_state.pt``."""
_PARTS = {
    "config": dict, "learners": dict, "torch_rng": torch.Tensor, "history": list, "before": dict, "step": int,
}  # fmt: skip
_NAME = re.compile(r"step-(\d{6,})")


def agent_folder(checkpoint: Path, agent: str) -> Path:
    """Return the folder of an agent's model; the shared model, named "", is in `checkpoint` itself."""
    return checkpoint / "agents" / agent if agent else checkpoint


def save_checkpoint(
    run: Path, step: int, models: Mapping[str, tuple[Any, Any]], state: dict[str, Any], keep: int
) -> Path:
    """Write ``checkpoints/step-<step>`` of a run, then delete all but the newest `keep` checkpoints.

    Args:
        run: Folder of the run.
        step: Number of the step.
        models: Maps an agent, as in `agent_folder`, to its model and processor.
        state: Everything else to restore, as plain data and tensors.
        keep: Number of checkpoints to keep.

    Raises:
        CheckpointError: The checkpoint cannot be written; earlier checkpoints are unchanged.
    """
    target = run / "checkpoints" / f"step-{step:06d}"
    with replace_folder(target) as folder:
        for agent, (model, processor) in models.items():
            model.save_pretrained(agent_folder(folder, agent))
            save_processor(processor, agent_folder(folder, agent))
        with contextlib.closing(RememberingFile(folder / STATE_NAME)) as file:
            torch.save({**state, "step": step, "format": FORMAT}, cast("IO[bytes]", file))
    for old in list_checkpoints(run)[:-keep]:
        shutil.rmtree(old, ignore_errors=True)
    return target


def save_processor(processor: Any, folder: Path) -> None:
    """Save a tokenizer, or the parts of a processor, in a form that transformers 4 and 5 both load.

    Version 5 writes a class name that version 4 lacks, and a list under a key where version 4 expects a dict.
    """
    if is_processor(processor):
        processor.image_processor.save_pretrained(folder)
    tokenizer_of(processor).save_pretrained(folder)
    path = folder / "tokenizer_config.json"
    config = json.loads(path.read_text(encoding="utf-8"))
    if config.get("tokenizer_class") == "TokenizersBackend":
        config["tokenizer_class"] = "PreTrainedTokenizerFast"
    if isinstance(config.get("extra_special_tokens"), list):
        config["additional_special_tokens"] = config.pop("extra_special_tokens")
    path.write_text(json.dumps(config, indent=2, sort_keys=True) + "\n", encoding="utf-8")


def remove_unfinished(run: Path) -> None:
    """Remove the incomplete folders of a killed run; the caller must hold the lock on the run's folder."""
    for path in [*run.glob(".tiny.*"), *(run / "checkpoints").glob(".step-*")]:
        if path.is_dir():
            shutil.rmtree(path, ignore_errors=True)


def drop_checkpoints(run: Path) -> None:
    """Remove the checkpoints of a run.

    Raises:
        CheckpointError: A checkpoint cannot be removed.
    """
    for checkpoint in list_checkpoints(run):
        try:
            shutil.rmtree(checkpoint)
        except OSError as error:
            raise CheckpointError(f"cannot remove {checkpoint}: {reason(error)}") from error


def list_checkpoints(run: Path) -> list[Path]:
    """Return the complete checkpoints of a run, oldest first."""
    folder = run / "checkpoints"
    if not folder.is_dir():
        return []
    paths = [path for path in folder.iterdir() if _NAME.fullmatch(path.name) and (path / STATE_NAME).exists()]
    return sorted(paths, key=lambda path: int(path.name.removeprefix("step-")))


def load_state(checkpoint: Path) -> dict[str, Any]:
    """Return the trainer's state in a checkpoint.

    Raises:
        CheckpointError: The state cannot be read, or has another format.
    """
    path = checkpoint / STATE_NAME
    with state_errors_named(checkpoint):
        state = torch.load(path, map_location="cpu", weights_only=True)
    if not isinstance(state, dict) or "format" not in state:
        raise CheckpointError(f"cannot read {path}: it holds no state of a training run")
    if state["format"] != FORMAT:
        raise CheckpointError(
            f"{path} has the format {state['format']!r}, and this version of gem-core reads format {FORMAT}; "
            "continue with the version that wrote it, or use another folder or --no-resume"
        )
    if lacks := [name for name, kind in _PARTS.items() if not isinstance(state.get(name), kind)]:
        raise CheckpointError(f"{path} is damaged: it lacks {', '.join(lacks)}")
    return state


@contextlib.contextmanager
def state_errors_named(checkpoint: Path) -> Iterator[None]:
    """Report each error in the ``with`` block, which reads the trainer's state, as one of its file.

    Raises:
        CheckpointError: An error of any type, because torch lets every error of its unpickler through.
    """
    try:
        yield
    except Exception as error:
        raise CheckpointError(f"cannot read {checkpoint / STATE_NAME}: {reason(error)}") from error

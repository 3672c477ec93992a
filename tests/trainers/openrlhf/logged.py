"""Reads OpenRLHF's metrics from its TensorBoard files."""

from __future__ import annotations

from collections import defaultdict

from tests.trainers.processes import Run


def metrics_of(run: Run, kind: str = "train") -> list[dict[str, float]]:
    """Return the metrics of each training step, or of each evaluation for "eval"."""
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    events = EventAccumulator(str(run.folder / "tensorboard" / "run"), size_guidance={"scalars": 0})
    events.Reload()
    steps: defaultdict[int, dict[str, float]] = defaultdict(dict)
    for tag in events.Tags()["scalars"]:
        if tag.startswith(f"{kind}/"):
            for event in events.Scalars(tag):
                steps[event.step][tag.removeprefix(f"{kind}/")] = event.value
    return [steps[step] for step in sorted(steps)]

"""Frozen contracts of source trees that cannot be installed from the package index.

    python -m tests.trainers.contract roll /path/to/ROLL "commit 8eb27cc2"

A contract lists what a plugin relies on: for each function its parameters and a hash of its syntax tree
without docstrings and annotations, for each class its fields. With it, `import_fakes` provides the trainer's
modules where there is no checkout, and `drift` tells what has changed in another checkout.
"""

from __future__ import annotations

import argparse
import ast
import hashlib
import json
import sys
import types
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from importlib.machinery import ModuleSpec
from pathlib import Path
from typing import Any

FOLDER = Path(__file__).resolve().parent
_MANAGERS = "roll/pipeline/agentic/env_manager"
PARTS: dict[str, dict[str, tuple[str, ...]]] = {
    "roll": {
        "roll/distributed/scheduler/protocol.py": (
            "DataProto.concat",
            "DataProto.select_idxs",
            "DataProto.__delitem__",
        ),
        "roll/distributed/scheduler/rollout_scheduler.py": (
            "GroupQueue.put",
            "GroupQueueManager.get_episode_id",
            "GroupQueueManager.put",
            "RolloutScheduler._get_batch",
        ),
        "roll/configs/base_config.py": ("PPOConfig.set_old_logprobs_status", "PPOConfig.set_max_steps"),
        "roll/pipeline/base_pipeline.py": ("BasePipeline.do_checkpoint",),
        "roll/pipeline/base_worker.py": ("ActorWorker.get_old_log_probs_with_cache",),
        "roll/pipeline/agentic/agentic_config.py": ("EnvManagerConfig", "AgenticConfig.make_env_configs"),
        "roll/pipeline/agentic/agentic_pipeline.py": (
            "AgenticPipeline.__init__",
            "AgenticPipeline.adjust_batch",
            "AgenticPipeline.run",
            "GroupFilter.filter",
            "compute_train_data_metrics",
        ),
        "roll/pipeline/agentic/llm_proxy/base_llm_proxy.py": ("BaseLLMProxy.generate",),
        f"{_MANAGERS}/base_env_manager.py": ("BaseEnvManager.update_step",),
        f"{_MANAGERS}/step_env_manager.py": ("StepEnvManager.formulate_rollouts",),
        f"{_MANAGERS}/traj_env_manager.py": (
            "TrajEnvManager.__init__",
            "TrajEnvManager.run_rollout_loop",
            "TrajEnvManager.formulate_rollouts",
        ),
        "roll/utils/functionals.py": ("pad_to_length",),
        "roll/utils/hash_utils.py": ("compute_object_hash",),
        "roll/utils/import_utils.py": ("safe_import_class",),
        "roll/utils/telemetry.py": ("attach_trace_context", "get_tracer"),
    },
    "rl2": {
        "RL2/datasets/rl.py": (
            "Sample",
            "SampleGroup.generate",
            "SampleGroup.to_all_tensor_dicts_and_metrics",
        ),
        "RL2/trainer/ppo.py": ("PPOTrainer.train", "main"),
        "RL2/utils/algorithms.py": ("compute_advantages", "_compute_reinforce_adv"),
        "RL2/utils/communication.py": ("async_request",),
        "RL2/utils/logging.py": ("gather_and_log", "rank0_log"),
        "RL2/utils/sequences.py": ("_tensor_dict_to_minibatches", "scatter_data"),
        "RL2/workers/rollout.py": ("Rollout.__call__",),
    },
}
"""The parts of each trainer that its plugin overrides, calls, or whose behavior it assumes."""

Contract = dict[str, dict[str, Any]]
"""Maps ``path:qualified name`` to "parameters" and "hash" of a function, or "fields" of a class."""


def read_contract(trainer: str, checkout: Path) -> Contract:
    """Return the contract of a checkout, from its source text alone.

    Raises:
        LookupError: A part is missing; the message names it.
    """
    contract: Contract = {}
    for path, names in PARTS[trainer].items():
        file = checkout / path
        if not file.is_file():
            raise LookupError(f"{checkout} has no {path}")
        tree = ast.parse(file.read_text(encoding="utf-8"))
        for name in names:
            contract[f"{path}:{name}"] = _describe(_find(tree, name, path))
    return contract


def frozen(trainer: str) -> Contract:
    """Return the contract that is part of the tests."""
    saved: dict[str, Any] = json.loads((FOLDER / trainer / "contract.json").read_text(encoding="utf-8"))
    return dict(saved["parts"])


def drift(trainer: str, checkout: Path) -> list[str]:
    """Return one line for each part of a checkout that differs from the frozen contract."""
    lines = []
    try:
        found = read_contract(trainer, checkout)
    except LookupError as error:
        return [str(error)]
    for name, before in frozen(trainer).items():
        after = found[name]
        (key,) = before.keys() - {"hash"}
        if before[key] != after.get(key):
            lines.append(f"{name}: {key} {before[key]} became {after.get(key)}")
        elif before != after:
            lines.append(f"{name}: the code changed")
    return lines


def _find(tree: ast.Module, name: str, path: str) -> Any:
    node: Any = tree
    for part in name.split("."):
        kinds = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)
        matches = [item for item in node.body if isinstance(item, kinds) and item.name == part]
        if not matches:
            raise LookupError(f"{path} has no {name}")
        node = matches[-1]
    return node


def _describe(node: Any) -> dict[str, Any]:
    if isinstance(node, ast.ClassDef):
        return {"fields": [item.target.id for item in node.body if isinstance(item, ast.AnnAssign)]}  # type: ignore[union-attr]
    arguments = node.args
    names = [item.arg for item in (*arguments.posonlyargs, *arguments.args)]
    names += [f"*{arguments.vararg.arg}"] if arguments.vararg else []
    names += [item.arg for item in arguments.kwonlyargs]
    names += [f"**{arguments.kwarg.arg}"] if arguments.kwarg else []
    return {"parameters": names, "hash": hashlib.sha256(_code(node).encode()).hexdigest()[:16]}


def _code(node: Any) -> str:
    """Return the syntax tree of a function without annotations, docstrings, and positions."""
    tree = ast.parse(ast.unparse(node))
    for item in ast.walk(tree):
        if isinstance(item, ast.arg):
            item.annotation = None
        if isinstance(item, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            body = item.body
            if isinstance(body[0], ast.Expr) and isinstance(body[0].value, ast.Constant) and len(body) > 1:
                del body[0]
    return ast.dump(tree)


def fake_modules(contract: Contract) -> dict[str, Any]:
    """Return modules with the functions and classes of a contract; the functions do nothing."""
    modules: dict[str, Any] = {}
    for key, part in contract.items():
        path, name = key.split(":")
        owner: Any = _module(path.removesuffix(".py").replace("/", "."), modules)
        *classes, last = name.split(".")
        for cls in classes:
            if not hasattr(owner, cls):
                setattr(owner, cls, type(cls, (), {"__module__": owner.__name__}))
            owner = getattr(owner, cls)
        if "fields" in part:
            if not hasattr(owner, last):
                setattr(owner, last, type(last, (), {}))
            continue
        scope: dict[str, Any] = {}
        exec(f"def {last}({', '.join(part['parameters'])}): pass", scope)
        setattr(owner, last, scope[last])
    return modules


def _module(name: str, modules: dict[str, Any]) -> Any:
    if name not in modules:
        module: Any = types.ModuleType(name)
        modules[name] = module
        module.__path__ = []
        module.__spec__ = ModuleSpec(name, None, is_package=True)
        parent, _, last = name.rpartition(".")
        if parent:
            setattr(_module(parent, modules), last, module)
    return modules[name]


@contextmanager
def import_fakes(fakes: Mapping[str, types.ModuleType], *plugins: str) -> Iterator[None]:
    """Let imports find the fakes inside a block, and reimport the plugins in it."""

    def concerned(name: str) -> bool:
        return name.partition(".")[0] in {*plugins, *(fake.partition(".")[0] for fake in fakes)}

    before = {name: module for name, module in sys.modules.items() if concerned(name)}
    for name in before:
        del sys.modules[name]
    sys.modules.update(fakes)
    try:
        yield
    finally:
        for name in [name for name in sys.modules if concerned(name)]:
            del sys.modules[name]
        sys.modules.update(before)


def main() -> None:
    """Write the contract of a checkout."""
    parser = argparse.ArgumentParser(description=main.__doc__)
    parser.add_argument("trainer", choices=sorted(PARTS))
    parser.add_argument("checkout", type=Path)
    parser.add_argument("source", help="what the checkout is, such as its commit")
    args = parser.parse_args()
    parts = read_contract(args.trainer, args.checkout)
    path = FOLDER / args.trainer / "contract.json"
    path.write_text(json.dumps({"source": args.source, "parts": parts}, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()

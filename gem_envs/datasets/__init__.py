"""Datasets as single-turn environments, and the table of their ids."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from gem_core import register
from gem_core._util.lazy import lazy_names

if TYPE_CHECKING:
    from gem_envs.datasets._base import DatasetEnv
    from gem_envs.datasets._code import CodeEnv
    from gem_envs.datasets._math import MathEnv
    from gem_envs.datasets._qa import QaEnv

__all__ = [
    "CodeEnv",
    "DatasetEnv",
    "MathEnv",
    "QaEnv",
]

_MATH = "gem_envs.datasets._math:MathEnv"
_QA = "gem_envs.datasets._qa:QaEnv"
_CODE = "gem_envs.datasets._code:CodeEnv"
_PROBLEM = {"question_key": "problem", "answer_key": "answer"}
_QUESTION = {"question_key": "question", "answer_key": "answer"}
_TESTS = {"question_key": "problem", "test_key": "tests"}

# id, entry point, dataset on the hub, split (None: its only one), arguments, extra
_TABLE: tuple[tuple[str, str, str, str | None, dict[str, Any], str], ...] = (
    ("math:ASDiv2K", _MATH, "axon-rl/ASDIV-2k", None, _PROBLEM, "math"),
    ("math:GSM8K", _MATH, "axon-rl/GSM-8k", None, _PROBLEM, "math"),
    ("math:Math12K", _MATH, "axon-rl/MATH-12k", None, _PROBLEM, "math"),
    ("math:Math8K-3to5", _MATH, "axon-rl/MATH-lvl3to5-8k", None, _PROBLEM, "math"),
    ("math:Orz57K", _MATH, "axon-rl/ORZ-57k", None, _PROBLEM, "math"),
    ("math:DeepScaleR40K", _MATH, "axon-rl/DeepScaleR-40K", None, _PROBLEM, "math"),
    ("math:Geometry3K", _MATH, "axon-rl/geometry3k", "train", {**_PROBLEM, "image_key": "images"}, "math"),
    ("code:CodeContest", _CODE, "axon-rl/CodeContest", "train", _TESTS, "code"),
    ("code:Taco8k", _CODE, "axon-rl/TACO-8k", "train", _TESTS, "code"),
    ("code:PrimeIntellect15k", _CODE, "axon-rl/PrimeIntellect-15k", "train", _TESTS, "code"),
    *(
        (f"logic:RuleTaker-d{depth}", _QA, f"axon-rl/RuleTaker-d{depth}-70k", "train",
         {**_QUESTION, "extract_boxed": True}, "qa")
        for depth in (0, 1, 2, 3, 5)
    ),
    ("qa:NaturalQuestions", _QA, "axon-rl/NaturalQuestions", "train", _PROBLEM, "qa"),
    ("qa:HotpotQA", _QA, "axon-rl/HotpotQA", "train", _PROBLEM, "qa"),
    ("eval:MATH500", _MATH, "axon-rl/math-eval", "math", _PROBLEM, "math"),
    ("eval:AMC", _MATH, "axon-rl/math-eval", "amc", _PROBLEM, "math"),
    ("eval:OlympiadBench", _MATH, "axon-rl/math-eval", "olympiad_bench", _PROBLEM, "math"),
    ("eval:Minerva", _MATH, "axon-rl/math-eval", "minerva", _PROBLEM, "math"),
    ("eval:AIME24", _MATH, "axon-rl/math-eval", "aime24", _PROBLEM, "math"),
    ("eval:CodeContest", _CODE, "axon-rl/CodeContest", "test", _TESTS, "code"),
    ("eval:QaOpen", _QA, "google-research-datasets/nq_open", "validation", _QUESTION, "qa"),
    *(
        (f"eval:{name}", _QA, "axon-rl/search-eval", split, _QUESTION, "qa")
        for name, split in (
            ("2Wiki", "2wiki"), ("PopQA", "popqa"), ("TriviaQA", "tq"), ("HotpotQA", "hotpotqa"),
            ("Bamboogle", "bamboogle"), ("NaturalQuestions", "nq"), ("Musique", "musique"),
        )
    ),
)  # fmt: skip


_HAVE_TEST_SPLIT = ("code:CodeContest",)
"""Ids whose dataset has an evaluation split, so that all of their items are for training."""


def _register_datasets() -> None:
    """Register the ids of all datasets."""
    for id, entry_point, name, split, kwargs, extra in _TABLE:
        part = f", split {split}" if split else ""
        eval_kwargs = {}
        if id in _HAVE_TEST_SPLIT:
            kwargs, eval_kwargs = {**kwargs, "eval_only": False}, {"split": "test", "eval": True}
        elif id.startswith("eval:"):
            kwargs = {**kwargs, "eval_only": True}
        register(
            id,
            entry_point,
            description=f"{name} on the Hugging Face Hub{part}",
            extra=extra,
            eval_kwargs=eval_kwargs,
            dataset_name=name,
            split=split,
            **kwargs,
        )


__getattr__, __dir__ = lazy_names(
    __name__,
    {
        "gem_envs.datasets._base": ["DatasetEnv"],
        "gem_envs.datasets._code": ["CodeEnv"],
        "gem_envs.datasets._math": ["MathEnv"],
        "gem_envs.datasets._qa": ["QaEnv"],
    },
)

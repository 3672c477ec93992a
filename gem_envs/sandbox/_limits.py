"""Resource limits of a sandboxed program."""

from __future__ import annotations

import math
from dataclasses import dataclass

from gem_core._util.checks import check_int, check_number


@dataclass(frozen=True)
class ProgramLimits:
    """Resources that one program may use.

    Attributes:
        wall_seconds: Wall-clock time, in seconds.
        cpu_seconds: CPU time of each process in seconds, rounded up to whole seconds.
        memory_bytes: Address space of each process, in bytes.
        file_bytes: Size of each written file in bytes, including stdout and stderr.
        processes: Number of processes and threads, counted over all programs of the same user.
        open_files: Number of open file descriptors of each process.
        output_bytes: Number of bytes of stdout, and of stderr, that are returned.

    Raises:
        ConfigError: A value is not a finite number above 0.
    """

    wall_seconds: float = 5.0
    cpu_seconds: float = 5.0
    memory_bytes: int = 512 * 2**20
    file_bytes: int = 16 * 2**20
    processes: int = 1024
    open_files: int = 64
    output_bytes: int = 2**20

    def __post_init__(self) -> None:
        for name, value in vars(self).items():
            if name.endswith("_seconds"):
                check_number(name, value, above=0)
            else:
                check_int(name, value, 1)

    def kernel_limits(self) -> tuple[int, int, int, int, int]:
        """Return CPU seconds, memory, file size, processes, and open files, as `guest` expects them."""
        cpu_seconds = max(1, math.ceil(self.cpu_seconds))
        return cpu_seconds, self.memory_bytes, self.file_bytes, self.processes, self.open_files


ONE_THREAD = dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"), "1")
"""Environment variables that keep numpy within the limits of memory and processes."""
ISOLATED = ProgramLimits(processes=32)
"""Defaults for levels where a program sees only its own processes, so that the process limit can be low."""

"""Launcher of a program at level `process`: sets the limits, then runs the program in the same interpreter.

Runs as ``python -I -S launch.py LIMITS FILE PIPE``. Before anything else, it sends its process id to the
pipe, so that the program ends with the caller; see `gem_core._util.orphans`. The child sets its own limits
because code between fork and exec (``preexec_fn``) can deadlock in a parent that has threads. They are hard
limits of the kernel, which only root can raise again.
"""

import builtins
import os
import resource
import sys
import types


def limit(kind: int, soft: int, hard: "int | None" = None) -> None:
    """Set a limit, or keep the caller's if that is lower."""
    current = resource.getrlimit(kind)[1]
    hard = soft if hard is None else hard
    hard = hard if current == resource.RLIM_INFINITY else min(hard, current)
    resource.setrlimit(kind, (min(soft, hard), hard))


def show(kind: "type[BaseException]", error: BaseException, trace: "types.TracebackType | None") -> None:
    """Print the traceback as Python does, without the frames of this file."""
    import traceback  # imported here because few programs fail

    while trace and trace.tb_frame.f_code.co_filename == __file__:
        trace = trace.tb_next
    traceback.print_exception(kind, error, trace)


def main() -> None:
    """Set the limits and run the program as ``__main__``."""
    pipe = int(sys.argv[3])
    try:
        os.write(pipe, os.getpid().to_bytes(4, "little") + bytes(4))
    except BrokenPipeError:  # somebody killed the watcher; the caller starts another one
        pass
    os.close(pipe)
    cpu_seconds, memory_bytes, file_bytes, processes, open_files = map(int, sys.argv[1].split(","))
    limit(resource.RLIMIT_CORE, 0)
    limit(resource.RLIMIT_CPU, cpu_seconds, cpu_seconds + 1)
    limit(resource.RLIMIT_AS, memory_bytes)
    limit(resource.RLIMIT_FSIZE, file_bytes)
    limit(resource.RLIMIT_NPROC, processes)
    limit(resource.RLIMIT_NOFILE, open_files)
    path = sys.argv[2]
    sys.argv = [path]
    if hasattr(sys, "set_int_max_str_digits"):
        sys.set_int_max_str_digits(0)  # contest programs print long numbers; time is limited anyway
    with open(path, encoding="utf-8", errors="surrogateescape") as file:
        source = file.read()
    sys.excepthook = show
    builtins.exit = builtins.quit = sys.exit  # type: ignore[assignment]  # as module site, which may not be loaded, would
    exec(compile(source, path, "exec"), {"__name__": "__main__", "__file__": path})


main()

"""First code of a sandboxed interpreter: take the limits, then become the program.

Runs as ``python -I -S _child.py LIMITS FILE``. The limits are set here, by the child itself, because
code between fork and exec (``preexec_fn``) can deadlock in a parent that has threads. They are hard
limits of the kernel, which the program cannot raise again (unless it runs as root).
"""

import resource
import sys
import types


def limit(kind: int, soft: int, hard: "int | None" = None) -> None:
    """Set a limit, or leave the caller's where that is lower."""
    given = resource.getrlimit(kind)[1]
    wanted = soft if hard is None else hard
    hard = wanted if given == resource.RLIM_INFINITY else min(wanted, given)
    resource.setrlimit(kind, (min(soft, hard), hard))


def show(kind: "type[BaseException]", error: BaseException, trace: "types.TracebackType | None") -> None:
    """The traceback as Python prints it, without the lines of this file."""
    import traceback  # here: few programs fail

    while trace and trace.tb_frame.f_code.co_filename == __file__:
        trace = trace.tb_next
    traceback.print_exception(kind, error, trace)


def main() -> None:
    """Set the limits and run the program as ``__main__``."""
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
        sys.set_int_max_str_digits(0)  # programs of contests print long numbers; time is limited anyway
    with open(path, encoding="utf-8", errors="surrogateescape") as file:
        source = file.read()
    sys.excepthook = show
    exec(compile(source, path, "exec"), {"__name__": "__main__", "__file__": path})


main()

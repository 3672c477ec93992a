"""Run pytest in the sandbox of a player, and print a signed line for each test.

    python3 -I -c "$(cat run_pytest.py)" /tests /dev/null test_outputs.py 3<<< SIGN

This is the source of a program; the package does not import it. The sign is read from descriptor 3, so that
it is in no argument, file, or environment variable.
"""

import json
import os
import sys
from typing import Any


def run(folder: str, settings: str, files: list[str]) -> int:
    """Run the test files; return the exit status of pytest."""
    sign = os.read(3, 200).decode().strip()
    os.close(3)
    lines = os.dup(
        1
    )  # pytest replaces descriptor 1 during tests; programs that tests start do not get this one
    sys.path.append("/packages")
    for name in ("PYTEST_ADDOPTS", "PYTEST_PLUGINS"):
        os.environ.pop(name, None)
    import pytest

    def tell(*words: Any) -> None:
        os.write(lines, f"\n{sign} {json.dumps(words)}\n".encode())

    class Reporter:
        def pytest_runtest_logreport(self, report: Any) -> None:
            if report.when == "call" or not report.passed:
                expected = report.outcome == "skipped" and hasattr(report, "wasxfail")
                tell(report.nodeid, "xfailed" if expected else report.outcome)

    status = pytest.main(
        [
            *("-q", "--tb=no", "-p", "no:cacheprovider", "-c", settings),
            *(f"--rootdir={folder}", f"--confcutdir={folder}"),
            *(f"{folder}/{name}" for name in files),
        ],
        plugins=[Reporter()],
    )
    tell("status", int(status))
    return int(status)


if __name__ == "__main__":
    os._exit(run(sys.argv[1], sys.argv[2], sys.argv[3:]))  # functions of atexit are not called

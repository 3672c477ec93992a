"""The files of the standard streams in ``/dev`` and ``/proc/self/fd``, for a root folder without a ``/proc``.

They are links to files in the program's folder. Before a program that names one, its input is written to the
file; after it, what it wrote to a file is copied to the stream.
"""

from __future__ import annotations

import os

WORK = "/program"
"""Working folder of a program."""
DEVICE_FILES = {
    path: f"{WORK}/.{name}"
    for index, name in enumerate(("stdin", "stdout", "stderr"))
    for path in (f"/dev/{name}", f"/dev/fd/{index}", f"/proc/self/fd/{index}")
}


def open_devices(source: bytes) -> None:
    """Write the input to the file behind ``/dev/stdin`` if the program names a device."""
    if not _named(source):
        return
    with open(DEVICE_FILES["/dev/stdin"], "wb") as file, open(0, "rb", closefd=False) as standard_in:
        file.write(standard_in.read())
    os.lseek(0, 0, os.SEEK_SET)


def close_devices(source: bytes) -> None:
    """Copy what the program wrote to the files behind ``/dev/stdout`` and ``/dev/stderr`` to the streams."""
    if not _named(source):
        return
    for descriptor, name in ((1, "/dev/stdout"), (2, "/dev/stderr")):
        try:
            with open(DEVICE_FILES[name], "rb") as file, open(descriptor, "wb", closefd=False) as stream:
                stream.write(file.read())
        except OSError:
            continue  # nothing was written


def _named(source: bytes) -> bool:
    """Return whether a program may name a device, and the devices are links to these files."""
    return (b"/dev" in source or b"/proc" in source) and os.path.realpath("/dev/stdin") == DEVICE_FILES[
        "/dev/stdin"
    ]

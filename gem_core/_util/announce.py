"""Start of a process that ends with its caller: ``python -I -S announce.py PIPE GRACE COMMAND...``.

It sends its process id and the grace in milliseconds to the watcher, then becomes the command. See
`gem_core._util.orphans`.
"""

import contextlib
import os
import struct
import sys

pipe = int(sys.argv[1])
with contextlib.suppress(BrokenPipeError):  # somebody killed the watcher; the caller starts another one
    os.write(pipe, struct.pack("<iI", os.getpid(), int(sys.argv[2])))
os.close(pipe)
os.execv(sys.argv[3], sys.argv[3:])

"""The programs of the self-test. `suite.Target.fill` fills in each ``@NAME@``."""

from __future__ import annotations

from dataclasses import dataclass

from gem_envs.sandbox._selftest.kernel_attacks import KERNEL_ATTACKS


@dataclass(frozen=True)
class Attack:
    """One attack.

    Attributes:
        name: Name in reports.
        programs: Programs that run one after the other, each in its own process. The result of the last one
            is judged.
        evidence: How the result is judged; a key of `suite.EVIDENCE`.
        min_level: Weakest level that the attack may run at; "none" for harmless attacks.
        fetch: Files to fetch after the run.
    """

    name: str
    programs: tuple[str, ...]
    evidence: str
    min_level: str = "none"
    fetch: tuple[str, ...] = ()


_READ = """
with open("@SECRET@") as file:
    print(file.read())
"""

_READ_BELOW_PYTHON = """
import ctypes
libc = ctypes.CDLL(None)
descriptor = libc.open(b"@SECRET@", 0)
buffer = ctypes.create_string_buffer(200)
libc.read(descriptor, buffer, 199)
print(buffer.value.decode())
"""

_WRITE = """
with open("@MARKER@", "w") as file:
    file.write("here")
"""

_SYMLINK = """
import os
os.symlink("@SECRET@", "result.txt")
with open("result.txt") as file:
    print(file.read())
"""

_LINKED_FOLDER = """
import os
os.symlink("@FOLDER@", "out")
with open("out/marker.txt", "w") as file:
    file.write("here")
"""

_ARCHIVE = """
import io, tarfile
data = io.BytesIO()
with tarfile.open(fileobj=data, mode="w") as archive:
    for name in ("../" * 12 + "@MARKER@".lstrip("/"), "@MARKER@"):
        entry = tarfile.TarInfo(name)
        entry.size = 4
        archive.addfile(entry, io.BytesIO(b"here"))
data.seek(0)
with tarfile.open(fileobj=data) as archive:
    if hasattr(tarfile, "fully_trusted_filter"):
        archive.extraction_filter = tarfile.fully_trusted_filter
    archive.extractall(".")
"""

_CONNECT = """
import socket
with socket.create_connection(("127.0.0.1", @PORT@), timeout=1) as link:
    link.sendall(b"here")
"""

_ENVIRONMENT = """
import os
print(dict(os.environ))
try:
    with open("/proc/self/environ") as file:
        print(file.read())
except OSError as error:
    print(error)
"""

_DESCRIPTORS = """
import os
for number in range(3, 256):
    try:
        print(os.pread(number, 200, 0))
    except OSError:
        pass
"""

_PROC = """
import os
with open("/proc/@PID@/status") as file:
    text = file.read()
if "Name:" in text and os.path.exists("/proc/@PID@/cmdline"):
    print("GOT THROUGH")
"""

_SIGNAL = """
import os
os.kill(@PID@, 0)  # signal 0 only asks whether a signal would be allowed
if @PID@ != 1:
    print("GOT THROUGH")
"""

_STDIN = """
import os
status = os.fstat(0)
if (status.st_dev, status.st_ino) == @STDIN@:
    print("GOT THROUGH")
print(status.st_size, "bytes of its own")
"""

_LEAVE = """
import os, tempfile
for folder in (os.getcwd(), "/tmp", "/var/tmp", "/dev/shm"):
    try:
        with open(os.path.join(folder, "gem-core-left-@PID@"), "w") as file:
            file.write("GOT " + "THROUGH")
    except OSError as error:
        print(error)
"""

_FIND = """
import os
for folder in (os.getcwd(), "/tmp", "/var/tmp", "/dev/shm"):
    path = os.path.join(folder, "gem-core-left-@PID@")
    if os.path.exists(path):
        with open(path) as file:
            print(file.read())
        os.remove(path)
"""

_DAEMON = """
import os, sys, time
if os.fork() == 0:
    os.setsid()
    if os.fork() == 0:
        time.sleep(@LATE@)
        try:
            open("@MARKER@", "w").write("here")
        finally:
            os._exit(0)
    os._exit(0)
print("the program ends, its daemon does not")
"""

_TREE = """
import os, signal, time
for _ in range(3):
    if os.fork() == 0:
        os.setsid()
        for number in (signal.SIGTERM, signal.SIGHUP, signal.SIGINT):
            signal.signal(number, signal.SIG_IGN)
        end = time.time() + 2 + @LATE@
        while time.time() < end:
            time.sleep(0.05)
        try:
            open("@MARKER@", "w").write("here")
        finally:
            os._exit(0)
while True:
    time.sleep(1)
"""

_PTRACE = """
import ctypes
libc = ctypes.CDLL(None, use_errno=True)
libc.ptrace.argtypes = [ctypes.c_long, ctypes.c_long, ctypes.c_void_p, ctypes.c_void_p]
if libc.ptrace(0x4206, @PID@, None, None) == 0:  # PTRACE_SEIZE
    print("GOT THROUGH")
print("errno", ctypes.get_errno())
"""

_NAMESPACES = """
import ctypes
libc = ctypes.CDLL(None, use_errno=True)
for name, flag in {"user": 0x10000000, "mount": 0x00020000, "network": 0x40000000}.items():
    if libc.unshare(flag) == 0:
        print("GOT THROUGH", name)
if libc.mount(b"none", b"/", b"tmpfs", 0, None) == 0:
    print("GOT THROUGH", "mount")
print("errno", ctypes.get_errno())
"""

_ROOT = """
import os
for call in (os.setuid, os.setgid):
    try:
        call(0)
        print("GOT THROUGH")
    except OSError as error:
        print(error)
"""

_WRITE_SYSTEM = """
import os, sys
for folder in ("/", "/usr", "/etc", "/dev", os.path.dirname(os.__file__), os.path.dirname(sys.executable)):
    try:
        with open(os.path.join(folder, "gem-core-marker"), "w") as file:
            file.write("here")
        print("GOT THROUGH", folder)
    except OSError as error:
        print(error)
"""

_FORK_BOMB = """
import os, sys, time
made = 0
try:
    for _ in range(500):
        if os.fork() == 0:
            time.sleep(20)
            os._exit(0)
        made += 1
    print("GOT THROUGH")
except OSError as error:
    print(made, "processes, then", error)
"""

_MEMORY = """
blocks = []
try:
    for _ in range(64):
        blocks.append(b"x" * 2**25)
    print("GOT THROUGH")
except MemoryError:
    print(len(blocks) * 32, "MB, then a MemoryError")
"""

_SHARED_MEMORY = """
import ctypes, mmap, os
libc = ctypes.CDLL(None, use_errno=True)
held = 0
for _ in range(40):
    number = libc.shmget(0, ctypes.c_size_t(2**25), 0o1600)
    if number >= 0:
        held += 32
    try:
        descriptor = os.memfd_create("x")
        os.posix_fallocate(descriptor, 0, 2**20)
        held += 1
    except OSError:
        pass
if held > 300:
    print("GOT THROUGH")
print(held, "MB that no limit of a process counts")
"""

_DISK = """
import os
written = 0
try:
    for number in range(2000):
        with open(f"file{number}", "wb") as file:
            file.write(b"x" * 2**19)
        written += 1
    print("GOT THROUGH")
except OSError as error:
    print(written / 2, "MB, then", error)
"""

_BURN = "while True: pass"

_FLOOD = """
import sys
line = "x" * 1000 + "\\n"
for _ in range(10**9):
    sys.stdout.write(line)
"""

_ALARM = """
import signal, time
for number in range(1, 64):
    try:
        signal.signal(number, signal.SIG_IGN)
    except (OSError, ValueError):
        pass
time.sleep(8)
print("GOT THROUGH")
"""

_PYTHON_ONLY = """
for kind in ().__class__.__base__.__subclasses__():
    if kind.__name__ == "FileLoader":
        print(kind("x", "@SECRET@").get_data("@SECRET@").decode())
"""

ATTACKS: tuple[Attack, ...] = (
    Attack("read a file outside", (_READ,), "secret"),
    Attack("read it through libc", (_READ_BELOW_PYTHON,), "secret"),
    Attack("read it through Python's internals", (_PYTHON_ONLY,), "secret"),
    Attack("read it through a link that is fetched", (_SYMLINK,), "secret", fetch=("result.txt",)),
    Attack("write a file outside", (_WRITE,), "marker"),
    Attack("write through a linked folder", (_LINKED_FOLDER,), "marker"),
    Attack("write by unpacking an archive", (_ARCHIVE,), "marker"),
    Attack("leave a file for the next program", (_LEAVE, _FIND), "report"),
    Attack("connect to this machine", (_CONNECT,), "connection"),
    Attack("read environment variables", (_ENVIRONMENT,), "secret"),
    Attack("read inherited descriptors", (_DESCRIPTORS,), "secret"),
    Attack("read the caller's standard input", (_STDIN,), "report"),
    Attack("look into /proc of the caller", (_PROC,), "report"),
    Attack("signal the caller", (_SIGNAL,), "report"),
    Attack("a daemon that outlives the call", (_DAEMON,), "late marker"),
    Attack("children that outlive a timeout", (_TREE,), "late marker", "process"),
    Attack("ignore every signal", (_ALARM,), "survival", "process"),
    Attack("burn CPU", (_BURN,), "time", "process"),
    Attack("flood the output", (_FLOOD,), "output", "process"),
    Attack("exhaust the memory", (_MEMORY,), "report", "process"),
    Attack("trace another process", (_PTRACE,), "report", "namespace"),
    Attack("create namespaces, mount", (_NAMESPACES,), "report", "namespace"),
    Attack("become root", (_ROOT,), "report", "namespace"),
    Attack("write to the system's folders", (_WRITE_SYSTEM,), "report", "namespace"),
    Attack("fork bomb", (_FORK_BOMB,), "report", "namespace"),
    Attack("shared memory without a limit", (_SHARED_MEMORY,), "report", "namespace"),
    Attack("fill the disk", (_DISK,), "report", "namespace"),
    *(Attack(name, (program,), "report", "namespace") for name, program in KERNEL_ATTACKS.items()),
)

"""Attacks on kernel objects that no resource limit of a process counts.

Each program allocates a bounded amount: a few dozen MB, or 640 MB of shared memory, because a whole container
may use four times the memory of one process.
"""

from __future__ import annotations

_BEGIN = """
import ctypes, mmap, os, platform, socket
libc = ctypes.CDLL(None, use_errno=True)
libc.mmap.restype = ctypes.c_void_p
libc.mmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t] + [ctypes.c_int] * 3 + [ctypes.c_long]
libc.munmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t]
def call(x86_64, aarch64, *arguments):
    number = aarch64 if platform.machine() == "aarch64" else x86_64
    words = [ctypes.c_long(a) if isinstance(a, int) else a for a in arguments]
    return libc.syscall(ctypes.c_long(number), *words, *[ctypes.c_long(0)] * (6 - len(words)))
def through(what, held):
    print(("GOT THROUGH: " if held else "0 "), what, held, "errno", ctypes.get_errno())
"""

_SEMAPHORES = """
made = [call(64, 190, 0, 32000, 0o1600) for _ in range(20)]
through("semaphore sets of 2 MB", sum(number >= 0 for number in made))
"""

_MESSAGES = """
sent, message = 0, ctypes.create_string_buffer(b"1" * 8192)
for _ in range(500):
    queue = call(68, 186, 0, 0o1600)
    if queue >= 0:
        sent += libc.msgsnd(queue, message, ctypes.c_size_t(8000), 0o4000) == 0
through("messages of 8 kB", sent)
"""

_POSIX_QUEUES = """
made = [call(240, 180, b"q%d" % i, os.O_CREAT | os.O_RDWR, 0o600, None) for i in range(8)]
for number in range(8):
    try:
        made.append(os.open(f"/dev/mqueue/q{number}", os.O_CREAT | os.O_RDWR, 0o600))
    except OSError:
        pass
through("queues of 80 kB", sum(descriptor >= 0 for descriptor in made))
"""

_SOCKET_BUFFERS = """
sent = 0
pairs = [socket.socketpair() for _ in range(8)]
for pair in pairs:
    for one in pair:
        for kind in (socket.SO_SNDBUF, socket.SO_RCVBUF, 32, 33):  # and the same for administrators
            try:
                one.setsockopt(socket.SOL_SOCKET, kind, 2**22)
            except OSError:
                pass
        one.setblocking(False)
        try:
            while True:
                sent += one.send(bytes(2**16))
        except OSError:
            pass
through("MB in 8 pairs of sockets", sent >> 20 if sent > 8 * 2**20 else 0)
"""

_PIPES = """
import fcntl
grown = 0
for _ in range(8):
    ends = os.pipe()
    for high in (0, 1 << 32):  # the kernel reads the lower half of the command
        grown += call(72, 25, ends[0], 1031 | high, 2**20) == 2**20
through("pipes of 1 MB", grown)
"""

_KEPT_PAGES = """
sizes = []
data = mmap.mmap(-1, 2**16, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
data.write(b"x" * 2**16)
address = ctypes.addressof(ctypes.c_char.from_buffer(data))
read, write = os.pipe()
vector = (ctypes.c_ulong * 2)(address, 2**15)
sizes.append(call(278, 75, write, vector, 1, 0))  # vmsplice
with open("pages", "w+b") as file:
    file.write(b"x" * 2**16)
    file.flush()
    more, other = os.pipe()
    sizes.append(call(275, 76, file.fileno(), (ctypes.c_long * 1)(0), other, None, 2**15, 0))  # splice
    sizes.append(call(276, 77, more, write, 2**12, 0))  # tee
    one, two = socket.socketpair()
    sizes.append(call(40, 71, one.fileno(), file.fileno(), (ctypes.c_long * 1)(0), 2**12))  # sendfile
through("calls that keep pages", sum(size > 0 for size in sizes))
"""

_SHARED = """
held, step = 0, 2**26
for _ in range(10):
    @OPEN@
    start = libc.mmap(None, step, 3, flags, descriptor, 0)
    if start in (None, 2**64 - 1):
        break
    libc.memset(ctypes.c_void_p(start), 1, ctypes.c_size_t(step))
    libc.munmap(start + 4096, step - 4096)  # one page is left, and counted
    held += step >> 20
through("MB of shared memory", held if held > 560 else 0)
"""

_ANONYMOUS = _SHARED.replace("@OPEN@", "descriptor, flags = -1, 0x21")
_ZERO = _SHARED.replace("@OPEN@", "descriptor, flags = os.open('/dev/zero', os.O_RDWR), 1")

_EVENTS = """
made = [call(294, 26, 0), call(300, 262, 0x200, 0)]
if platform.machine() == "x86_64":
    made.append(call(253, 0))
through("queues of file events", sum(descriptor >= 0 for descriptor in made))
"""

_RULES = """
made = call(444, 444, (ctypes.c_ulong * 3)(1, 1, 0), 16, 0)
through("sets of access rules", int(made >= 0))
"""

_SIGNALS = """
import signal
signal.pthread_sigmask(signal.SIG_BLOCK, [40])
queued = 0
while queued < 5000 and libc.sigqueue(os.getpid(), 40, None) == 0:
    queued += 1
timers = 0
while timers < 5000 and call(222, 107, 1, None, (ctypes.c_long * 1)()) == 0:
    timers += 1
through("queued signals and timers", queued + timers if queued + timers > 2000 else 0)
"""

_HASH = """
through("bytes of a table for futexes", 2**22 if call(157, 167, 78, 1, 2**16, 0) == 0 else 0)
"""

_CONTEXTS = """
made = [call(206, 0, 64, (ctypes.c_ulong * 1)(0)) == 0]
made.append(call(425, 425, 8, ctypes.create_string_buffer(120)) >= 0)
through("contexts of asynchronous input", sum(made))
"""

_POLICIES = """
with open("policies", "w+b") as file:
    file.truncate(2**20)
    area = mmap.mmap(file.fileno(), 2**20)
    start = ctypes.addressof(ctypes.c_char.from_buffer(area))
    made = 0
    for offset in range(0, 2**20, 8192):
        made += call(237, 235, start + offset, 4096, 3, (ctypes.c_ulong * 1)(1), 64, 0) == 0
through("memory policies of a file", made)
"""

_HANDLES = """
made = [
    call(248, 217, b"user", b"gem-core", ctypes.create_string_buffer(20000), 20000, -3),  # add_key
    call(321, 280, 0, (ctypes.c_int * 30)(2, 4, 8, 1024, 0), 120),  # bpf: a map
    call(323, 282, 1),  # userfaultfd
    call(298, 241, ctypes.create_string_buffer(b"\\1\\0\\0\\0\\x70", 112), 0, -1, -1, 0),  # perf_event_open
    call(319, 279, b"x", 0), call(447, 447, 0),  # memfd_create, memfd_secret
    call(430, 430, b"tmpfs", 0), call(428, 428, -100, b"/", 1), call(467, 467, -100, b"/", 1),  # mounts
]
through("handles of kernel memory", sum(number >= 0 for number in made))
"""

_FAMILIES = """
made = 0
for family in (2, 10, 16, 17, 30, 38, 40):  # loads modules of protocols
    made += libc.socketpair(family, 1, 0, (ctypes.c_int * 2)()) == 0
    made += libc.socket(family, 1, 0) >= 0
through("sockets of other families", made)
"""

_DRIVER = """
own, opened = os.getpid(), 0
for name in os.listdir("/proc"):
    if name.isdigit() and int(name) != own:
        for entry in ("fd/0", "fd/1", "fd/2", "mem", "environ"):
            try:  # opened and not written: at a level that isolates nothing it is another program's
                os.close(os.open(f"/proc/{name}/{entry}", os.O_WRONLY if entry != "environ" else os.O_RDONLY))
                opened += 1
            except OSError:
                pass
through("streams of another process", opened)
"""

_DISKS = """
written = {}
for folder in (".", "/tmp", "/var/tmp", "/run", "/dev/shm", "/dev", "/sys/fs/cgroup"):
    blocks = []
    try:
        for number in range(160):
            blocks.append(f"{folder}/gem-core-block{number}")
            with open(blocks[-1], "wb") as file:
                file.write(bytes(2**20 - 1))
            written[folder] = number + 1
    except OSError:
        pass
    for path in blocks:
        try:
            os.remove(path)
        except OSError:
            pass
through("MB in a folder", max(written.values(), default=0) if max(written.values(), default=0) > 100 else 0)
"""

KERNEL_ATTACKS: dict[str, str] = {
    name: _BEGIN + program
    for name, program in {
        "System V semaphores": _SEMAPHORES,
        "System V message queues": _MESSAGES,
        "POSIX message queues": _POSIX_QUEUES,
        "large socket buffers": _SOCKET_BUFFERS,
        "large pipes": _PIPES,
        "pages kept by pipes and sockets": _KEPT_PAGES,
        "shared memory that was unmapped": _ANONYMOUS,
        "shared memory from /dev/zero": _ZERO,
        "queues of file events": _EVENTS,
        "access rules": _RULES,
        "queued signals and timers": _SIGNALS,
        "a table for futexes": _HASH,
        "asynchronous input": _CONTEXTS,
        "memory policies": _POLICIES,
        "keys, maps, and other handles": _HANDLES,
        "sockets of other families": _FAMILIES,
        "streams of the sandbox's own process": _DRIVER,
        "fill folders other than its own": _DISKS,
    }.items()
}
"""Programs by the name of the attack."""

"""Fork server of level `namespace`: an interpreter in its own namespaces that forks children in advance.

Runs as ``python -I -S server.py SOCKET CONFIG``, in three generations:

- The launcher creates the namespaces and waits for the server, in order to reap it.
- The server is process 1 of these namespaces. It builds the root folder, imports the allowed packages, and
  forks a child for each channel that it receives. It never sees a program, because programs arrive through
  the channel. When the caller disappears, its socket closes, the server ends, and the kernel ends the rest.
- A child has its own process, mount, and IPC namespaces, and is process 1 of these. When it ends, everything
  that it started ends. It runs one program, or the programs of one session.

The caller, the child, and the server each hold an end of a channel. The server kills the child when the
caller closes its end, and sends the exit code of a child that could not send its own.

With ``isolated: false``, the same three generations run at level `process`: they stay in the caller's
namespaces, and the child's process group ends with the child.
"""

from __future__ import annotations

import gc
import json
import os
import resource
import select
import signal
import socket
import sys
import types
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from gem_envs.sandbox._guest import kernel
    from gem_envs.sandbox._guest.child import STREAMS, Child
    from gem_envs.sandbox._guest.root import INSIDE_ID, build_root, drop_rights, enter, mount_work
else:
    sys.path.insert(0, os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
    from _guest import kernel
    from _guest.child import STREAMS, Child
    from _guest.root import INSIDE_ID, build_root, drop_rights, enter, mount_work

    del sys.path[0]


def main() -> None:
    control = socket.socket(fileno=int(sys.argv[1]))
    config = json.loads(sys.argv[2])
    try:
        launch(control, config)
    except Exception as error:
        control.send(json.dumps({"error": f"{type(error).__name__}: {error}"}).encode()[:4000])
        os._exit(1)


def launch(control: socket.socket, config: dict[str, Any]) -> None:
    ids = enter(control, config["isolated"])
    try:
        kernel.die_with_parent()
        own = os.open("/proc/self/ns/pid", os.O_RDONLY)
        if config["isolated"]:
            build_root(config)
        warm_up(config)
        kernel.no_new_privileges()
        Server(control, config, ids, own).serve()
    except Exception as error:
        control.send(json.dumps({"error": f"{type(error).__name__}: {error}"}).encode()[:4000])
    os._exit(1)


def warm_up(config: dict[str, Any]) -> None:
    """Import the modules that programs are likely to import, so that the children inherit them."""
    sys.path.extend(config["path"])
    for name in config["preload"]:
        try:
            __import__(name)
        except Exception:
            continue  # a program that imports it gets the error
    for name, source in config["modules"].items():
        module = sys.modules[name] = types.ModuleType(name)
        exec(compile(source, f"{name}.py", "exec"), module.__dict__)
        module.warm_up()
    compile("0", "", "exec")  # the first call creates all classes of the syntax tree
    sys.dont_write_bytecode = True
    sys.stdin, sys.stdout, sys.stderr = STREAMS
    gc.collect()
    gc.freeze()


class Server:
    def __init__(self, control: socket.socket, config: dict[str, Any], ids: int, own: int) -> None:
        self.control, self.config, self.ids, self.own = control, config, ids, own
        # descriptor of the process -> (process id, channel)
        self.children: dict[int, tuple[int, socket.socket]] = {}
        self.channels: dict[int, int] = {}  # descriptor of the channel -> process id
        self.poll = select.poll()
        self.num_children = 0

    def serve(self) -> None:
        hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
        self.poll.register(self.control, select.POLLIN)
        self.control.send(json.dumps({"ready": True}).encode())
        while True:
            ready = [descriptor for descriptor, _ in self.poll.poll()]
            for descriptor in ready:
                if descriptor in self.children:
                    self.reap(descriptor)
                elif descriptor in self.channels:
                    self.poll.unregister(descriptor)
                    kill(self.channels.pop(descriptor))
            if self.control.fileno() in ready:  # last: a new descriptor may reuse a number closed above
                self.start_child()

    def start_child(self) -> None:
        message, descriptors, _, _ = socket.recv_fds(self.control, 100, 1)
        if not message:  # the caller has exited
            for pid, _ in self.children.values():
                kill_group(pid)  # in namespaces, the kernel does it
            os._exit(0)
        channel = socket.socket(fileno=descriptors[0])
        self.num_children += 1
        if self.config["isolated"]:
            kernel.unshare(kernel.CLONE_NEWPID)
        try:
            pid = os.fork()
            if pid == 0:
                self.become_child(channel)
        finally:
            if self.config["isolated"]:
                kernel.setns(self.own, kernel.CLONE_NEWPID)
        process = os.pidfd_open(pid)
        self.children[process] = (pid, channel)
        self.channels[channel.fileno()] = pid
        self.poll.register(process, select.POLLIN)
        self.poll.register(channel, select.POLLRDHUP)

    def reap(self, process: int) -> None:
        pid, channel = self.children.pop(process)
        if not self.config["isolated"]:
            kill_group(pid)  # before reaping, while the number cannot be reused
        status = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
        self.poll.unregister(process)
        if self.channels.pop(channel.fileno(), None):
            self.poll.unregister(channel)
        try:
            channel.send(json.dumps({"exit": status, "over": True}).encode(), socket.MSG_DONTWAIT)
        except OSError:
            pass  # the caller has exited, or the program filled the channel
        channel.close()
        os.close(process)

    def become_child(self, channel: socket.socket) -> None:
        try:
            os.closerange(3, channel.fileno())
            os.closerange(channel.fileno() + 1, resource.getrlimit(resource.RLIMIT_NOFILE)[0])
            if self.config["isolated"]:
                user = INSIDE_ID + 1 + self.num_children % self.ids if self.ids else INSIDE_ID
                kernel.unshare(kernel.CLONE_NEWNS | kernel.CLONE_NEWIPC)
                mount_work(user, self.config)
                drop_rights(user)
            else:
                kernel.die_with_parent()
                os.setsid()
                kernel.filter_calls()
            Child(channel).serve()
        except BaseException:
            os._exit(120)


def kill(pid: int) -> None:
    try:
        os.kill(pid, signal.SIGKILL)
    except ProcessLookupError:
        pass


def kill_group(group: int) -> None:
    try:
        os.killpg(group, signal.SIGKILL)
    except (ProcessLookupError, PermissionError):
        pass  # it ended before it could create its own group


main()

"""Machines on this machine: network namespaces, with a link between each two of them that can be cut.

What comes in: names. What goes out: for each an address and a prefix for commands that run there; this process
itself is a machine of the network too.
Rules: 1. An address belongs to a machine, not to a link; between two machines there is one way, their link, so
cutting it cuts exactly those two. 2. A cut one way drops what one machine sends to the other, answers of TCP
included; neither is told. 3. Needs root and iproute2; everything is gone after `close`, and names are of this process
alone.
Not here: what runs in them (`tests/faults/cluster.py`).
"""

from __future__ import annotations

import ctypes
import itertools
import os
import shutil
import subprocess
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import pytest

SINK = ("sink", "sinks")
"""two ends of a link that nobody listens at: what is sent there is lost, and the sender is not told"""
NOBODY = "02:00:00:00:00:01"
CLONE_NEWNET = 0x40000000
_libc = ctypes.CDLL(None, use_errno=True)
HERE = "here"
"""the machine that this process runs on"""


def require_namespaces() -> None:
    """Skips the test where they cannot be made."""
    if os.geteuid() != 0 or shutil.which("ip") is None or shutil.which("nsenter") is None:
        pytest.skip("needs root, ip (iproute2) and nsenter (util-linux), for network namespaces")
    done = subprocess.run(["unshare", "--net", "true"], capture_output=True, check=False)
    if done.returncode:
        pytest.skip(f"network namespaces cannot be made: {done.stderr.decode().strip()}")


class Machines:
    """Some of them, all linked with each other and with this one."""

    def __init__(self, names: Sequence[str]) -> None:
        """At most 200 of up to 8 letters."""
        require_namespaces()
        self._tag = f"{os.getpid() % 100000:x}"
        self._numbers = {name: number for number, name in enumerate((*names, HERE), 1)}
        self._made: list[str] = []
        self._cut: set[tuple[str, str]] = set()
        try:
            for name in names:
                _ip("netns", "add", self._namespace(name))
                self._made.append(name)
                _ip(*self._in(name), "link", "set", "lo", "up")
                _ip(*self._in(name), "address", "add", f"{self.address(name)}/32", "dev", "lo")
            _ip("address", "add", f"{self.address(HERE)}/32", "dev", "lo")
            for name in self._numbers:
                one, other = self._sink(name), self._sink(name, 1)
                _ip(*self._in(name), "link", "add", one, "type", "veth", "peer", "name", other)
                for end in (one, other):
                    _ip(*self._in(name), "link", "set", end, "up")
            for one, other in itertools.combinations(self._numbers, 2):
                self._link(one, other)
        except BaseException:
            self.close()
            raise

    def address(self, name: str) -> str:
        """Of the machine, reached from each other one."""
        return f"10.{77 + os.getpid() % 150}.{os.getpid() // 150 % 250}.{self._numbers[name]}"

    def prefix(self, name: str) -> list[str]:
        """In front of a command that is to run there."""
        # Not `ip netns exec`: that makes a mount namespace too, which keeps a disk that was unmounted here.
        return [] if name == HERE else ["nsenter", f"--net=/run/netns/{self._namespace(name)}"]

    @contextmanager
    def inside(self, name: str) -> Iterator[None]:
        """Sockets that this thread makes meanwhile are that machine's: its loopback is that of the brokers there."""
        if name == HERE:
            yield
            return
        with open(f"/proc/self/task/{threading.get_native_id()}/ns/net") as back:
            with open(f"/run/netns/{self._namespace(name)}") as there:
                _enter(there.fileno())
            try:
                yield
            finally:
                _enter(back.fileno())

    def cut_way(self, sender: str, receiver: str) -> None:
        """What one sends to the other does not arrive any more."""
        if (sender, receiver) not in self._cut:
            self._cut.add((sender, receiver))
            to, sink = self.address(receiver), self._sink(sender)
            _ip(*self._in(sender), "neighbour", "replace", to, "lladdr", NOBODY, "dev", sink, "nud", "permanent")
            _ip(*self._in(sender), "route", "replace", f"{to}/32", "dev", sink, "src", self.address(sender))

    def cut(self, one: str, other: str) -> None:
        """Both ways."""
        self.cut_way(one, other)
        self.cut_way(other, one)

    def part(self, groups: Sequence[Sequence[str]]) -> None:
        """Only machines of one group reach each other; those in no group are not touched."""
        for one, other in itertools.permutations([name for group in groups for name in group], 2):
            if not any(one in group and other in group for group in groups):
                self.cut_way(one, other)

    def heal(self) -> None:
        """All links are whole."""
        for sender, receiver in self._cut:
            self._route(sender, receiver)
        self._cut.clear()

    def close(self) -> None:
        """They are gone, with their links."""
        for name in self._made:
            # The kernel takes a namespace apart later: what is on this side of its link would still have the name.
            _ip("link", "delete", self._device(HERE, name), check=False)
            _ip("netns", "delete", self._namespace(name), check=False)
        self._made.clear()
        _ip("link", "delete", self._sink(HERE), check=False)
        _ip("address", "delete", f"{self.address(HERE)}/32", "dev", "lo", check=False)

    def _link(self, one: str, other: str) -> None:
        for name, peer in ((one, other), (other, one)):
            if name < peer:
                _ip("link", "add", self._device(name, peer), "type", "veth", "peer", "name", self._device(peer, name))
        for name, peer in ((one, other), (other, one)):
            device = self._device(name, peer)
            if name != HERE:
                _ip("link", "set", device, "netns", self._namespace(name))
            _ip(*self._in(name), "link", "set", device, "up")
        self._route(one, other)
        self._route(other, one)

    def _route(self, name: str, peer: str) -> None:
        where = ["dev", self._device(name, peer), "src", self.address(name)]
        _ip(*self._in(name), "route", "replace", f"{self.address(peer)}/32", *where)

    def _sink(self, name: str, end: int = 0) -> str:
        return f"q{self._tag}.{SINK[end]}"

    def _namespace(self, name: str) -> str:
        return f"amqpd-{self._tag}-{name}"

    def _device(self, name: str, peer: str) -> str:
        return f"q{self._tag}.{self._numbers[name]}.{self._numbers[peer]}"

    def _in(self, name: str) -> list[str]:
        return [] if name == HERE else ["-n", self._namespace(name)]


def _enter(network: int) -> None:
    """setns(2): Python has it from 3.12 on."""
    if _libc.setns(network, CLONE_NEWNET):
        raise OSError(ctypes.get_errno(), "setns")


def _ip(*arguments: str, check: bool = True) -> None:
    done = subprocess.run(["ip", *arguments], capture_output=True, check=False)
    if check and done.returncode:
        raise OSError(f"ip {' '.join(arguments)}: {done.stderr.decode().strip()}")

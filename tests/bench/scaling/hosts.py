# SPDX-License-Identifier: Apache-2.0
"""Hosts on this machine: a network namespace each, joined by virtual links of limited rate, some delay and loss."""

import dataclasses
import json
import math
import os
import signal
import subprocess

MTU = 9000


def ip(*arguments):
    return subprocess.run(["ip", *arguments], check=True, capture_output=True, text=True).stdout


def missing_rights():
    """Why there can be no namespaces here; empty if there can."""
    name = f"lodestar-{os.getpid()}-try"
    try:
        ip("netns", "add", name)
        ip("netns", "del", name)
        return "" if os.access("/dev/net/tun", os.R_OK | os.W_OK) else "no access to /dev/net/tun"
    except (OSError, subprocess.CalledProcessError) as error:
        return f"ip netns add: {getattr(error, 'stderr', None) or error}"


@dataclasses.dataclass(frozen=True)
class Link:
    """From each host to the switch. Loss: of packets, by each of the two links on a path, in each direction."""

    megabits: float = 0  # per second; 0 means no limit
    round_trip_ms: float = 0  # between two hosts
    loss_percent: float = 0

    @classmethod
    def parse(cls, text):
        """Of "MEGABITS:ROUND_TRIP_MS[:LOSS_PERCENT]". Raises ValueError that says what is wrong."""
        parts = text.split(":")
        try:
            numbers = [float(part) for part in parts]
        except ValueError:
            numbers = []
        if len(numbers) not in (2, 3):
            raise ValueError(f"link {text!r}: give MEGABITS:ROUND_TRIP_MS[:LOSS_PERCENT], such as 100:50 or 100:50:1")
        link = cls(*numbers)
        if not (0 <= link.megabits < math.inf and 0 <= link.round_trip_ms < math.inf):
            raise ValueError(f"link {text!r}: megabits (0: no limit) and round trip are 0 or more")
        if not 0 <= link.loss_percent < 100:
            raise ValueError(f"link {text!r}: the loss is at least 0 and below 100 %")
        return link


class Hosts:
    """`count` hosts; leaving the context takes them away. Host i has the address 10.77.0.(i + 1)."""

    def __init__(self, processes, virtual_links, count, link):
        tag = f"{os.getpid() % 10000}"
        self._processes = processes
        self._device = f"lsb{tag}-"
        self._names = [f"lodestar-{tag}-{i}" for i in range(count)]
        self._links = processes.start(
            "links", ["nice", "-n", "-10", virtual_links, f"--hosts={count}", f"--device={self._device}",
                      f"--megabits={link.megabits}", f"--round_trip={link.round_trip_ms}ms",
                      f"--loss={link.loss_percent / 100}"], piped=True)

    def __enter__(self):
        if self._links.stdout.readline().strip() != "ready":
            self._processes.fail("virtual_links did not start")
        for i, name in enumerate(self._names):
            device = self._device + str(i)
            ip("netns", "add", name)
            ip("link", "set", device, "netns", name)
            ip("-n", name, "addr", "add", f"{self.address(i)}/24", "dev", device)
            ip("-n", name, "link", "set", device, "mtu", str(MTU), "up")
            ip("-n", name, "link", "set", "lo", "up")
        return self

    def __exit__(self, *_):
        self._links.kill()
        self._links.wait()
        for name in self._names:
            subprocess.run(["ip", "netns", "del", name], check=False)

    def address(self, i):
        return f"10.77.0.{i + 1}"

    def prefix(self, i):
        """What a command on host i begins with."""
        return ["ip", "netns", "exec", self._names[i]]

    def device(self, i):
        return self._device + str(i)

    def cut(self):
        """Until mend(): nothing gets from one host to another, and nobody is told."""
        self._links.send_signal(signal.SIGUSR1)

    def mend(self):
        self._links.send_signal(signal.SIGUSR2)

    def sent_and_received(self, i):
        """Bytes that have left and reached host i over its link."""
        link = json.loads(ip("-n", self._names[i], "-s", "-j", "link", "show", "dev", self.device(i)))[0]
        return link["stats64"]["tx"]["bytes"], link["stats64"]["rx"]["bytes"]

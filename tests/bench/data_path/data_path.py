# SPDX-License-Identifier: Apache-2.0
"""Moving a tensor between workers and a server: raw TCP, TCP with our checks and without gRPC, one protobuf
message, and ours.

  data_path.py --peer=FILE [--megabytes=100,500] [--workers=1,2] [--transports=TCP,TLS] [--runs=7]
               [--congestion=cubic]

Prints Markdown. Server and workers are processes; raw TCP takes turns with every other path, because
load on the machine comes and goes, and each path is compared with the raw TCP of its own turns.
"""

import argparse
import pathlib
import socket
import statistics
import subprocess
import sys
import tempfile
import time
import typing

COPY_TURNS = 5
PART_TURNS = 5
WARM_UPS = 4
# What the command `parts` of a worker prints: the name of each part, and which program does it.
PARTS = {
    "checksum": ("checksum", "who sends: the worker of a push, the server of a pull"),
    "checksum_with_copy": ("checksum with copy", "who receives; through shared memory both"),
    "look": ("look for NaN, with the norm", "the server of a push; the norm only where a job limits it"),
    "sum": ("sum", "the server of a push, but for the first of a round"),
    "update": ("SGD update", "the server, once a round for all workers"),
    "copy": ("plain copy, to compare", "raw TCP, who receives"),
}
EXPLANATION = """\
Rates: GB/s of fp32 per direction, of all workers together: median (lowest..highest). bf16 moves half the bytes, int8 a quarter and
int4 an eighth; topk/int4 pushes the 64 largest of each 4096 in 2 bits, a 140th, and pulls int4.
CPU: seconds per GB of fp32 that is moved, in both directions where a row has both; of both ends together, encoding and decoding
included: median = system (the kernel's part) + user (the programs'), by their shares in all runs. Switches: context switches of
all threads of both ends per GB, median.
Push includes the sum and the update (SGD), and all of ours checksums on both sides. Raw TCP sends fp32 over as many connections, with
a thread of its own for each, and only copies what arrives: from workers to server beside one direction of ours, beside push and pull
both ways at once.
Memory: MiB resident on the server once everything has been used once, without raw TCP: its own + shared with workers; and the most
before that."""


class Sample(typing.NamedTuple):
    """What one transfer took, of all workers together and of both ends."""

    rate: float  # GB/s in one direction
    system: float  # CPU seconds per GB that was moved, in either direction
    user: float
    switches: float  # context switches per GB


class Peer:
    """One end, told by lines what to do."""

    def __init__(self, command):
        self._process = subprocess.Popen(
            [str(part) for part in command], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        self.greeting = self._read()

    def _read(self):
        line = self._process.stdout.readline()
        if not line:
            raise RuntimeError(f"{self._process.args} ended with code {self._process.wait()}")
        return line.split()

    def begin(self, command):
        self._process.stdin.write(command + "\n")
        self._process.stdin.flush()

    def end(self):
        return self._read()

    def ask(self, command):
        self.begin(command)
        return self.end()

    def close(self):
        self._process.stdin.close()
        self._process.wait()


class Cluster:
    """A server and workers: over TCP, TLS or shared memory."""

    def __init__(self, options, megabytes, workers, transport, encoding):
        self._megabytes = megabytes
        self._round = 0
        self._credentials = tempfile.TemporaryDirectory()
        credentials = self._credentials.name if transport == "TLS" else ""
        push, _, pull = encoding.partition("/")
        encodings = [f"--push_encoding={push}", f"--pull_encoding={pull or push}"]
        common = [f"--megabytes={megabytes}", f"--congestion={options.congestion}", *encodings,
                  f"--credentials={credentials}"]
        self.server = Peer([options.peer, "--role=server", *common])
        parameters, message, tcp, tcp_both, checked_tcp = self.server.greeting
        self.workers = [
            Peer([options.peer, "--role=worker", f"--worker={worker}", *common,
                  f"--parameter_server={parameters}", f"--message_server={message}",
                  f"--tcp_port={tcp}", f"--tcp_both_port={tcp_both}", f"--checked_tcp_port={checked_tcp}",
                  f"--shared_memory={str(transport == 'shared memory').lower()}"])
            for worker in range(1, workers + 1)]

    def __enter__(self):
        return self

    def __exit__(self, *_):
        for peer in [*self.workers, self.server]:
            peer.close()
        self._credentials.cleanup()

    def _usage(self):
        """System CPU seconds, user CPU seconds and context switches of all peers so far."""
        peers = [*self.workers, self.server]
        return [sum(column) for column in
                zip(*([float(word) for word in peer.ask("usage")[4:7]] for peer in peers))]

    def measure(self, path):
        command = path
        if path in ("push", "both"):
            self.server.ask(f"open {self._round} {len(self.workers)}")
            command = f"{path} {self._round}"
            self._round += 1
        elif path == "pull":
            command = f"pull {self._round}"
        elif path.startswith("checked"):
            command = f"{path} {len(self.workers)}"
        before = self._usage()
        start = time.monotonic()
        for worker in self.workers:
            worker.begin(command)
        for worker in self.workers:
            worker.end()
        elapsed = time.monotonic() - start
        gigabytes = self._megabytes * len(self.workers) / 1000
        moved = gigabytes * (2 if path in ("both", "tcp_both", "checked_both") else 1)
        return Sample(gigabytes / elapsed,
                      *((now - then) / moved for now, then in zip(self._usage(), before)))

    def congestion(self):
        """The names of the congestion controls that the TCP sockets of all peers have."""
        return {name for peer in [*self.workers, self.server] for name in peer.ask("congestion")}

    def memory(self):
        """Of the server: resident anonymous and shared MiB now, and the most ever."""
        return [int(number) for number in self.server.ask("usage")[1:4]]

    def parts(self):
        """Seconds per GB by name."""
        return {name: float(seconds) for name, seconds in
                (word.split("=") for word in self.workers[0].ask("parts"))}

    def copy_rate(self):
        """GB/s of one thread that copies a tensor."""
        seconds = [float(self.workers[0].ask("copy")[0]) for _ in range(COPY_TURNS)]
        return self._megabytes / 1000 / statistics.median(seconds)


def spread(values):
    return f"{statistics.median(values):.2f} ({min(values):.2f}..{max(values):.2f})"


def median_of(samples, value):
    return statistics.median(value(sample) for sample in samples)


def cells(samples):
    """Of a row: rate, CPU, switches."""
    cpu = median_of(samples, lambda sample: sample.system + sample.user)
    # The kernel may tell the two apart by the ticks of a clock, of which one transfer has few.
    system = sum(sample.system for sample in samples)
    user = sum(sample.user for sample in samples)
    rounded = round(cpu, 2)
    in_kernel = round(cpu * system / ((system + user) or 1.0), 2)
    return (f"{spread([sample.rate for sample in samples])} |"
            f" {rounded:.2f} = {in_kernel:.2f} + {rounded - in_kernel:.2f} |"
            f" {median_of(samples, lambda sample: sample.switches):.0f}")


def print_parts(options, megabytes):
    """What user CPU of the rows in fp32 consists of, besides gRPC and waking threads."""
    with Cluster(options, megabytes, 1, "TCP", "fp32") as cluster:
        cluster.measure("push")  # as warm as in the rows
        turns = [cluster.parts() for _ in range(PART_TURNS)]
    print(f"Parts of a push and a pull, one thread, ms per GB of fp32, median of {PART_TURNS}, over a"
          f" tensor of {megabytes} MB; in a row the server finds in its caches what has just arrived:\n")
    print("| part | ms/GB | who does it |\n|---|---:|---|")
    for name, (title, who) in PARTS.items():
        print(f"| {title} | {1000 * statistics.median(turn[name] for turn in turns):.0f} | {who} |")
    print(flush=True)


def print_checked(options, megabytes, workers):
    """Ours beside what is left without gRPC, and raw TCP, all in turns."""
    print(f"Beside checked sockets: a thread for each connection and all that a push and a pull must do: checksums on both"
          f" sides, the look for NaN, sum and update; but no gRPC, rounds, duplicates or flow control (checked_tcp.h)."
          f" {megabytes} MB of fp32, {workers} workers, in turns:\n")
    print("| path | GB/s | CPU = system + user | switches | of checked sockets' rate | of raw TCP's |\n"
          "|---|---:|---:|---:|---:|---:|")
    with Cluster(options, megabytes, workers, "TCP", "fp32") as cluster:
        for path in ("push", "pull", "both"):
            names = {f"{path}, ours": path, f"{path}, checked sockets": f"checked_{path}",
                     f"{path}, raw TCP": "tcp_both" if path == "both" else "tcp"}
            samples = {name: [] for name in names}
            for turn in range(WARM_UPS + options.runs):
                for name, command in names.items():
                    sample = cluster.measure(command)
                    if turn >= WARM_UPS:
                        samples[name].append(sample)
            rates = [median_of(of_name, lambda sample: sample.rate) for of_name in samples.values()]
            for (name, of_name), rate in zip(samples.items(), rates):
                print(f"| {name} | {cells(of_name)} | {rate / rates[1]:.2f} | {rate / rates[2]:.2f} |",
                      flush=True)
    print()


def measure_path(options, megabytes, workers, name, path, transport, encoding):
    """Prints one row; returns the GB/s of one thread that copies."""
    # Encoded weights are changes since the last pull, so there must be one for each.
    def measure():
        if path == "pull" and encoding != "fp32":
            cluster.measure("push")
        return cluster.measure(path)

    with Cluster(options, megabytes, workers, transport, encoding) as cluster:
        if path == "pull":
            cluster.measure("push")
        for _ in range(WARM_UPS):  # touch every page, open every connection, and let chunks grow
            measure()
        memory = cluster.memory()
        raw_path = "tcp_both" if path == "both" else "tcp"
        cluster.measure(raw_path)
        if cluster.congestion() != {options.congestion}:
            raise RuntimeError(f"sockets have {cluster.congestion()}, not {options.congestion}")
        raw, ours = [], []
        for _ in range(options.runs):
            raw.append(cluster.measure(raw_path))
            ours.append(measure())
        ratio = median_of(ours, lambda sample: sample.rate) / median_of(
            raw, lambda sample: sample.rate)
        print(f"| {megabytes} | {workers} | {encoding} | {name} | {cells(ours)} | {cells(raw)} |"
              f" {ratio:.2f} | {memory[0]} + {memory[1]} | {memory[2]} |", flush=True)
        return cluster.copy_rate()


def print_table(options, sizes):
    print(f"Congestion control of all TCP: {options.congestion}. {options.runs} runs of each.\n\n"
          f"{EXPLANATION}\n")
    print("| MB | workers | encoding | path | GB/s | CPU = system + user | switches |"
          " raw TCP, in turns | CPU = system + user | switches | of raw TCP | memory | most |")
    print("|---:|---:|---|---|---:|---:|---:|---:|---:|---:|---:|---:|---:|")
    copies = []
    for megabytes in sizes:
        for workers in [int(count) for count in options.workers.split(",")]:
            measure_path(options, megabytes, workers, "one protobuf message", "message",
                         "TCP", "fp32")
            for encoding in options.encodings.split(","):
                for transport in options.transports.split(","):
                    for path, name in (("push", "push"), ("pull", "pull"), ("both", "push and pull")):
                        copies.append(measure_path(options, megabytes, workers, f"{name}, {transport}",
                                                   path, transport, encoding))
    print(f"\nOne thread copies memory at {spread(copies)} GB/s; shared memory needs two such copies.")


def system_setting(name):
    return pathlib.Path("/proc/sys/net/ipv4", name).read_text().strip()


def why_no_congestion_control(name):
    """None: sockets can have it."""
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as probe:
        try:
            probe.setsockopt(socket.IPPROTO_TCP, socket.TCP_CONGESTION, name.encode())
        except PermissionError:
            return (f"needs root, without which there are"
                    f" {system_setting('tcp_allowed_congestion_control')}")
        except OSError:
            return f"there are {system_setting('tcp_available_congestion_control')}"
    return None


def parse_options():
    parser = argparse.ArgumentParser()
    parser.add_argument("--peer", required=True, type=pathlib.Path)
    parser.add_argument("--megabytes", default="100,500", help="of a tensor in fp32 (%(default)s)")
    parser.add_argument("--workers", default="1,2", help="how many at once (%(default)s)")
    parser.add_argument("--encodings", default="fp32,bf16,int8,int4,topk/int4",
                        help="of pushes, and after a slash of pulls if they have another (%(default)s)")
    parser.add_argument("--transports", default="TCP,TLS,shared memory", help="(%(default)s)")
    parser.add_argument("--runs", type=int, default=7,
                        help="of each path and of raw TCP beside it, at least 5 (%(default)s)")
    parser.add_argument("--congestion", metavar="NAME", default=system_setting("tcp_congestion_control"),
                        help="congestion control of all TCP sockets, those of raw TCP included;"
                             " without it the system's (%(default)s)")
    options = parser.parse_args()
    if options.runs < 5:
        parser.error(f"--runs={options.runs}: a median of fewer than 5 says little")
    refusal = why_no_congestion_control(options.congestion)
    if refusal is not None:
        parser.error(f"--congestion={options.congestion}: {refusal}")
    return options


def main():
    options = parse_options()
    sizes = [int(size) for size in options.megabytes.split(",")]
    print_parts(options, sizes[0])
    print_checked(options, sizes[0], max(int(count) for count in options.workers.split(",")))
    print_table(options, sizes)


if __name__ == "__main__":
    sys.exit(main())

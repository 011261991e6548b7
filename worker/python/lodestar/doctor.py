# SPDX-License-Identifier: Apache-2.0
"""lodestar doctor [HOST:PORT | lodestar://... | FILE] [FLAGS OF psctl] checks whether this machine can be a
worker of a cluster. Exit code: 0 means that nothing keeps a worker out. Otherwise the output says what does."""
from __future__ import annotations

import argparse
import fcntl
import importlib.util
import json
import os
import platform
import socket
import struct
import subprocess
import sys
import tempfile
import termios
import threading
import time
from typing import Any, Dict, Iterator, List, NamedTuple, Optional, Tuple

import lodestar
from lodestar import _library, _programs
from lodestar._join_strings import is_join_setting

_CONNECT_SECONDS = 5.0
# Longest time in which a message of some packets arrives, with two more attempts of TCP.
_ARRIVAL_SECONDS = 4.0
# Bytes of data in a packet that every path carries.
_SMALL_SEGMENT_BYTES = 536
# Bytes of messages: one fits every path, one the packets of Ethernet, one the largest in use; and
# what the interface is to be set to if a message of that size does not arrive.
_MESSAGE_BYTES = {200: 0, 1400: 1280, 9000: 1500}
_ANSWER_SECONDS = 30.0
_EXPORT_SECONDS = 120.0
_DEFAULT_ADDRESS = "127.0.0.1:50051"
# As kEndlessRounds of the servers: such a job has no end of its own.
_ENDLESS_ROUNDS = 1_000_000_000


class Finding(NamedTuple):
    """What one check has found.

    Attributes:
      verdict: "ok"; "note": a worker can live with it; "bad": it keeps a worker out.
    """

    verdict: str
    text: str


def check_package() -> Iterator[Finding]:
    """Finds what is installed here."""
    yield Finding("ok", f"Python {platform.python_version()} on {platform.machine()}, "
                  f"{os.cpu_count()} processors")
    try:
        version = _library.library().version().decode()
    except (lodestar.LodestarError, OSError) as error:
        yield Finding("bad", f"the library cannot be loaded: {error}")
        return
    if version.split(" ")[0].split("+")[0] == lodestar.__version__:
        yield Finding("ok", f"lodestar {version}")
    else:
        yield Finding("bad",
                      f"the package is of release {lodestar.__version__}, but the library is of "
                      f"{version}; install both from the same wheel")
    if importlib.util.find_spec("torch") is None:
        yield Finding("note",
                      "PyTorch is not installed. lodestar.Worker does not need it, but "
                      "lodestar.join() does; for that, run pip install torch")
        return
    import torch
    cards = [torch.cuda.get_device_name(k) for k in range(torch.cuda.device_count())]
    yield Finding("ok", f"PyTorch {torch.__version__}, "
                  f"{', '.join(cards) if cards else 'no CUDA device: models compute on the CPU'}")


def _places(addresses: str) -> Iterator[Tuple[str, int]]:
    for address in addresses.split(","):
        host, _, port = address.strip().rpartition(":")
        yield host.strip("[]"), int(port)


def check_reach(addresses: str) -> Iterator[Finding]:
    """Checks that a server listens there."""
    try:
        places = list(_places(addresses))
    except ValueError:
        yield Finding("bad",
                      f"{addresses!r} is not HOST:PORT; give the address of the server of shard 0")
        return
    findings = [_check_place(host, port) for host, port in places]
    is_any_well = any(finding.verdict == "ok" for finding in findings)
    for finding in findings:
        # One that answers is enough.
        yield Finding("note", finding.text) if finding.verdict == "bad" and is_any_well else finding
    for (host, port), finding in zip(places, findings):
        if finding.verdict == "ok":
            yield from check_message_sizes(host, port)


def _check_place(host: str, port: int) -> Finding:
    place = f"{host}:{port}"
    begin = time.monotonic()
    try:
        with socket.create_connection((host, port), _CONNECT_SECONDS) as connection:
            milliseconds = 1000 * (time.monotonic() - begin)
            return Finding("ok", f"{place} ({connection.getpeername()[0]}) takes connections, after "
                           f"{milliseconds:.1f} ms")
    except socket.timeout:
        return Finding("bad",
                       f"{place} does not answer within {_CONNECT_SECONDS:.0f} s: a firewall drops "
                       "the packets, or the machine is off")
    except socket.gaierror as error:
        return Finding("bad",
                       f"{host} has no IP address: {error.strerror}; check the host name, or give "
                       "the IP address")
    except OSError as error:
        return Finding("bad",
                       f"{place}: {error.strerror}: start ps_server there, with --listen on an "
                       "address that this machine reaches")


def check_message_sizes(host: str, port: int) -> Iterator[Finding]:
    """Checks that messages of all sizes arrive there. A path with a smaller MTU that says nothing
    of it carries registrations and heartbeats, and swallows weights and gradients."""
    lost = next((size for size in _MESSAGE_BYTES if not _arrives(host, port, size)), None)
    if lost is None:
        yield Finding("ok", f"{host}:{port} receives messages of up to {max(_MESSAGE_BYTES)} bytes")
        return
    mtu = _MESSAGE_BYTES[lost]
    if mtu == 0:
        yield Finding("bad",
                      f"{host}:{port} accepts connections, but messages of {lost} bytes do not "
                      "arrive. The link fails, or a firewall drops packets after the connection "
                      "is open")
        return
    yield Finding("bad",
                  f"{host}:{port} receives small messages, but messages of {lost} bytes do not "
                  "arrive: "
                  + _mtu_remedy(host, mtu))


def _mtu_remedy(host: str, mtu: int) -> str:
    return ("the network path has a smaller MTU (largest packet) than the interfaces, and the "
            f"machines do not learn it. Run `ip link set dev {_interface_to(host)} mtu {mtu}` on "
            "this machine and on the server's machine, or run `sysctl -w "
            "net.ipv4.tcp_mtu_probing=1` on both")


def _arrives(host: str, port: int, size: int) -> bool:
    """Returns whether the system there acknowledges so many bytes, or the server answers them."""
    try:
        with socket.create_connection((host, port), _CONNECT_SECONDS) as connection:
            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            connection.sendall(b"GET /".ljust(size, b"x"))
            deadline = time.monotonic() + _ARRIVAL_SECONDS
            while time.monotonic() < deadline:
                # SIOCOUTQ: bytes that are not acknowledged.
                unsent = fcntl.ioctl(connection.fileno(), termios.TIOCOUTQ, struct.pack("i", 0))
                if struct.unpack("i", unsent)[0] == 0:
                    return True
                time.sleep(0.01)
            return False
    except ConnectionError:
        return True  # the server has closed a connection that is none of its protocol


def _answers_in_small_packets(address: str) -> bool:
    """Returns whether psctl gets an answer if the server there is told to send small packets. It
    works in plain text alone: a certificate is for the server's own address."""
    host, port = next(_places(address))
    with socket.create_server(("127.0.0.1", 0)) as listener:
        threading.Thread(target=_relay, args=(listener, host, port), daemon=True).start()
        relay = f"127.0.0.1:{listener.getsockname()[1]}"
        return _run_psctl(["status", "--json", "--server=" + relay], _ANSWER_SECONDS)[0] is not None


def _relay(listener: socket.socket, host: str, port: int) -> None:
    """Passes connections on until `listener` is closed, with small packets from there."""

    def copy(source: socket.socket, target: socket.socket) -> None:
        try:
            while data := source.recv(1 << 16):
                target.sendall(data)
            target.shutdown(socket.SHUT_WR)
        except OSError:
            pass  # one side is gone

    try:
        while True:
            near, _ = listener.accept()
            far = socket.socket(socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0][0])
            far.setsockopt(socket.IPPROTO_TCP, socket.TCP_MAXSEG, _SMALL_SEGMENT_BYTES)
            far.settimeout(_CONNECT_SECONDS)
            far.connect((host, port))
            far.settimeout(None)
            for pair in ((near, far), (far, near)):
                threading.Thread(target=copy, args=pair, daemon=True).start()
    except OSError:
        pass


def _interface_to(host: str) -> str:
    """Returns the name of the interface on the way there, or INTERFACE if it cannot be told."""
    try:
        shown = subprocess.run(["ip", "-o", "route", "get", socket.gethostbyname(host)],
                               capture_output=True, text=True, check=False).stdout.split()
        return shown[shown.index("dev") + 1]
    except (OSError, ValueError, IndexError):
        return "INTERFACE"


def _run_psctl(arguments: List[str], seconds: float) -> Tuple[Optional[str], str]:
    """Returns what psctl has printed, or None and why it has not."""
    program = _programs.find("psctl")
    assert program is not None
    try:
        run = subprocess.run([program, *arguments], capture_output=True, text=True, timeout=seconds,
                             check=False)
    except subprocess.TimeoutExpired:
        return None, f"psctl {arguments[0]} has not finished after {seconds:.0f} s"
    # The status of a job that is held up comes with an exit code of its own.
    if run.returncode == 0 or run.stdout.startswith("{"):
        return run.stdout, ""
    return None, (run.stderr or run.stdout).strip()


def check_cluster(flags: List[str], address: Optional[str] = None) -> Iterator[Finding]:
    """Checks that the cluster lets this machine in, and how fast weights come.

    Args:
      flags: of psctl.
      address: of the server, if it is known without psctl.
    """
    if _programs.find("psctl") is None:
        yield Finding("note",
                      "this package was not installed from a wheel, so doctor does not ask the "
                      "servers; run psctl status")
        return
    answer, why_not = _run_psctl(["status", "--json", *flags], _ANSWER_SECONDS)
    if answer is None and any(word in why_not for word in ("operator", "viewer")):
        yield Finding("note",
                      "the servers answer, but show the job's status only to operators and "
                      "viewers. A worker's token or certificate is not enough; ask for a token of "
                      "psctl token create --role=viewer")
        return
    if answer is None and address is not None and _answers_in_small_packets(address):
        host, _ = next(_places(address))
        yield Finding("bad",
                      f"small answers of {address} arrive, but large ones do not: "
                      f"{_mtu_remedy(host, 1280)}")
        return
    if answer is None:
        yield Finding("bad", f"psctl status: {why_not}")
        return
    status = json.loads(answer)
    version = status["software_version"].split("+")[0]
    if version == lodestar.__version__:
        yield Finding("ok", f"the servers are lodestar {status['software_version']}, wire: "
                      f"{status.get('wire', '?')}")
    else:
        yield Finding("note",
                      f"the servers are of release {version}, but this package is of "
                      f"{lodestar.__version__}; use the same release on all machines")
    job = status["job"]
    total = int(status["total_rounds"])
    of_total = f" of {total}" if total < _ENDLESS_ROUNDS else ""
    yield Finding("ok", f"job {job['model']['name']}: {status['state']}, round "
                  f"{status['round']}{of_total}, workers: {len(status['workers'])}")
    if "client" not in job["model"]:
        yield Finding("note",
                      "the model of the job is given by the servers. With lodestar.join(), your "
                      "model must have the same names and shapes; gpu_worker needs no change")
    waiting_for = status.get("open_round", {}).get("waiting_for", "")
    if waiting_for:
        yield Finding("note", waiting_for)
    yield from check_servers(status)
    yield from _check_bandwidth(flags)


def check_servers(status: Dict[str, Any]) -> Iterator[Finding]:
    """Checks whether this machine reaches the servers where they say that they are.

    Args:
      status: what `psctl status --json` prints.
    """
    for server in status["shards"]:
        shard, address = server.get("shard", 0), server.get("address", "")
        if not address:
            continue
        (host, port), = _places(address)
        finding = _check_place(host, port)
        if finding.verdict == "ok":
            yield Finding("ok", f"the server of shard {shard} is reached at {address}")
            # The given address was checked before: here only problems are reported.
            yield from (finding for finding in check_message_sizes(host, port)
                        if finding.verdict != "ok")
        elif shard == 0 and status.get("keeps_dialled_address"):
            yield Finding("note",
                          f"the server of shard 0 gives its address as {address}, which this "
                          f"machine cannot reach ({finding.text}). Workers then use the address of "
                          "--coordinator instead. To give all workers another address, start "
                          "ps_server with --advertise=HOST:PORT")
        else:
            yield Finding("bad",
                          f"the server of shard {shard} gives its address as {address}, which this "
                          f"machine cannot reach ({finding.text}); start that server with "
                          "--advertise=HOST:PORT, an address that workers reach")


def _check_bandwidth(flags: List[str]) -> Iterator[Finding]:
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "weights.safetensors")
        begin = time.monotonic()
        answer, why_not = _run_psctl(["export", *flags, path], _EXPORT_SECONDS)
        seconds = time.monotonic() - begin
        if answer is None:
            yield Finding("note", f"the bandwidth cannot be measured: {why_not}")
            return
        size = os.path.getsize(path)
    text = f"{size / 1e6:.1f} MB of weights came in {seconds:.2f} s: {size / seconds / 1e6:.1f} MB/s"
    if size < 10_000_000:
        text += ". That is too little data for a reliable speed"
    elif seconds > 10:
        yield Finding("note",
                      f"{text}. A step of --mode=sync sends and receives that amount once each. "
                      "For less traffic, use --mode=local_sgd, or --push_encoding=int8 "
                      "--pull_encoding=int8 (or int4, or topk for --push_encoding)")
        return
    yield Finding("ok", text)


def parse_arguments(arguments: List[str]) -> Tuple[Optional[str], List[str]]:
    """Returns the place to check, wherever it stands among the flags, and the flags of psctl.

    Raises:
      SystemExit: 2 for what is neither, and for two places.
    """
    parser = argparse.ArgumentParser(prog="lodestar doctor", allow_abbrev=False, description=__doc__)
    parser.add_argument("where", nargs="?", metavar="HOST:PORT | lodestar://... | FILE",
                        help="Address of the server of shard 0, or the join string that psctl token "
                        "create prints, or a file with it. The default is $LODESTAR, else "
                        "$LODESTAR_JOIN, else " + _DEFAULT_ADDRESS + ".")
    for name in ("--server", "--join"):
        parser.add_argument(name, dest="places", action="append", default=[],
                            help="Address or join string, another way to give the first argument.")
    parser.add_argument("--insecure", action="store_true",
                        help="Allow plain text to another machine.")
    for name in ("--state_dir", "--tls_cert", "--tls_key", "--tls_ca"):
        parser.add_argument(name, metavar="PATH", help=f"Path for {name} of psctl; see psctl --help.")
    told = parser.parse_args(
        ["--insecure" if argument == "--insecure=true" else argument for argument in arguments])
    places = told.places + ([] if told.where is None else [told.where])
    if len(places) > 1:
        parser.error(f"two addresses are given, {places[0]} and {places[1]}; give one")
    flags = ["--insecure"] if told.insecure else []
    for name in ("state_dir", "tls_cert", "tls_key", "tls_ca"):
        if getattr(told, name) is not None:
            flags.append(f"--{name}={getattr(told, name)}")
    return places[0] if places else None, flags


def main() -> int:
    """Prints what there is to say. Returns the exit code of the program."""
    where, flags = parse_arguments(sys.argv[1:])
    where = where or os.environ.get("LODESTAR") or None
    checks = [check_package()]
    address = None
    if where is not None and is_join_setting(where):
        # psctl takes it from there; arguments of processes are shown to all users of the machine.
        os.environ["LODESTAR_JOIN"] = where
    elif where is not None or not os.environ.get("LODESTAR_JOIN"):
        address = where or _DEFAULT_ADDRESS
        flags = [f"--server={address}", *flags]
        checks.append(check_reach(address))
    checks.append(check_cluster(flags, address))
    is_well = True
    for check in checks:
        findings = list(check)
        for finding in findings:
            print(f"{finding.verdict:5}{finding.text}", flush=True)
        if any(finding.verdict == "bad" for finding in findings):
            is_well = False
            break  # what comes next would say the same again
    print("A worker can join." if is_well else "A worker cannot join: see above.")
    return 0 if is_well else 1


if __name__ == "__main__":
    sys.exit(main())

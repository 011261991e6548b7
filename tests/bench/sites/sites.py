# SPDX-License-Identifier: Apache-2.0
"""Two sites of two workers each, and their root behind one slow link.

  sites.py --part=bytes|cut --ps_server=FILE --gpu_worker=FILE --virtual_links=FILE --psctl=FILE --data=FILE

Prints Markdown. The root and each site are hosts (network namespaces), whose links to a switch have the rate and the
delay of --link; what goes between the root and the sites is on the root's. Workers of a site are on its host.

`bytes` counts what the root's link carries per round, beside workers that join the root directly. `cut` drops all
packets on all links for --cut_seconds in the middle of a window, so that connections stay half open, and lets the job
end: steps that the sites made meanwhile, when the root's next round was over, what became of the samples, and whether
the weights at the end are those of the same job without a cut. Nothing of a worker that is dropped meanwhile counts
twice if all samples that the root handed out are those that it counted and those that it tells as not trained on.
"""

import argparse
import contextlib
import dataclasses
import json
import os
import pathlib
import statistics
import subprocess
import sys
import time

BENCH = pathlib.Path(__file__).resolve().parents[1]
sys.path[:0] = [str(BENCH), str(BENCH / "scaling")]
from hosts import Hosts, Link, missing_rights  # noqa: E402
from processes import Processes, spread  # noqa: E402

ROOT = 0  # host; the sites, or the workers that join directly, are on the next ones
SITES = 2
WORKERS_OF_SITE = 2
POLL_SECONDS = 0.02
LONG_LEASE = "60s"
WARMUP = 3  # rounds that are not counted
ENCODINGS = [("fp32", []), ("int4 up, int8 down", ["--push_encoding=int4", "--pull_encoding=int8"])]


@dataclasses.dataclass(frozen=True)
class Variant:
    name: str
    flags: tuple  # of the root; {steps} is --local_steps, {most} one less


VARIANTS = [
    Variant("local_sgd", ("--local_steps={steps}",)),
    Variant("delayed by all but one step",
            ("--local_steps={steps}", "--fragments=1", "--overlap_steps={most}")),
    Variant("overlapped rounds", ("--local_steps={steps}", "--overlap_rounds", "--outer_learning_rate=0.4")),
    Variant("elastic averaging", ("--local_steps={steps}", "--outer_optimizer=easgd")),
]


class Refused(Exception):
    """A site has ended with an error; the text says which."""


class Tree:
    """A root and what is below it, on hosts."""

    def __init__(self, options, processes, hosts, root_flags, members):
        self._options = options
        self._processes = processes
        self._hosts = hosts
        self._root, self.root = self._start_server(ROOT, "root", [
            f"--min_workers={members}", f"--metrics_out={self._records('root')}",
            "--long_paths", "--shared_memory=false", *root_flags])
        self.sites = []  # (host, name, address)
        self._site_servers = []
        self._running = [self._root]

    def _start_server(self, host, name, flags):
        return self._processes.start_server(
            self._options.ps_server, ["--insecure", *flags], name=name,
            host=self._hosts.address(host), prefix=self._hosts.prefix(host))

    def _records(self, name):
        return self._processes.folder / f"{name}.jsonl"

    def add_worker(self, host, name, coordinator=None):
        self._running.append(self._processes.start(name, [
            *self._hosts.prefix(host), self._options.gpu_worker, f"--coordinator={coordinator or self.root}",
            f"--name={name}", f"--data={self._options.data}", "--device=cpu", "--threads=1", "--insecure",
            f"--shared_memory={'true' if coordinator else 'false'}"]))

    def add_site(self, host, name):
        """Raises Refused if it cannot be one of this root."""
        try:
            site, address = self._start_server(host, name, [
                f"--upstream={self.root}", f"--site_name={name}", f"--min_workers={WORKERS_OF_SITE}",
                f"--metrics_out={self._records(name)}"])
        except RuntimeError:
            errors = [line for line in (self._processes.folder / f"{name}.log").read_text().splitlines()
                      if " error " in line]
            raise Refused(errors[-1].split(" error ", 1)[1] if errors else "it did not start") from None
        self._running.append(site)
        self._site_servers.append(site)
        self.sites.append((host, name, address))
        for i in range(WORKERS_OF_SITE):
            self.add_worker(host, f"{name}-worker-{i}", address)

    def check_all_run(self):
        for process in self._running:
            if process.poll():
                self._processes.fail(f"a process ended with {process.returncode}")

    def status(self, host, address):
        answer = subprocess.run(
            [*self._hosts.prefix(host), self._options.psctl, "status", "--json", "--insecure", f"--server={address}"],
            capture_output=True, text=True, check=False)
        if not answer.stdout:
            raise RuntimeError(f"psctl status: {answer.stderr}")
        return json.loads(answer.stdout)

    def site_statuses(self):
        return [self.status(host, address) for host, _, address in self.sites]

    def rounds(self, name="root"):
        """Of the root, or a site: lines of its --metrics_out."""
        path = self._records(name)
        return [json.loads(line) for line in path.read_text().split("\n")[:-1]] if path.exists() else []

    def samples_of_sites(self):
        """That their workers have trained on, whatever became of it."""
        return sum(self.rounds(name)[-1]["samples"] for _, name, _ in self.sites)

    def await_rounds(self, count):
        """Returns when that many rounds of the root are over, and the time."""
        deadline = time.monotonic() + self._options.limit_s
        while len(self.rounds()) < count:
            self._give_up_after(deadline, f"{count} rounds")
            time.sleep(POLL_SECONDS)
        return time.monotonic()

    def await_end(self):
        """Returns the last status of the root."""
        deadline = time.monotonic() + self._options.limit_s
        while True:
            root = self.status(ROOT, self.root)
            if root["state"] == "done" and all(site.poll() == 0 for site in self._site_servers):
                return root
            self._give_up_after(deadline, "end of the job")
            time.sleep(10 * POLL_SECONDS)

    def _give_up_after(self, deadline, what):
        self.check_all_run()
        if time.monotonic() > deadline:
            self._processes.fail(f"no {what} within {self._options.limit_s:g} s")

    def weights(self):
        """Those of the root, as a safetensors file."""
        path = self._processes.folder / "weights.safetensors"
        subprocess.run(
            [*self._hosts.prefix(ROOT), self._options.psctl, "export", f"--out={path}", "--insecure",
             f"--server={self.root}"], check=True, capture_output=True)
        return path.read_bytes()

    def told(self):
        """Of the root's log: what it tells of members that it has dropped."""
        log = (self._processes.folder / "root.log").read_text()
        return [line[line.index(" name=") + 1:] for line in log.splitlines()
                if " worker ended " in line and "job is done" not in line]


@contextlib.contextmanager
def tree_of_sites(options, root_flags):
    with Processes() as processes, \
            Hosts(processes, options.virtual_links, 1 + SITES, options.link) as hosts:
        tree = Tree(options, processes, hosts, root_flags, members=SITES)
        for i in range(SITES):
            tree.add_site(1 + i, f"site-{i}")
        yield tree, hosts


def job_flags(options, rounds):
    return [f"--model={options.model}", "--mode=local_sgd", f"--batch_size={options.batch}", f"--rounds={rounds}",
            "--optimizer=adamw", "--learning_rate=1e-3", "--seed=1", "--eval_samples=1", "--eval_every=0"]


def table(*columns):
    print("| " + " | ".join(columns) + " |")
    print("| --- " * len(columns) + "|", flush=True)


def row(*cells):
    print("| " + " | ".join(str(cell) for cell in cells) + " |", flush=True)


# --- bytes: what the link carries per round ---

DIRECT = {"two direct workers": 2, "four direct workers": 4}
PLACEMENTS = ["two direct workers", "two sites of two workers", "four direct workers"]


def bytes_of(options, placement, encoding, rounds):
    """What the root's link has carried for so many rounds: (sent, received)."""
    flags = [*job_flags(options, rounds), f"--local_steps={options.steps}", *encoding]
    if placement not in DIRECT:
        with tree_of_sites(options, flags) as (tree, hosts):
            tree.await_end()
            return hosts.sent_and_received(ROOT)
    workers = DIRECT[placement]
    with Processes() as processes, \
            Hosts(processes, options.virtual_links, 1 + workers, options.link) as hosts:
        tree = Tree(options, processes, hosts, flags, members=workers)
        for i in range(workers):
            tree.add_worker(1 + i, f"worker-{i}")
        tree.await_end()
        return hosts.sent_and_received(ROOT)


def print_bytes(options):
    def measure(placement, encoding):
        few = bytes_of(options, placement, encoding, WARMUP)
        many = bytes_of(options, placement, encoding, WARMUP + options.rounds)
        counted = [(b - a) / options.rounds / 1e6 for a, b in zip(few, many)]
        print(f"{placement}, {encoding}: {counted}", file=sys.stderr, flush=True)
        return counted

    table("encoding", "below the root", "from the root, MB a round", "to the root, MB a round", "both / two direct workers")
    for name, flags in ENCODINGS:
        if name not in options.encodings:
            continue
        results = {placement: [] for placement in PLACEMENTS}
        for _ in range(options.runs):
            for placement in PLACEMENTS:
                results[placement].append(measure(placement, flags))
        base = [sum(counted) for counted in results[PLACEMENTS[0]]]
        for placement, counted in results.items():
            ratios = [sum(both) / of_base for both, of_base in zip(counted, base)]
            row(name, placement, spread([sent for sent, _ in counted], 3), spread([received for _, received in counted], 3),
                spread(ratios, 3))
    print(f"\n`{options.model}`, local_sgd, {options.steps} local steps, link of {options.link.megabits:g} Mbit/s and "
          f"{options.link.round_trip_ms:g} ms. Counted by the network device of the root's host, headers, control messages "
          f"and heartbeats included: bytes of {WARMUP + options.rounds} rounds less those of {WARMUP}. Median (lowest..highest) "
          f"of {options.runs} runs in turns. Wanted: two sites within 2 % of two direct workers, whatever they have below them.")


# --- cut: nothing gets through for a while ---


@dataclasses.dataclass
class Cut:
    steps: list  # made meanwhile, by site
    recovery_seconds: float  # from its end to that of the root's next round


@dataclasses.dataclass
class Ending:
    """Samples, and the root's weights."""
    handed_out: int
    counted: int
    told_lost: int
    made: int  # by the workers of sites
    weights: bytes
    told: list  # sentences about members that the root has dropped
    round_seconds: float  # median
    cut: Cut = None


def steps_made(tree, options):
    """By site, so far."""
    return [int(status["trained_samples"]) / options.batch for status in tree.site_statuses()]


def cut_and_mend(options, tree, hosts):
    began = tree.await_rounds(options.cut_after - 1)
    window = tree.await_rounds(options.cut_after) - began
    time.sleep(window / 2)
    before = steps_made(tree, options)
    hosts.cut()
    time.sleep(options.cut_seconds)
    after = steps_made(tree, options)
    rounds = len(tree.rounds())
    hosts.mend()
    mended = time.monotonic()
    return Cut(steps=[b - a for a, b in zip(before, after)],
               recovery_seconds=tree.await_rounds(rounds + 1) - mended)


def run_to_end(options, variant, lease, is_cut):
    flags = [flag.format(steps=options.steps, most=options.steps - 1) for flag in variant.flags]
    with tree_of_sites(options, [*job_flags(options, options.rounds), f"--lease={lease}", *flags]) as (tree, hosts):
        cut = cut_and_mend(options, tree, hosts) if is_cut else None
        root = tree.await_end()
        at = [record["seconds"] for record in tree.rounds()]
        return Ending(handed_out=int(root["samples"]), counted=int(root["trained_samples"]),
                      told_lost=int(root["untrained_samples"]),
                      made=tree.samples_of_sites(), weights=tree.weights(),
                      told=tree.told(), round_seconds=statistics.median(b - a for a, b in zip(at, at[1:])), cut=cut)


def print_cut(options):
    table("root", "lease", "steps during the cut, by site", "of those without a cut", "root's next round, s after the cut",
          "samples handed out", "counted", "told as lost", "made at the sites", "books", "weights")
    told = []
    round_seconds = {}
    for variant in VARIANTS:
        if variant.name not in options.variants:
            continue
        try:
            undisturbed = run_to_end(options, variant, LONG_LEASE, is_cut=False)
        except Refused as refusal:
            row(variant.name, "", f"refused: {refusal}", *[""] * 8)
            continue
        for lease in options.leases:
            ending = run_to_end(options, variant, lease, is_cut=True)
            cut = ending.cut
            print(f"{variant.name}, {lease}: {dataclasses.replace(ending, weights=b'')}", file=sys.stderr, flush=True)
            usual = options.steps * options.cut_seconds / undisturbed.round_seconds
            balance = ending.handed_out - ending.counted - ending.told_lost
            row(variant.name, lease, " and ".join(f"{steps:.0f}" for steps in cut.steps),
                f"{statistics.mean(cut.steps) / usual:.0%}", f"{cut.recovery_seconds:.1f}",
                ending.handed_out, ending.counted, ending.told_lost, ending.made,
                "closed" if balance == 0 else f"**off by {balance}**",
                "as without a cut, to the bit" if ending.weights == undisturbed.weights else "others")
            told += [f"{variant.name}, {lease}: {line}" for line in ending.told]
        round_seconds[variant.name] = undisturbed.round_seconds
    if not round_seconds:
        return
    paced = (f"**Synthetic**: workers compute nothing, and a step takes {options.paced:g} s."
             if options.paced else "Workers compute, one thread each.")
    print(f"\n`{options.model}`, local_sgd, {options.rounds} rounds of {options.steps} local steps (`--lease={LONG_LEASE}` "
          f"where none else is given), {options.batch} samples a step and site; link of {options.link.megabits:g} Mbit/s and "
          f"{options.link.round_trip_ms:g} ms, cut for {options.cut_seconds:g} s in the middle of the window after round "
          f"{options.cut_after}. {paced} A round takes "
          + ", ".join(f"{seconds:.1f} s ({name})" for name, seconds in round_seconds.items())
          + " without a cut. Steps: by the status of the sites' servers, right before and after the cut, beside those of rounds "
          "without one in as long. Books: handed out = counted + told as lost, of the root's status at the end.")
    if told:
        print("\nThe root's log on members that it dropped:\n\n" + "\n".join(f"    {line}" for line in told))


def link_of_flag(text):
    try:
        return Link.parse(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from None


def main():
    names = [variant.name for variant in VARIANTS]
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--part", choices=["bytes", "cut"], required=True)
    for program in ("ps_server", "gpu_worker", "virtual_links", "psctl", "data"):
        parser.add_argument(f"--{program}", required=True)
    parser.add_argument("--link", type=link_of_flag, default=Link(100, 20), help="MEGABITS:ROUND_TRIP_MS; default: 100:20")
    parser.add_argument("--model", default="gpt-nano")
    parser.add_argument("--batch", type=int, default=4, help="samples of a step of each site")
    parser.add_argument("--steps", type=int, help="local; default: 2 for bytes, 400 for cut")
    parser.add_argument("--rounds", type=int, help="default: 30 that are counted for bytes, 6 for cut")
    parser.add_argument("--runs", type=int, default=3, help="of bytes")
    encodings = [name for name, _ in ENCODINGS]
    parser.add_argument("--encodings", nargs="+", choices=encodings, default=encodings, help="of bytes")
    parser.add_argument("--variants", nargs="+", choices=names, default=names[:2], help="of cut: what the root does")
    parser.add_argument("--leases", nargs="+", default=[LONG_LEASE, "10s"], help="of cut: of the root")
    parser.add_argument("--cut_seconds", type=float, default=30)
    parser.add_argument("--cut_after", type=int, default=2, help="rounds of the root, at least 2")
    parser.add_argument("--paced", type=float, default=0,
                        help="seconds of a step, of cut; gpu_worker is the paced worker then")
    parser.add_argument("--limit_s", type=float, default=900, help="for what is waited for")
    options = parser.parse_args()
    options.steps = options.steps or {"bytes": 2, "cut": 400}[options.part]
    options.rounds = options.rounds or {"bytes": 30, "cut": 6}[options.part]
    if missing_rights():
        parser.exit(1, f"no network namespaces here: {missing_rights()}\n")
    if options.paced:
        os.environ["LODESTAR_STEP_SECONDS"] = str(options.paced)
    {"bytes": print_bytes, "cut": print_cut}[options.part](options)


if __name__ == "__main__":
    main()

# SPDX-License-Identifier: Apache-2.0
"""Workers, servers and links: step times beside DistributedDataParallel, counted bytes, time to a loss.

  scaling.py --part=steps|bytes|encoded|links --ps_server=FILE --gpu_worker=FILE --virtual_links=FILE
             --data=FILE [--python=PYTHON_WITH_TORCH]
  scaling.py --part=utilisation --ps_server=FILE --gpu_worker=FILE_OF_PACED_WORKER --virtual_links=FILE --data=FILE
  scaling.py --part=auto --ps_server=FILE --gpu_worker=FILE_OF_PACED_WORKER --virtual_links=FILE --data=FILE
  scaling.py --part=forecast --ps_server=FILE --gpu_worker=FILE --virtual_links=FILE --psctl=FILE --data=FILE

Prints Markdown. Runs of one table take turns; all parts but `steps` need the right to make network
namespaces. A link is MEGABITS:ROUND_TRIP_MS[:LOSS_PERCENT]: with 100:50:1 the link of the sender's host
loses one packet in a hundred, and so does that of the receiver's. `utilisation` is the share of the time
that workers compute while they exchange a model of 124 million parameters, of which they compute nothing:
each step takes a time that is given. `forecast` asks `psctl plan` for the time of a round in all cells of `links`,
and then measures it; `auto` has jobs choose by themselves (--mode=auto) and measures what part of the time workers
compute then. With --paced=SECONDS and the paced worker steps take a given time there, too.
"""

import argparse
import json
import os
import pathlib
import re
import statistics
import subprocess
import sys
import tempfile

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))
from hosts import MTU, Hosts, Link, missing_rights  # noqa: E402
from processes import Processes, spread  # noqa: E402
from training import Job, Programs, training  # noqa: E402

DDP = pathlib.Path(__file__).with_name("torch_ddp.py")
OPTIMIZER = ["--optimizer=adamw", "--weight_decay=0.1", "--seed=1"]
WARMUP = 2  # steps that are not counted

# Local SGD averages weights every H steps.
AVERAGE = ["--mode=local_sgd", "--outer_optimizer=average"]
DILOCO = ["--mode=local_sgd", "--outer_optimizer=nesterov", "--outer_learning_rate=0.7", "--outer_momentum=0.9"]
PLAIN_OUTER_STEP = ["--mode=local_sgd", "--outer_optimizer=sgd", "--outer_learning_rate=1"]
INT4 = ["--push_encoding=int4", "--pull_encoding=int4"]
INT8 = ["--push_encoding=int8", "--pull_encoding=int8"]
TOPK_UP = ["--push_encoding=topk", "--topk=256", "--topk_bits=4", "--topk_divisor=senders", "--pull_encoding=int4"]
VARIANTS = [  # (name, flags of the coordinator); the first is what the others are compared with
    ("sync fp32", ["--mode=sync"]),
    ("sync int8", ["--mode=sync", *INT8]),
    ("sync int4", ["--mode=sync", *INT4]),
    ("local SGD H=10 int8", [*AVERAGE, "--local_steps=10", *INT8]),
    ("local SGD H=50 int8", [*AVERAGE, "--local_steps=50", *INT8]),
    ("DiLoCo H=20 int4", [*DILOCO, "--local_steps=20", *INT4]),
    ("DiLoCo H=20 int4, 4 fragments, 2 steps overlap",
     [*DILOCO, "--local_steps=20", "--fragments=4", "--overlap_steps=2", *INT4]),
    ("DiLoCo H=20 int4, overlapped rounds",
     [*DILOCO, "--local_steps=20", "--overlap_rounds", "--outer_learning_rate=0.4", *INT4]),
    ("local SGD H=20, topk 256 in 4 bits up, int4 down", [*PLAIN_OUTER_STEP, "--local_steps=20", *TOPK_UP]),
]
# The runs with gpt2-124m: (name, flags).
UTILISATION_STEPS = 80
UTILISATION = [
    ("DiLoCo int4, waiting", [*DILOCO, *INT4]),
    ("DiLoCo int4, 4 fragments", [*DILOCO, *INT4, "--fragments=4", f"--overlap_steps={UTILISATION_STEPS // 4}"]),
    ("DiLoCo int4, overlapped rounds", [*DILOCO, *INT4, "--overlap_rounds"]),
]
LINKS = [Link.parse(text) for text in
         ["100:0", "100:50", "100:150", "1000:0", "1000:50", "1000:150", "100:50:1"]]
LONG_PATH = ["--long_paths"]
# The model for links: the 3.3 MB of gpt-nano, and few tokens per step, so that computing takes as little beside the exchange as
# it does on a card.
LINK_MODEL = ('name: "gpt-nano-32" gpt { num_layers: 4 num_heads: 4 width: 128 context: 32 '
              'vocabulary: 256 }\n')
GPT_MODEL_BYTES = {"gpt-nano": 4 * 834_304, "gpt-mini": 4 * 10_844_160}


def table(*columns):
    print("| " + " | ".join(columns) + " |")
    print("| --- " * len(columns) + "|", flush=True)


def row(*cells):
    print("| " + " | ".join(str(cell) for cell in cells) + " |", flush=True)


def turns(runs, cases, measure):
    """measure(case) of every case, `runs` times, the cases in turns; results by case."""
    results = {case: [] for case in cases}
    for _ in range(runs):
        for case in cases:
            results[case].append(measure(case))
            print(f"{case}: {results[case][-1]}", file=sys.stderr, flush=True)
    return results


LINK_COLUMNS = ["link, Mbit/s", "round trip, ms", "loss, %"]


def link_cells(link):
    return [f"{number:g}" for number in (link.megabits, link.round_trip_ms, link.loss_percent)]


# --- steps: samples per second on one machine ---


def lodestar_step_ms(options, programs, workers, servers):
    with Processes() as processes:
        job = Job(workers=workers, servers=servers, data=options.data, flags=[
            f"--model={options.model}", "--mode=sync", f"--batch_size={options.batch}", "--eval_samples=1",
            f"--rounds={WARMUP + options.steps}", *OPTIMIZER])
        with training(processes, programs, job) as run:
            run.wait()
            seconds = [record["seconds"] for record in run.records()][WARMUP - 1:]
    return 1e3 * (seconds[options.steps] - seconds[0]) / options.steps


def ddp_processes(options, processes, world, steps, hosts=None):
    meet = f"{hosts.address(0) if hosts else '127.0.0.1'}:{options.torch_port}"
    started = []
    for rank in range(world):
        command = [options.python, "-B", DDP, f"--rank={rank}", f"--world={world}", f"--meet={meet}",
                   f"--model={options.model}", f"--batch={options.batch}", f"--steps={steps}"]
        device = hosts.device(rank) if hosts else "lo"
        prefix = hosts.prefix(rank) if hosts else []
        started.append(processes.start(f"rank-{rank}", [*prefix, "env", f"GLOO_SOCKET_IFNAME={device}", *command],
                                       piped=rank == 0))
    output, _ = started[0].communicate()
    if any(process.wait() != 0 for process in started):
        processes.fail("DistributedDataParallel failed")
    return json.loads(output)


def ddp_step_ms(options, workers):
    with Processes() as processes:
        seconds = ddp_processes(options, processes, workers, WARMUP + options.steps)["seconds"]
    return 1e3 * statistics.mean(seconds[WARMUP:])


def print_steps(options, programs):
    cases = [(workers, servers) for workers in options.workers for servers in options.servers]
    cases += [(workers, "DDP") for workers in options.workers]

    def measure(case):
        workers, servers = case
        if servers == "DDP":
            return ddp_step_ms(options, workers)
        return lodestar_step_ms(options, programs, workers, servers)

    results = turns(options.runs, cases, measure)
    table("workers", "servers", "step, ms", "samples/s", "DDP step, ms", "DDP samples/s", "step / DDP step")
    for workers, servers in cases:
        if servers == "DDP":
            continue
        ours, theirs = results[workers, servers], results[workers, "DDP"]
        ratios = [mine / other for mine, other in zip(ours, theirs)]
        rate = [1e3 * workers * options.batch / ms for ms in ours]
        their_rate = [1e3 * workers * options.batch / ms for ms in theirs]
        row(workers, servers, spread(ours), spread(rate), spread(theirs), spread(their_rate), spread(ratios, 2))
    print(f"\n`{options.model}`, sync, AdamW, batch {options.batch} per worker, one thread per worker, "
          f"{options.steps} steps after {WARMUP}; median (lowest..highest) of {options.runs} runs in turns. "
          "Target: step / DDP step at most 1. Lodestar on one machine moves payloads through shared "
          "memory; gloo uses TCP on loopback.")


# --- bytes: what a worker's host sends and receives per step ---


def counted_bytes(options, programs, case, steps):
    workers, placement = case
    extra = placement if isinstance(placement, int) else 0  # dedicated hosts of servers
    with Processes() as processes, \
            Hosts(processes, programs.virtual_links, workers + extra, Link()) as hosts:
        if placement == "gloo":
            ddp_processes(options, processes, workers, steps, hosts)
        else:
            servers = extra or workers
            job = Job(workers=workers, servers=servers, data=options.data, hosts=hosts,
                      server_hosts=[workers + i if extra else i for i in range(servers)],
                      worker_hosts=list(range(workers)), flags=[
                          f"--model={options.model}", "--mode=sync", f"--batch_size={options.batch}",
                          "--eval_samples=1", f"--rounds={steps}", *OPTIMIZER])
            with training(processes, programs, job) as run:
                run.wait()
        return [hosts.sent_and_received(i) for i in range(workers)]


def print_bytes(options, programs):
    model = GPT_MODEL_BYTES[options.model]
    cases = [(workers, placement) for workers in options.workers if workers > 1
             for placement in [*options.servers, "colocated", *(["gloo"] if options.python else [])]]

    def measure(case):
        """Of one step of the average worker: what it sends and what it receives."""
        few, many = WARMUP, WARMUP + options.steps
        before, after = (counted_bytes(options, programs, case, steps) for steps in (few, many))
        return [sum(a[way] - b[way] for a, b in zip(after, before)) / len(after) / options.steps
                for way in (0, 1)]

    results = turns(options.runs, cases, measure)
    table("workers", "servers", "sent, MB", "received, MB", "by the formula, each way, MB", "sent / formula",
          "sent / ring's 2(n-1)/n")
    for workers, placement in cases:
        measured = results[workers, placement]
        ring = 2 * (workers - 1) / workers * model
        wanted = model if isinstance(placement, int) else ring
        name = {"colocated": f"{workers}, on the workers' hosts", "gloo": "none: DDP with gloo"}.get(
            placement, f"{placement}, on hosts of their own")
        row(workers, name, spread([sent / 1e6 for sent, _ in measured], 2),
            spread([received / 1e6 for _, received in measured], 2), f"{wanted / 1e6:.2f}",
            spread([sent / wanted for sent, _ in measured], 3), spread([sent / ring for sent, _ in measured], 3))
    print(f"\n`{options.model}` in fp32: M = {model / 1e6:.2f} MB. Per worker and step, counted by the network "
          f"device of the worker's host, headers and control messages included: bytes of {WARMUP + options.steps} "
          f"rounds less those of {WARMUP}. Median (lowest..highest) of {options.runs} runs in turns. Formula: M with "
          "servers on hosts of their own, 2(n-1)/n M with n servers on the workers' hosts and for a ring.")


# --- encoded: bytes of a round in the wire encodings beside what the formats say ---

# gpt-nano; two steps a round where there are local ones. (name, flags, bytes up, bytes down)
ELEMENTS = GPT_MODEL_BYTES["gpt-nano"] // 4
INT4_BYTES = ELEMENTS * (1 / 2 + 2 / 128)
INT8_BYTES = ELEMENTS * (1 + 4 / 256)
SPARSE = [*PLAIN_OUTER_STEP, "--local_steps=2", "--pull_encoding=int4", "--push_encoding=topk"]
ENCODED = [
    ("fp32", ["--mode=sync"], 4 * ELEMENTS, 4 * ELEMENTS),
    ("int8", ["--mode=sync", *INT8], INT8_BYTES, INT8_BYTES),
    ("int4", ["--mode=sync", *INT4], INT4_BYTES, INT4_BYTES),
    ("int4, a fragment of 4", [*DILOCO, "--local_steps=4", "--fragments=4", *INT4], INT4_BYTES / 4, INT4_BYTES / 4),
    ("top-k 64 in 2 bits up, int4 down", SPARSE, ELEMENTS / 4096 * (4 + 64 * 14 / 8), INT4_BYTES),
    ("top-k 256 in 4 bits up, int4 down", [*SPARSE, "--topk=256", "--topk_bits=4"],
     ELEMENTS / 4096 * (4 + 256 * 16 / 8), INT4_BYTES),
]
ENCODED_WORKERS = 2
ENCODED_ROUNDS = 40


def encoded_bytes(options, programs, flags, rounds):
    with Processes() as processes, \
            Hosts(processes, programs.virtual_links, ENCODED_WORKERS + 1, Link()) as hosts:
        job = Job(workers=ENCODED_WORKERS, data=options.data, hosts=hosts, server_hosts=[0],
                  worker_hosts=list(range(1, ENCODED_WORKERS + 1)), flags=[
                      "--model=gpt-nano", "--batch_size=1", "--eval_samples=1", "--optimizer=sgd",
                      "--learning_rate=1e-3", f"--rounds={rounds}", *flags])
        with training(processes, programs, job) as run:
            run.wait()
        return [hosts.sent_and_received(i) for i in range(1, ENCODED_WORKERS + 1)]


def print_encoded(options, programs):
    table("run", "by the format, up", "sent", "by the format, down", "received", "both / formats")
    for name, flags, up, down in ENCODED:
        few = encoded_bytes(options, programs, flags, WARMUP + 3)
        many = encoded_bytes(options, programs, flags, WARMUP + 3 + ENCODED_ROUNDS)
        sent, received = (sum(b[way] - a[way] for a, b in zip(few, many)) / ENCODED_WORKERS / ENCODED_ROUNDS
                          for way in (0, 1))
        row(name, f"{up:.0f}", f"{sent:.0f}", f"{down:.0f}", f"{received:.0f}", f"{(sent + received) / (up + down):.3f}")
    print(f"\n`gpt-nano`, {ENCODED_WORKERS} workers. Bytes per worker and round, counted by the network device of the "
          f"worker's host over {ENCODED_ROUNDS} rounds: headers, control messages and TCP's acknowledgements of what "
          "comes from the other side included.")


# --- links: time to a loss over slow and long links ---


def steps_per_round(flags):
    def value(flag):
        return next((int(f.split("=")[1]) for f in flags if f.startswith(f"--{flag}=")), 1)
    return value("local_steps") // value("fragments")


def seconds_to_loss(options, programs, case):
    link, variant = case
    with Processes() as processes, \
            Hosts(processes, programs.virtual_links, options.link_workers + 1, link) as hosts:
        model = processes.folder / "model.textproto"
        model.write_text(LINK_MODEL)
        flags = dict(VARIANTS)[variant]
        local_steps = steps_per_round(flags)
        job = Job(workers=options.link_workers, data=options.data, hosts=hosts, server_hosts=[0],
                  worker_hosts=list(range(1, options.link_workers + 1)),
                  common_flags=LONG_PATH if link.round_trip_ms else [], flags=[
                      f"--model={options.link_model or model}", f"--batch_size={options.link_batch}",
                      "--rounds=100000", f"--learning_rate={options.learning_rate}", "--beta2=0.99",
                      "--clip_norm=1", f"--eval_samples={options.eval_samples}",
                      f"--eval_every={max(1, options.eval_steps // local_steps)}", *OPTIMIZER, *flags])
        with training(processes, programs, job) as run:
            def reached(records):
                return any((r.get("heldout_loss") or 1e9) <= options.loss for r in records)
            seconds = run.wait_until(reached, options.limit_s)
            records = run.records()
        if seconds is None:
            print(f"{case}: {records[-1] if records else 'nothing'}", file=sys.stderr)
            return None
        rounds = next(r["round"] for r in records if (r.get("heldout_loss") or 1e9) <= options.loss)
        return seconds, rounds * local_steps


def known_variants(programs):
    text = subprocess.run([programs.ps_server, "--helpfull"], capture_output=True, text=True, check=False).stdout
    for name, flags in VARIANTS:
        if all(flag.split("=")[0] in text for flag in flags):
            yield name


def print_links(options, programs):
    variants = [name for name in known_variants(programs) if name in (options.variants or dict(VARIANTS))]
    cases = [(link, variant) for link in options.links for variant in variants]
    results = turns(options.runs, cases, lambda case: seconds_to_loss(options, programs, case))
    table(*LINK_COLUMNS, "run", "seconds to the loss", "steps", "against sync fp32")
    for link, variant in cases:
        measured = [result for result in results[link, variant] if result is not None]
        cells = [*link_cells(link), variant]
        if len(measured) < options.runs:
            row(*cells, f"{options.runs - len(measured)} of {options.runs} not within {options.limit_s:g}", "", "")
            continue
        seconds = [result[0] for result in measured]
        base = [result[0] for result in results.get((link, VARIANTS[0][0]), []) if result is not None]
        ratio = (f"{statistics.median(seconds) / statistics.median(base):.2f}" if base else "")
        row(*cells, spread(seconds), f"{statistics.median(result[1] for result in measured):.0f}", ratio)
    missing = [name for name in dict(VARIANTS) if name not in known_variants(programs)]
    print(f"\n{options.link_workers} workers and a server on a host each; a token-bucket link with a 100 ms "
          "queue from each host to a switch, 9000-byte packets, of which each link loses that share in each direction "
          "(two links between a worker and the server), "
          f"TCP {pathlib.Path('/proc/sys/net/ipv4/tcp_congestion_control').read_text().strip()}. "
          f"Model `{options.link_model or LINK_MODEL.strip()}`, batch {options.link_batch} per worker and step, "
          f"until the held-out loss is at most {options.loss} nats, looked at every {options.eval_steps} steps "
          "(local SGD: every round, if that is longer); from the start of the worker processes. Median "
          f"(lowest..highest) of {options.runs} runs in turns."
          + (f" Not in this build: {', '.join(missing)}." if missing else ""))


# --- forecast: what psctl plan says of a round, and what it takes ---

# Steps of the run that measures a step: the exchange is a small part of so many.
STEPS_WITHOUT_NETWORK = 100
LEAST_ROUNDS = 6
# As long again where packets are lost: a round takes a third more or less there, as chance has it.
TIMES_WITH_LOSS = 6
# Until connections have found their pace; over links that are limited, until workers take turns on the servers', too.
FIRST_ROUNDS_WITHOUT_LIMIT = 4
FIRST_ROUNDS = 20


def model_argument(model, folder):
    """Of a preset its name; else a file in `folder` with the text."""
    if "{" not in model:
        return model
    file = pathlib.Path(folder) / "model.textproto"
    file.write_text(model)
    return file


def seconds_per_round(options, programs, link, flags):
    """The mean of rounds after the first ones, whole cycles of fragments; None if that takes too long."""
    cycle = next((int(f.split("=")[1]) for f in flags if f.startswith("--fragments=")), 1)
    first = max(FIRST_ROUNDS if link.megabits else FIRST_ROUNDS_WITHOUT_LIMIT, 2 * cycle)

    cell_seconds = options.cell_seconds * (TIMES_WITH_LOSS if link.loss_percent else 1)

    def whole_cycles(records):
        return (len(records) - first) // cycle * cycle

    with Processes() as processes, \
            Hosts(processes, programs.virtual_links, options.link_workers + 1, link) as hosts:
        model = model_argument(options.link_model or LINK_MODEL, processes.folder)
        job = Job(workers=options.link_workers, data=options.data, hosts=hosts, server_hosts=[0],
                  worker_hosts=list(range(1, options.link_workers + 1)),
                  common_flags=LONG_PATH if link.round_trip_ms else [], flags=[
                      f"--model={model}", f"--batch_size={options.link_batch}",
                      "--rounds=100000", f"--learning_rate={options.learning_rate}", "--beta2=0.99",
                      f"--clip_norm={options.clip_norm}", "--eval_samples=1", "--eval_every=0", *OPTIMIZER, *flags])
        with training(processes, programs, job) as run:
            def enough(records):
                rounds = whole_cycles(records)
                return rounds >= LEAST_ROUNDS and \
                    records[first + rounds - 1]["seconds"] - records[first - 1]["seconds"] >= cell_seconds
            if run.wait_until(enough, options.limit_s) is None:
                return None
            records = run.records()
        rounds = whole_cycles(records)
        return (records[first + rounds - 1]["seconds"] - records[first - 1]["seconds"]) / rounds


def forecast_seconds(options, programs, link, flags, step_seconds):
    # Two links are on a path.
    lost = 1 - (1 - link.loss_percent / 100) ** 2
    with tempfile.TemporaryDirectory() as folder:
        model = model_argument(options.link_model or LINK_MODEL, folder)
        plan = subprocess.run(
            [programs.psctl, "plan", f"--model={model}", f"--workers={options.link_workers}",
             f"--up={link.megabits or 1e6}", f"--down={link.megabits or 1e6}", f"--rtt={link.round_trip_ms}",
             f"--step_ms={1e3 * step_seconds}", f"--packet_loss={100 * lost}", f"--packet_bytes={MTU}", "--output=json", "--",
             *OPTIMIZER, f"--clip_norm={options.clip_norm}", *flags], capture_output=True, text=True, check=False)
    if plan.returncode not in (0, 1) or not plan.stdout:  # 1: nothing is good enough, which is not what was asked
        raise RuntimeError(f"psctl plan: {plan.stderr}")
    return json.loads(plan.stdout)["given"]["round_seconds"]


def seconds_per_step(options, programs):
    """Over links without limit or delay, all workers computing at once."""
    seconds = seconds_per_round(options, programs, Link(), [*AVERAGE, f"--local_steps={STEPS_WITHOUT_NETWORK}"])
    if seconds is None:
        raise RuntimeError(f"{STEPS_WITHOUT_NETWORK} steps over links without limit took more than {options.limit_s:g} s")
    return seconds / STEPS_WITHOUT_NETWORK


def forecast_and_measured(options, programs, case):
    """Seconds of a step, of a round by forecast, and of a round (None: too long), in this order."""
    link, name = case
    flags = dict(VARIANTS)[name]
    step = options.paced or seconds_per_step(options, programs)
    forecast = forecast_seconds(options, programs, link, flags, step)
    print(f"{case}: step {step:.5f}, forecast {forecast:.4f}", file=sys.stderr, flush=True)
    return step, forecast, seconds_per_round(options, programs, link, flags)


def print_forecast(options, programs):
    if options.paced:
        os.environ["LODESTAR_STEP_SECONDS"] = str(options.paced)
        step_text = f"workers compute nothing: a step takes {1e3 * options.paced:g} ms (**synthetic**)"
    else:
        step_text = "a step is measured before each cell, over links without limit or delay"
    cases = [(link, name) for link in options.links for name, _ in VARIANTS
             if name in (options.variants or dict(VARIANTS))]
    results = turns(options.runs, cases, lambda case: forecast_and_measured(options, programs, case))
    table(*LINK_COLUMNS, "run", "step, ms", "forecast, ms a round", "measured", "measured / forecast")
    ratios = []
    for link, name in cases:
        runs = [run for run in results[link, name] if run[2] is not None]
        if not runs:
            row(*link_cells(link), name, "", "", f"not within {options.limit_s:g} s", "")
            continue
        ratios.append(statistics.median(measured / forecast for _, forecast, measured in runs))
        row(*link_cells(link), name, *(spread([1e3 * run[i] for run in runs]) if len(runs) > 1 else f"{1e3 * runs[0][i]:.1f}"
                                       for i in range(3)), f"{ratios[-1]:.3f}")
    within = sum(1 / 1.15 <= ratio <= 1.15 for ratio in ratios)
    print(f"\n{within} of {len(cases)} within 15 %. {options.link_workers} workers and a server on a host each, links and "
          f"model as in `links`; {step_text}. Forecast by `psctl plan` before "
          f"the cell was measured; measured: the mean of at least {LEAST_ROUNDS} rounds and {options.cell_seconds:g} s (with "
          f"loss {TIMES_WITH_LOSS} times that) after the first {FIRST_ROUNDS}, without evaluations"
          + ("" if options.clip_norm else ", without a clip norm") + (f"; median (lowest..highest) of {options.runs} runs in turns." if options.runs > 1 else "."))


# --- utilisation: what is left of the time for computing ---


def utilisation(options, programs, case):
    """Of the rounds after the first one or two: the time of their steps over the time that they took."""
    link, variant = case
    flags = [*dict(UTILISATION)[variant], f"--local_steps={UTILISATION_STEPS}"]
    steps = steps_per_round(flags)
    first = max(2, UTILISATION_STEPS // steps)  # once each part has been exchanged
    rounds = first + options.steps * UTILISATION_STEPS // steps
    with Processes() as processes, \
            Hosts(processes, programs.virtual_links, options.link_workers + 1, link) as hosts:
        job = Job(workers=options.link_workers, data=options.data, hosts=hosts, server_hosts=[0],
                  worker_hosts=list(range(1, options.link_workers + 1)),
                  common_flags=LONG_PATH if link.round_trip_ms else [], flags=[
                      "--model=gpt2-124m", "--batch_size=1", "--eval_samples=1", "--optimizer=sgd",
                      "--learning_rate=1e-3", f"--rounds={rounds + 2}", *flags])
        with training(processes, programs, job) as run:
            seconds = run.wait_until(lambda records: len(records) > rounds, options.limit_s)
            if seconds is None:
                return None
            at = [record["seconds"] for record in run.records()]
        return (rounds - first) * steps * options.step_seconds / (at[rounds] - at[first])


def print_utilisation(options, programs):
    os.environ["LODESTAR_STEP_SECONDS"] = str(options.step_seconds)
    cases = [(link, name) for link in options.links for name, _ in UTILISATION
             if name in (options.variants or dict(UTILISATION))]
    results = turns(options.runs, cases, lambda case: utilisation(options, programs, case))
    table(*LINK_COLUMNS, "run", "utilisation")
    for link, variant in cases:
        measured = results[link, variant]
        row(*link_cells(link), variant, "not in time" if None in measured else spread(measured, 3))
    print(f"\n{options.link_workers} workers and a server on a host each, links as in `links`. gpt2-124m, 124 million "
          f"parameters, exchanged in int4 both ways once in {UTILISATION_STEPS} steps. **Synthetic**: workers compute "
          f"nothing, a step takes {options.step_seconds:g} s, the inner optimizer (sgd) included. Time of the steps "
          f"over the time of the rounds, {options.steps} cycles, without the first; median (lowest..highest) of "
          f"{options.runs} runs in turns.")


# --- auto: what a job chooses, and what comes of it ---

LINKS_OF_AUTO = [Link(megabits, round_trip) for megabits in (10, 100, 1000) for round_trip in (0, 50, 150)]
CHOSEN = re.compile(r"exchange chosen: (?P<name>.*?) \((?P<flags>--.*?)\):")


def chosen_utilisation(options, programs, link):
    """(name of what was chosen, its flags, time of steps over time of rounds), or None if that takes too long."""
    with Processes() as processes, \
            Hosts(processes, programs.virtual_links, options.link_workers + 1, link) as hosts:
        job = Job(workers=options.link_workers, data=options.data, hosts=hosts, server_hosts=[0],
                  worker_hosts=list(range(1, options.link_workers + 1)),
                  common_flags=LONG_PATH if link.round_trip_ms else [], flags=[
                      "--model=gpt-nano", f"--batch_size={options.link_batch}", "--eval_samples=1",
                      "--learning_rate=1e-3", f"--rounds={options.job_steps}", "--log_level=info", "--mode=auto"])
        with training(processes, programs, job) as run:
            def chosen():
                return CHOSEN.search((processes.folder / "server-0.log").read_text())

            def enough(records):
                # The first cycles find the pace of the connections.
                return chosen() and len(records) > 2 * cycle_of(chosen()) + 1 and \
                    records[-1]["seconds"] - records[2 * cycle_of(chosen())]["seconds"] >= options.cell_seconds

            def cycle_of(choice):
                return next((int(flag.split("=")[1]) for flag in choice["flags"].split()
                             if flag.startswith("--fragments=")), 1)

            if run.wait_until(enough, options.limit_s) is None:
                return None
            first, last = run.records()[2 * cycle_of(chosen())], run.records()[-1]
            choice = chosen()
        steps = (last["samples"] - first["samples"]) / (options.link_batch * options.link_workers)
        return choice["name"], choice["flags"], steps * options.step_seconds / (last["seconds"] - first["seconds"])


def print_auto(options, programs):
    os.environ["LODESTAR_STEP_SECONDS"] = str(options.step_seconds)
    table(*LINK_COLUMNS, "chosen", "flags", "utilisation")
    reached = 0
    for link in options.links:
        result = chosen_utilisation(options, programs, link)
        if result is None:
            row(*link_cells(link), f"nothing within {options.limit_s:g} s", "", "")
            continue
        name, flags, share = result
        reached += share >= 0.95
        row(*link_cells(link), name, f"`{flags}`", f"{share:.3f}")
    print(f"\n{reached} of {len(options.links)} reach 0.95. {options.link_workers} workers and a server on a host each, links "
          f"as in `links`; gpt-nano, a job of {options.job_steps} steps, `--mode=auto` and no other flag about exchanges. **Synthetic**: "
          f"workers compute nothing, a step takes {options.step_seconds:g} s. Time of the steps over the time of the rounds, for at least "
          f"{options.cell_seconds:g} s after two cycles with what was chosen.")


def link_of_flag(text):
    try:
        return Link.parse(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from None


def main():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--part", choices=["steps", "bytes", "encoded", "links", "utilisation", "auto",
                                           "forecast"],
                        required=True)
    for program in ("ps_server", "gpu_worker", "virtual_links"):
        parser.add_argument(f"--{program}", required=True)
    parser.add_argument("--psctl", default="", help="of forecast")
    parser.add_argument("--data", required=True, help="text")
    parser.add_argument("--python", default="", help="a Python with PyTorch; bytes: empty leaves gloo out")
    parser.add_argument("--runs", type=int, help="default: 5, of forecast 1")
    parser.add_argument("--workers", type=int, nargs="+", default=[1, 2, 4])
    parser.add_argument("--servers", type=int, nargs="+", default=[1, 2])
    parser.add_argument("--model", help="default: gpt-mini for steps, gpt-nano for bytes")
    parser.add_argument("--batch", type=int, default=4, help="per worker")
    parser.add_argument("--steps", type=int, default=5, help="that are counted, per run")
    parser.add_argument("--torch_port", type=int, default=29517)
    parser.add_argument("--links", nargs="+", type=link_of_flag,
                        help="MEGABITS:ROUND_TRIP_MS[:LOSS_PERCENT]")
    parser.add_argument("--variants", nargs="+", help=f"some of {list(dict(VARIANTS))}, or of utilisation")
    parser.add_argument("--link_model", default="", help="of links; default: gpt-nano with a context of 32 tokens")
    parser.add_argument("--link_workers", type=int, default=2)
    parser.add_argument("--link_batch", type=int, default=2, help="per worker, of links")
    parser.add_argument("--learning_rate", default="1e-3", help="of links")
    parser.add_argument("--clip_norm", type=float, default=1, help="of forecast; 0: none")
    parser.add_argument("--loss", type=float, default=2.62, help="nats per byte, of links")
    parser.add_argument("--eval_samples", type=int, default=64, help="of links")
    parser.add_argument("--eval_steps", type=int, default=40, help="of links")
    parser.add_argument("--step_seconds", type=float, help="default: 0.3 for utilisation, 0.05 for auto")
    parser.add_argument("--cell_seconds", type=float,
                        help="that rounds are measured for; default: 2 for forecast, 20 for auto")
    parser.add_argument("--job_steps", type=int, default=10_000_000,
                        help="of the whole job, of auto: the fewer, the fewer local steps keep the loss")
    parser.add_argument("--paced", type=float, default=0,
                        help="seconds of a step, of forecast; gpu_worker is the paced worker then")
    parser.add_argument("--limit_s", type=float, default=900, help="per run of links, utilisation and forecast")
    options = parser.parse_args()
    options.runs = options.runs or {"forecast": 1}.get(options.part, 5)
    options.links = options.links or {"auto": LINKS_OF_AUTO}.get(options.part, LINKS)
    options.step_seconds = options.step_seconds or {"auto": 0.05}.get(options.part, 0.3)
    options.cell_seconds = options.cell_seconds or {"auto": 20.0}.get(options.part, 2.0)
    options.model = options.model or {"steps": "gpt-mini"}.get(options.part, "gpt-nano")
    programs = Programs(options.ps_server, options.gpu_worker, options.virtual_links, options.psctl)
    if options.part != "steps" and missing_rights():
        parser.exit(1, f"no network namespaces here: {missing_rights()}\n")
    {"steps": print_steps, "bytes": print_bytes, "encoded": print_encoded, "links": print_links,
     "utilisation": print_utilisation, "auto": print_auto, "forecast": print_forecast}[options.part](options, programs)


if __name__ == "__main__":
    main()

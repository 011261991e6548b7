# SPDX-License-Identifier: Apache-2.0
"""Trains the reference tasks in every mode with the real binaries and prints one Markdown table.

  convergence.py --bin=bazel-bin --task=gpt --data=FILE     (tinyshakespeare: nanoGPT's CPU setting)
  convergence.py --bin=bazel-bin --task=digits --data=DIR   (8x8 digits as IDX files)
  convergence.py --bin=bazel-bin --task=encodings --data=FILE [--rounds=N] [--seeds=A,B]
                                     (the gpt task in sync by two workers, each wire encoding)
  convergence.py --bin=bazel-bin --task=low_communication --data=FILE [--rounds=N] [--seeds=A,B] [--workers=1,2,4]
                                     (the gpt task: local steps, fewer bits, overlapped exchanges)
  convergence.py --bin=bazel-bin --task=chosen --data=FILE [--rounds=N] [--seeds=A,B]
                                     (the gpt task by two workers: settings that --mode=auto chooses for slow links, and others)
  convergence.py --bin=bazel-bin --task=unequal --data=FILE [--rounds=N] [--seeds=A,B]
                                     (the gpt task by four workers, equal and with a spread of speeds of 6)

Every run of a task sees the same number of samples. --only=NAME[,NAME] chooses runs.
"""

import argparse
import datetime
import pathlib
import platform
import sys

from cluster_trial import Cluster, Trial

# nanoGPT, README "I only have a macbook": 4 layers, 4 heads, 128 wide, context 64, batch 12, 2000
# iterations; published validation loss 1.88 nats.
GPT_ROUNDS = 2000
GPT_BATCH = 12
GPT_LOCAL_STEPS = 20
GPT_OPTIMIZER = [
    "--optimizer=adamw", "--learning_rate=1e-3", "--min_learning_rate=1e-4", "--lr_schedule=cosine",
    "--beta1=0.9", "--beta2=0.99", "--weight_decay=0.1", "--clip_norm=1",
]


INT4 = ["--push_encoding=int4", "--pull_encoding=int4"]


def gpt_trials():
    def trial(name, workers, mode, rounds, batch, warmup, *extra):
        return Trial(name, workers, [
            "--model=gpt-nano", f"--mode={mode}", f"--rounds={rounds}", f"--batch_size={batch}",
            f"--warmup_rounds={warmup}", "--eval_samples=0", "--eval_every=0", "--seed=1337",
            *GPT_OPTIMIZER, *extra])

    local_batch = GPT_BATCH // 2
    local_rounds = GPT_ROUNDS // GPT_LOCAL_STEPS
    local_flags = [f"--local_steps={GPT_LOCAL_STEPS}"]
    return [
        trial("sync, 1 worker", 1, "sync", GPT_ROUNDS, GPT_BATCH, 100),
        trial("sync, 2 workers", 2, "sync", GPT_ROUNDS, GPT_BATCH // 2, 100),
        trial("async, 2 workers", 2, "async", GPT_ROUNDS, GPT_BATCH, 100),
        trial("local_sgd average, 2 workers", 2, "local_sgd", local_rounds, local_batch, 5,
              "--outer_optimizer=average", *local_flags),
        trial("local_sgd nesterov, 2 workers", 2, "local_sgd", local_rounds, local_batch, 5,
              "--outer_optimizer=nesterov", "--outer_learning_rate=0.7", "--outer_momentum=0.9",
              *local_flags),
    ]


def encodings_trials(rounds, seed):
    def trial(name, *flags):
        return Trial(f"{name} (seed {seed})", 2, [
            "--model=gpt-nano", "--mode=sync", f"--rounds={rounds}",
            f"--batch_size={GPT_BATCH // 2}", f"--warmup_rounds={rounds // 20}",
            "--eval_samples=0", "--eval_every=0", f"--seed={seed}", *GPT_OPTIMIZER, *flags])

    trials = [trial("fp32")]
    for encoding in ("bf16", "int8", "int4"):
        flags = [f"--push_encoding={encoding}", f"--pull_encoding={encoding}"]
        trials.append(trial(encoding, *flags))
        trials.append(trial(f"{encoding} without error feedback", *flags,
                            "--error_feedback=false"))
    return trials


def low_communication_trials(steps, seed, workers):
    """Beside sync in fp32, of the same samples: what slow links make of the loss."""
    def trial(name, mode, rounds, *flags):
        return Trial(f"{name} ({workers} workers, seed {seed})", workers, [
            "--model=gpt-nano", f"--mode={mode}", f"--rounds={rounds}",
            f"--batch_size={GPT_BATCH // workers}", f"--warmup_rounds={rounds // 20}",
            "--eval_samples=0", "--eval_every=0", f"--seed={seed}", *GPT_OPTIMIZER, *flags])

    # Where contributions are deferred, the last round computes nothing.
    def local(name, *flags, fragments=1, deferred=0, steps_per_cycle=GPT_LOCAL_STEPS):
        rounds = steps * fragments // steps_per_cycle + deferred
        has_momentum = not any(flag.startswith("--outer_optimizer") for flag in flags)
        momentum = ["--outer_momentum=0.9"] if has_momentum else []
        return trial(name, "local_sgd", rounds, f"--local_steps={steps_per_cycle}", *momentum, *flags)

    def overlapped(name, *flags):
        return local(name, "--fragments=4", "--overlap_steps=2", *flags, *INT4, fragments=4, deferred=1)

    sparse = ["--outer_optimizer=sgd", "--outer_learning_rate=1", "--push_encoding=topk", "--pull_encoding=int4"]
    return [
        trial("sync", "sync", steps),
        trial("sync int4", "sync", steps, *INT4),
        local("diloco"),
        local("diloco int4", *INT4),
        overlapped("fragments"),
        overlapped("fragments mix", "--merge=mix"),
        local("overlap_rounds", "--overlap_rounds", "--outer_learning_rate=0.4", *INT4, deferred=1),
        local("direction", "--outer_reduction=direction"),
        local("easgd", "--outer_optimizer=easgd", deferred=1),
        local("topk", *sparse),
        local("topk by senders", *sparse, "--topk_divisor=senders"),
        local("topk256 by senders", *sparse, "--topk_divisor=senders", "--topk=256", "--topk_bits=4"),
        local("topk256 by senders and all fed back", *sparse, "--topk_divisor=senders", "--topk=256", "--topk_bits=4",
              "--feedback_decay=1"),
        local("topk512 by senders", *sparse, "--topk_divisor=senders", "--topk=512", "--topk_bits=4"),
    ]


# (local steps, fragments, steps of overlap, outer learning rate, outer momentum) that --mode=auto chooses for gpt-nano, two
# workers, 2000 steps of 50 ms and more over links of 10, 100 and 1000 Mbit/s with 0, 50 and 150 ms (results/scaling.md); int4
# both ways.
CHOSEN = [(36, 4, 8, 0.8, 0.8), (40, 4, 10, 0.8, 0.8), (72, 4, 10, 0.8, 0.8), (20, 4, 1, 0.6, 0.9), (20, 4, 2, 0.6, 0.9),
          (20, 4, 3, 0.6, 0.9), (20, 1, 10, 0.6, 0.9), (8, 1, 0, 0.6, 0.9)]
# Beside them: a longer memory in long windows, and others that were near.
OTHERS = [(36, 4, 9, 0.6, 0.9), (40, 4, 10, 0.6, 0.9), (72, 4, 10, 0.6, 0.9), (40, 4, 10, 0.6, 0.8), (40, 4, 10, 0.9, 0.7),
          (32, 4, 8, 0.6, 0.9), (32, 4, 8, 0.8, 0.8), (32, 2, 13, 0.6, 0.9), (20, 2, 10, 0.6, 0.9)]
# What a choice by utilisation alone comes to there; what the few steps cost is why it is none (common/plan/loss_estimate.cc).
TOO_FEW_STEPS = [(3, 1, 3, 0.6, 0.9), (3, 1, 2, 0.6, 0.9), (5, 1, 4, 0.6, 0.9), (9, 1, 6, 0.6, 0.9)]


def chosen_trials(steps, seed):
    workers = 2

    def trial(name, mode, rounds, *flags):
        return Trial(f"{name} (seed {seed})", workers, [
            "--model=gpt-nano", f"--mode={mode}", f"--rounds={rounds}", f"--batch_size={GPT_BATCH // workers}",
            f"--warmup_rounds={rounds // 20}", "--eval_samples=0", "--eval_every=0", f"--seed={seed}", *GPT_OPTIMIZER,
            *flags])

    def chosen(local_steps, fragments, overlap_steps, rate, momentum):
        rounds = steps * fragments // local_steps + (1 if overlap_steps else 0)
        return trial(f"{local_steps}/{fragments}/{overlap_steps} at {rate}/{momentum}", "local_sgd", rounds,
                     f"--local_steps={local_steps}", f"--fragments={fragments}", f"--overlap_steps={overlap_steps}",
                     f"--outer_learning_rate={rate}", f"--outer_momentum={momentum}", *INT4)

    return [trial("sync", "sync", steps), *[chosen(*settings) for settings in CHOSEN + OTHERS + TOO_FEW_STEPS]]


# The speeds of four workers, the slowest six times slower than the fastest. Together they take one hardware thread, so that
# two have room for them and for the server.
SPREAD = [1 / 2, 1 / 4, 1 / 6, 1 / 12]
# Windows that are cut by speed have so much of --local_steps on average, by what was measured: those of the fastest are whole.
CUT_BY_SPEED = 0.43


def unequal_trials(steps, seed):
    """Each sees the samples of sync; in async_local_sgd a round is one worker's."""
    workers = 4

    def trial(name, mode, rounds, *flags, speeds=None):
        return Trial(f"{name} (seed {seed})", workers, [
            "--model=gpt-nano", f"--mode={mode}", f"--rounds={rounds}",
            f"--batch_size={GPT_BATCH // workers}", f"--warmup_rounds={rounds // 20}",
            "--eval_samples=0", "--eval_every=0", f"--seed={seed}", *GPT_OPTIMIZER, *flags], speeds)

    def asynchronous(name, local_steps, *flags, speeds=SPREAD, share=1.0):
        return trial(f"{name} H={local_steps}", "async_local_sgd", int(steps * workers / (local_steps * share)),
                     f"--local_steps={local_steps}", *flags, speeds=speeds)

    runs = [trial("sync", "sync", steps), trial("sync by speed", "sync", steps, "--balance=speed", speeds=SPREAD)]
    for local_steps in (10, GPT_LOCAL_STEPS):
        runs += [
            trial(f"local_sgd H={local_steps}", "local_sgd", steps // local_steps, f"--local_steps={local_steps}",
                  "--outer_momentum=0.9"),
            asynchronous("equal speeds", local_steps, speeds=None),
            asynchronous("spread 6", local_steps),
            *[asynchronous(f"spread 6 at {rate}/{momentum}", local_steps, f"--outer_learning_rate={rate}",
                           f"--outer_momentum={momentum}")
              for rate, momentum in ((0.7, 0.9), (0.7, 0.6), (1, 0.5))],
            asynchronous("by speed", local_steps, "--balance=speed", share=CUT_BY_SPEED),
            asynchronous("heloco", local_steps, "--momentum_correction=heloco", "--outer_momentum=0.6"),
            asynchronous("anchored at the servers", local_steps, "--anchor=server"),
            asynchronous("naive nesterov", local_steps, "--quorum=1", "--outer_momentum=0.9"),
            asynchronous("naive nesterov at 0.07", local_steps, "--quorum=1", "--outer_learning_rate=0.07",
                         "--outer_momentum=0.9"),
        ]
    return runs


# (model, run, optimizer, learning rate, weight decay, flags of the mode). 48,000 samples each, two
# workers. Asynchronous and outer momentum amplify the step, so their rates are smaller.
ASYNC = ["--mode=async", "--rounds=1500", "--batch_size=32", "--warmup_rounds=100"]
SYNC = ["--mode=sync", "--rounds=1500", "--batch_size=16", "--warmup_rounds=20"]
LOCAL = ["--mode=local_sgd", "--local_steps=10", "--rounds=150", "--batch_size=16",
         "--warmup_rounds=2"]
AVERAGE = [*LOCAL, "--outer_optimizer=average"]
NESTEROV = [*LOCAL, "--outer_optimizer=nesterov", "--outer_momentum=0.9"]
DIGITS = [
    ("mlp", "sync", "momentum", "0.2", "0.005", SYNC),
    ("mlp", "async", "momentum", "0.1", "0.005", ASYNC),
    ("mlp", "local_sgd average", "momentum", "0.2", "0.005", AVERAGE),
    ("mlp", "local_sgd nesterov", "momentum", "0.04", "0.005", NESTEROV),
    ("cnn", "sync", "adamw", "1e-2", "0.5", SYNC),
    ("cnn", "async", "adamw", "1e-2", "0.5", ASYNC),
    ("cnn", "local_sgd average", "nesterov", "0.1", "0.005", AVERAGE),
    ("cnn", "local_sgd nesterov", "momentum", "0.02", "0.02", NESTEROV),
]


def digits_trials():
    return [
        Trial(f"{model} {run}", 2, [
            f"--model={model}", f"--optimizer={optimizer}", f"--learning_rate={rate}",
            f"--weight_decay={decay}", "--lr_schedule=cosine", "--eval_samples=0", "--seed=7",
            *mode])
        for model, run, optimizer, rate, decay, mode in DIGITS
    ]


def cpu_name():
    for line in pathlib.Path("/proc/cpuinfo").read_text().splitlines():
        if line.startswith("model name"):
            return line.split(":", 1)[1].strip()
    return platform.processor()


def main():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--bin", type=pathlib.Path, required=True)
    parser.add_argument("--task", choices=["gpt", "digits", "encodings", "low_communication", "chosen", "unequal"], required=True)
    parser.add_argument("--data", type=pathlib.Path, required=True)
    parser.add_argument("--only", default="", help="names of runs, separated by commas")
    parser.add_argument("--rounds", type=int, default=GPT_ROUNDS, help="steps of all tasks but gpt and digits")
    parser.add_argument("--seeds", default="1337", help="of all tasks but gpt and digits, separated by commas")
    parser.add_argument("--workers", default="2", help="of --task=low_communication, separated by commas")
    parser.add_argument("--timeout_s", type=float, default=900)
    arguments = parser.parse_args()

    trials = {"gpt": gpt_trials, "digits": digits_trials,
              "encodings": lambda: [
                  trial for seed in arguments.seeds.split(",")
                  for trial in encodings_trials(arguments.rounds, seed)],
              "chosen": lambda: [
                  trial for seed in arguments.seeds.split(",")
                  for trial in chosen_trials(arguments.rounds, seed)],
              "unequal": lambda: [
                  trial for seed in arguments.seeds.split(",")
                  for trial in unequal_trials(arguments.rounds, seed)],
              "low_communication": lambda: [
                  trial for workers in arguments.workers.split(",")
                  for seed in arguments.seeds.split(",")
                  for trial in low_communication_trials(arguments.rounds, seed, int(workers))]}[arguments.task]()
    wanted = [name for name in arguments.only.split(",") if name]
    trials = [t for t in trials if not wanted or t.name in wanted or t.name.split(" (")[0] in wanted]
    if not trials:
        parser.error(f"--only={arguments.only}: no such run")

    print(f"{datetime.date.today()}, {cpu_name()}, "
          f"data `{arguments.data.name}`\n", flush=True)
    print("| run | held-out loss (nats) | held-out accuracy | samples | seconds | command |")
    print("| --- | --- | --- | --- | --- | --- |", flush=True)
    for trial in trials:
        with Cluster(arguments.bin, arguments.data, trial, arguments.timeout_s) as cluster:
            outcome = cluster.run()
        accuracy = ("" if outcome.heldout_accuracy is None or arguments.task != "digits"
                    else f"{100 * outcome.heldout_accuracy:.2f} %")
        print(f"| {trial.name} | {outcome.heldout_loss:.4f} | {accuracy} | {outcome.samples} "
              f"| {outcome.seconds:.1f} | `{outcome.server_command}` |", flush=True)


if __name__ == "__main__":
    sys.exit(main())

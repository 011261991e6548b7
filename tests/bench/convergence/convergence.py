"""Trains the reference tasks in every mode with the real binaries and prints one Markdown table.

  convergence.py --bin=bazel-bin --task=gpt --data=FILE     (tinyshakespeare: nanoGPT's CPU setting)
  convergence.py --bin=bazel-bin --task=digits --data=DIR   (8x8 digits as IDX files)

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


def digits_trials():
    trials = []
    for model, rate in (("mlp", "2e-3"), ("cnn", "2e-3")):
        common = [f"--model={model}", "--optimizer=adamw", f"--learning_rate={rate}",
                  "--lr_schedule=cosine", "--weight_decay=0.01", "--eval_samples=0", "--seed=7"]
        trials += [
            Trial(f"{model} sync", 2, [*common, "--mode=sync", "--rounds=900", "--batch_size=16",
                                       "--warmup_rounds=20"]),
            Trial(f"{model} async", 2, [*common, "--mode=async", "--rounds=900", "--batch_size=32",
                                        "--warmup_rounds=20"]),
            Trial(f"{model} local_sgd average", 2, [
                *common, "--mode=local_sgd", "--outer_optimizer=average", "--local_steps=10",
                "--rounds=90", "--batch_size=16", "--warmup_rounds=2"]),
            Trial(f"{model} local_sgd nesterov", 2, [
                *common, "--mode=local_sgd", "--outer_optimizer=nesterov", "--local_steps=10",
                "--rounds=90", "--batch_size=16", "--warmup_rounds=2"]),
        ]
    return trials


def cpu_name():
    for line in pathlib.Path("/proc/cpuinfo").read_text().splitlines():
        if line.startswith("model name"):
            return line.split(":", 1)[1].strip()
    return platform.processor()


def main():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--bin", type=pathlib.Path, required=True)
    parser.add_argument("--task", choices=["gpt", "digits"], required=True)
    parser.add_argument("--data", type=pathlib.Path, required=True)
    parser.add_argument("--only", default="", help="names of runs, separated by commas")
    parser.add_argument("--timeout_s", type=float, default=900)
    arguments = parser.parse_args()

    trials = gpt_trials() if arguments.task == "gpt" else digits_trials()
    wanted = [name for name in arguments.only.split(",") if name]
    trials = [t for t in trials if not wanted or t.name in wanted]
    if not trials:
        parser.error(f"--only={arguments.only}: no such run")

    print(f"{datetime.date.today()}, {cpu_name()}, "
          f"data `{arguments.data.name}`\n", flush=True)
    print("| run | held-out loss (nats) | held-out accuracy | samples | seconds | command |")
    print("| --- | --- | --- | --- | --- | --- |", flush=True)
    for trial in trials:
        with Cluster(arguments.bin, arguments.data, trial, arguments.timeout_s) as cluster:
            outcome = cluster.run()
        accuracy = ("" if outcome.heldout_accuracy is None or arguments.task == "gpt"
                    else f"{100 * outcome.heldout_accuracy:.2f} %")
        print(f"| {trial.name} | {outcome.heldout_loss:.4f} | {accuracy} | {outcome.samples} "
              f"| {outcome.seconds:.1f} | `{outcome.server_command}` |", flush=True)


if __name__ == "__main__":
    sys.exit(main())

#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""How fast a program moves gradients and weights through the C API, beside gpu_worker: one worker at a
time, in turns, the same number of bytes, one after the other and not beside computing. Run by
tests/bench/pytorch.sh.

Usage: transfer_rate.py PS_SERVER GPU_WORKER PSCTL LIBRARY [--turns=N] [--width=N]
"""
import argparse
import json
import os
import statistics
import struct
import subprocess
import sys
import tempfile
import time

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__)))))
PIXELS, CLASSES = 64, 10
ROUNDS = 20
SECONDS = 8.0

PROGRAM = """
import sys
import lodestar
worker = lodestar.Worker(coordinator=sys.argv[1], name="program", shared_memory=sys.argv[3] == "1")
width = int(sys.argv[2])
for block, shape in enumerate(([64, width], [width, width], [width, 10])):
  worker.add_tensor(f"block{block}", shape, block=block)
worker.set_data(num_train_samples=64)
worker.allocate()
worker.start()
for step in worker.steps():
  worker.step_done()
"""


def write_images(folder):
    for part in ("train", "t10k"):
        for name, sizes in (("images-idx3", (64, 8, 8)), ("labels-idx1", (64,))):
            count = 1
            for size in sizes:
                count *= size
            with open(os.path.join(folder, f"{part}-{name}-ubyte"), "wb") as file:
                file.write(bytes([0, 0, 8, len(sizes)]) + struct.pack(f">{len(sizes)}i", *sizes))
                file.write(bytes(k % CLASSES for k in range(count)))


def measure(options, kind, has_shared_memory):
    """Bytes per second, both ways together, while this worker communicates."""
    with tempfile.TemporaryDirectory() as folder:
        write_images(folder)
        model = os.path.join(folder, "model.textproto")
        with open(model, "w", encoding="ascii") as file:
            widths = (PIXELS, options.width, options.width, CLASSES)
            file.write('name: "wide" mlp {' + "".join(f" widths: {width}" for width in widths) + "}")
        port_file = os.path.join(folder, "port")
        server = subprocess.Popen(
            [options.server, f"--model={model if kind == 'gpu_worker' else 'client'}",
             "--listen=127.0.0.1:0", "--port_file=" + port_file, "--optimizer=sgd",
             "--learning_rate=1e-6", "--batch_size=1", "--rounds=1000000", "--eval_samples=0"],
            stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        while not os.path.exists(port_file):
            time.sleep(0.05)
        with open(port_file, encoding="ascii") as file:
            address = "127.0.0.1:" + file.read().strip()
        if kind == "gpu_worker":
            command = [options.gpu_worker, "--coordinator=" + address, "--data=" + folder,
                       "--device=cpu", "--threads=1", "--overlap=false",
                       f"--shared_memory={str(has_shared_memory).lower()}"]
        else:
            command = [sys.executable, "-c", PROGRAM, address, str(options.width),
                       str(int(has_shared_memory))]
        environment = {**os.environ, "LODESTAR_LIBRARY": options.library,
                       "PYTHONPATH": os.path.join(ROOT, "worker", "python")}
        worker = subprocess.Popen(command, env=environment, stdout=subprocess.DEVNULL,
                                  stderr=subprocess.DEVNULL)
        begin = time.monotonic()
        try:
            while True:
                time.sleep(0.2)
                answer = subprocess.run([options.psctl, "status", "--json", "--server=" + address],
                                        capture_output=True, text=True, check=False)
                rows = json.loads(answer.stdout)["workers"] if answer.stdout else []
                # Rates are of the last heartbeats.
                if rows and int(rows[0]["rounds_completed"]) >= ROUNDS:
                    moved = rows[0]["push_bytes_per_second"] + rows[0]["pull_bytes_per_second"]
                    if moved > 0 and time.monotonic() - begin > SECONDS:
                        return moved / rows[0]["communication_share"]
                if worker.poll() is not None or server.poll() is not None:
                    raise RuntimeError(f"{kind} or its server has ended")
        finally:
            for process in (worker, server):
                process.kill()
                process.wait()


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    for name in ("server", "gpu_worker", "psctl", "library"):
        parser.add_argument(name, type=os.path.abspath)
    parser.add_argument("--turns", type=int, default=5)
    parser.add_argument("--width", type=int, default=4096)
    options = parser.parse_args()
    elements = (PIXELS + options.width + CLASSES) * options.width
    print(f"| {4 * elements / 1e6:.0f} MB each way | gpu_worker, GB/s, median (all) | C API | ratio |")
    print("|---|---|---|---|")
    for way, has_shared_memory in (("shared memory", True), ("TCP", False)):
        rates = {"gpu_worker": [], "program": []}
        for _ in range(options.turns):
            for kind, found in rates.items():
                found.append(measure(options, kind, has_shared_memory) / 1e9)
        cells = [f"{statistics.median(found):.2f} ({', '.join(f'{rate:.2f}' for rate in sorted(found))})"
                 for found in rates.values()]
        ratio = statistics.median(rates["program"]) / statistics.median(rates["gpu_worker"])
        print(f"| {way} | {cells[0]} | {cells[1]} | {ratio:.2f} |")


if __name__ == "__main__":
    main()

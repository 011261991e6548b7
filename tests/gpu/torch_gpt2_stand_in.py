#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Stands in for tests/bench/gpu/torch_gpt2.py without PyTorch: train_step trains the model on the CPU.

The stand-in takes the flags and prints the lines of torch_gpt2.py. TRAIN_STEP names the program train_step.
"""
import argparse
import array
import json
import os
import pathlib
import random
import struct
import subprocess
import sys

LAYERS, HEADS, WIDTH, CONTEXT, VOCABULARY = 2, 2, 32, 16, 128
# Parts of a layer: name, inputs, outputs. 0 inputs mean a norm.
PARTS = (("ln_1", 0, WIDTH), ("attn.c_attn", WIDTH, 3 * WIDTH), ("attn.c_proj", WIDTH, WIDTH), ("ln_2", 0, WIDTH),
         ("mlp.c_fc", WIDTH, 4 * WIDTH), ("mlp.c_proj", 4 * WIDTH, WIDTH))


def tensors():
    """Yields (name, shape, values) of each tensor."""
    generator = random.Random(1)

    def normal(*shape):
        return list(shape), array.array("f", (generator.gauss(0, 0.02) for _ in range(shape[0] * shape[1])))

    def constant(value, count):
        return [count], array.array("f", [value] * count)

    yield "wte.weight", *normal(VOCABULARY, WIDTH)
    yield "wpe.weight", *normal(CONTEXT, WIDTH)
    for layer in range(LAYERS):
        for name, inputs, outputs in PARTS:
            yield f"h.{layer}.{name}.weight", *(normal(inputs, outputs) if inputs else constant(1, outputs))
            yield f"h.{layer}.{name}.bias", *constant(0, outputs)
    yield "ln_f.weight", *constant(1, WIDTH)
    yield "ln_f.bias", *constant(0, WIDTH)


def write(folder):
    spec = {"name": "small", "gpt": {"num_layers": LAYERS, "num_heads": HEADS, "width": WIDTH, "context": CONTEXT,
                                     "vocabulary": VOCABULARY}}
    header, data = {"__metadata__": {"lodestar.model": json.dumps(spec)}}, b""
    for name, shape, values in tensors():
        begin, data = len(data), data + values.tobytes()
        header[name] = {"dtype": "F32", "shape": shape, "data_offsets": [begin, len(data)]}
    text = json.dumps(header).encode()
    (folder / "weights.safetensors").write_bytes(struct.pack("<Q", len(text)) + text + data)
    generator = random.Random(2)
    tokens = array.array("H", (generator.randrange(VOCABULARY) for _ in range(8 * CONTEXT + 1)))
    (folder / "tokens.bin").write_bytes(tokens.tobytes())


def run(options):
    command = [os.environ["TRAIN_STEP"], "--device=cpu", f"--weights={options.write}/weights.safetensors",
               f"--tokens={options.write}/tokens.bin", f"--batch={options.batch}", f"--steps={options.steps}",
               f"--warmup={options.warmup}", f"--learning_rate={options.learning_rate}"]
    done = subprocess.run(command, check=True, capture_output=True, text=True)
    print("".join(line + "\n" for line in done.stdout.splitlines() if '"step"' in line), end="", flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    for flag in ("--batch", "--steps", "--warmup"):
        parser.add_argument(flag, type=int)
    parser.add_argument("--learning_rate")
    parser.add_argument("--write", type=pathlib.Path)
    parser.add_argument("--again", action="store_true")
    parser.add_argument("--preset", choices=("small",), required=True)
    options = parser.parse_args()
    write(options.write)
    cache = pathlib.Path(os.environ["TORCHINDUCTOR_CACHE_DIR"])
    print(json.dumps({"attention": "flash", "microseconds": 1.0, "was_compiled": (cache / "compiled").exists()}))
    (cache / "compiled").write_text("code", encoding="utf-8")
    print(json.dumps({"device": "stand-in", "chosen_attention": "flash"}), flush=True)
    run(options)
    print(json.dumps({"libraries": ["/stand-in/libcublasLt.so.13"], "memory_bytes": 1 << 20}), flush=True)
    print('{"waiting": true}', flush=True)
    if sys.stdin.readline():
        run(options)


if __name__ == "__main__":
    main()

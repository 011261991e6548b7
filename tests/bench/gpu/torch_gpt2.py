#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Times a GPT-2 training step in PyTorch on a GPU. It is the yardstick for train_step on the same model and data.

It follows the usual recipe: fp32 parameters, bf16 autocast, fused attention, torch.compile, fused AdamW, vocabulary padded
to a multiple of 128. The faster of flash attention and cuDNN's is compiled. Lines of JSON are printed as they come: the
candidates of attention, then each step's time and loss.

With --write=FOLDER, weights N(0, 0.02) go to FOLDER/weights.safetensors under the names and shapes of Hugging Face's GPT-2,
and tokens to FOLDER/tokens.bin. `train_step --weights --tokens` reads both.
"""

import argparse
import ctypes
import json
import math
import pathlib
import struct
import sys
import time

import torch
from torch import nn
from torch.nn import functional

ATTENTION_SECONDS = 2.0  # Time for which each candidate is timed.
TOKEN_BATCHES = 4


class Layer(nn.Module):
    def __init__(self, width, heads):
        super().__init__()
        self.heads = heads
        self.ln_1, self.ln_2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv, self.attn_proj = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.fc, self.mlp_proj = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def forward(self, x):
        batch, tokens, width = x.shape
        q, k, v = (part.view(batch, tokens, self.heads, width // self.heads).transpose(1, 2)
                   for part in self.qkv(self.ln_1(x)).split(width, dim=2))
        y = functional.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.attn_proj(y.transpose(1, 2).reshape(batch, tokens, width))
        return x + self.mlp_proj(functional.gelu(self.fc(self.ln_2(x)), approximate="tanh"))


class Gpt2(nn.Module):
    def __init__(self, layers, heads, width, context, vocabulary):
        super().__init__()
        self.wte, self.wpe = nn.Embedding((vocabulary + 127) // 128 * 128, width), nn.Embedding(context, width)
        self.layers = nn.ModuleList([Layer(width, heads) for _ in range(layers)])
        self.ln_f = nn.LayerNorm(width)

    def forward(self, tokens, targets):
        x = self.wte(tokens) + self.wpe(torch.arange(tokens.shape[1], device=tokens.device))
        for layer in self.layers:
            x = layer(x)
        logits = functional.linear(self.ln_f(x), self.wte.weight)
        return functional.cross_entropy(logits.float().view(-1, logits.shape[-1]), targets.view(-1))


# Sizes of gpu_table.py's GPT2 and SMALL.
PRESETS = {
    "gpt2-124m": {"layers": 12, "heads": 12, "width": 768, "context": 1024, "vocabulary": 50257},
    "small": {"layers": 2, "heads": 2, "width": 32, "context": 16, "vocabulary": 128},
}


def tell(**fields):
    print(json.dumps(fields, allow_nan=False), flush=True)


def start(model):
    """Sets the first weights as GPT-2 does: N(0, 0.02) for matrices and tables, 0 for biases, 1 for scales of norms."""
    for parameter in model.parameters():
        if parameter.dim() >= 2:
            nn.init.normal_(parameter, std=0.02)
    for module in model.modules():
        if isinstance(module, (nn.Linear, nn.LayerNorm)):
            nn.init.zeros_(module.bias)


def tensors_of(model, vocabulary):
    """Yields (name, tensor) in the order of Hugging Face's GPT-2, whose matrices are [inputs, outputs]."""
    yield "wte.weight", model.wte.weight[:vocabulary]
    yield "wpe.weight", model.wpe.weight
    for i, layer in enumerate(model.layers):
        for name, module in (("ln_1", layer.ln_1), ("attn.c_attn", layer.qkv), ("attn.c_proj", layer.attn_proj),
                             ("ln_2", layer.ln_2), ("mlp.c_fc", layer.fc), ("mlp.c_proj", layer.mlp_proj)):
            yield f"h.{i}.{name}.weight", module.weight.t() if isinstance(module, nn.Linear) else module.weight
            yield f"h.{i}.{name}.bias", module.bias
    yield "ln_f.weight", model.ln_f.weight
    yield "ln_f.bias", model.ln_f.bias


def bytes_of(tensor):
    """Returns the bytes of a contiguous tensor on the CPU. numpy may not be installed, so it is not used."""
    return ctypes.string_at(tensor.data_ptr(), tensor.numel() * tensor.element_size())


def write_weights(model, name, preset, path):
    tensors = [(name, tensor.detach().float().cpu().contiguous())
               for name, tensor in tensors_of(model, preset["vocabulary"])]
    spec = {"name": name, "gpt": {"num_layers": preset["layers"], "num_heads": preset["heads"],
                                  **{field: preset[field] for field in ("width", "context", "vocabulary")}}}
    header, offset = {"__metadata__": {"lodestar.model": json.dumps(spec)}}, 0
    for name_of_tensor, tensor in tensors:
        end = offset + 4 * tensor.numel()
        header[name_of_tensor] = {"dtype": "F32", "shape": list(tensor.shape), "data_offsets": [offset, end]}
        offset = end
    text = json.dumps(header).encode()
    text += b" " * ((56 - len(text)) % 64)  # The data start at a multiple of 64 bytes.
    with open(path, "wb") as file:
        file.write(struct.pack("<Q", len(text)) + text)
        for _, tensor in tensors:
            file.write(bytes_of(tensor))


def make_tokens(batch, context, vocabulary):
    """Makes random tokens. Some are frequent, as in texts, so that a few steps lower the loss."""
    places = torch.rand(TOKEN_BATCHES * batch * context + 1)
    return (vocabulary * places.pow(4)).to(torch.int32).clamp(max=vocabulary - 1)


def time_attention(options, preset):
    """Enables the faster of flash attention and cuDNN's at the shape that is trained. Returns its name."""
    switches = {"flash": torch.backends.cuda.enable_flash_sdp, "cuDNN": torch.backends.cuda.enable_cudnn_sdp}
    others = (torch.backends.cuda.enable_mem_efficient_sdp, torch.backends.cuda.enable_math_sdp)

    def only(chosen):
        for name, enable in switches.items():
            enable(name == chosen)
        for enable in others:
            enable(False)

    heads, width = preset["heads"], preset["width"]
    shape = (options.batch, preset["context"], heads, width // heads)
    q, k, v = (torch.randn(shape, device="cuda", dtype=torch.bfloat16).transpose(1, 2).requires_grad_() for _ in range(3))
    dy = torch.randn_like(q)
    seconds = {}
    for name in switches:
        only(name)
        try:
            times, end = [], time.monotonic() + ATTENTION_SECONDS
            while time.monotonic() < end or len(times) < 3:
                begin = time.perf_counter()
                functional.scaled_dot_product_attention(q, k, v, is_causal=True).backward(dy)
                torch.cuda.synchronize()
                times.append(time.perf_counter() - begin)
            seconds[name] = sorted(times)[len(times) // 2]
            tell(attention=name, microseconds=1e6 * seconds[name])
        except RuntimeError as error:
            tell(attention=name, refused=str(error).splitlines()[0])
    if not seconds:
        for enable in (*switches.values(), *others):
            enable(True)
        return "PyTorch's choice"
    fastest = min(seconds, key=seconds.get)
    only(fastest)
    return fastest


def libraries():
    with open("/proc/self/maps", encoding="utf-8") as maps:
        paths = {line.split()[-1] for line in maps if "/" in line}
    return sorted(path for path in paths if "libcublasLt" in path or "libcudnn" in path)


class Training:
    def __init__(self, options, model, tokens, context):
        self.options, self.model, self.context, self.step = options, model, context, 0
        self.has_told_loss = False
        parameters = list(model.parameters())
        groups = [{"params": [p for p in parameters if p.dim() >= 2], "weight_decay": 0.1},
                  {"params": [p for p in parameters if p.dim() < 2], "weight_decay": 0.0}]
        self.optimizer = torch.optim.AdamW(groups, lr=options.learning_rate, betas=(0.9, 0.95), eps=1e-8,
                                           fused=options.device == "cuda")
        self.forward = torch.compile(model) if options.compile else model
        num_batches = (len(tokens) - 1) // (options.batch * context)
        used = num_batches * options.batch * context
        shape = (num_batches, options.batch, context)
        self.inputs = tokens[:used].long().view(shape).to(options.device)
        self.targets = tokens[1:used + 1].long().view(shape).to(options.device)

    def run(self, steps):
        """Prints a line for each step: its number, time by the card's clock, and loss."""
        for _ in range(steps):
            batch = self.step % len(self.inputs)
            clock = Clock(self.options.device)
            with torch.autocast(self.options.device, dtype=torch.bfloat16, enabled=self.options.bf16):
                loss = self.forward(self.inputs[batch], self.targets[batch])
            loss.backward()
            self.optimizer.step()
            self.optimizer.zero_grad(set_to_none=True)
            milliseconds, loss = clock.milliseconds(), loss.item()
            tell(step=self.step, ms=milliseconds, loss=loss if math.isfinite(loss) else None)
            if not math.isfinite(loss) and not self.has_told_loss:
                self.has_told_loss = True
                tell(note=f"the loss of step {self.step} is not a number")
            self.step += 1


class Clock:
    """Measures time by the card's events, or by the machine's clock without a card."""

    def __init__(self, device):
        self.on_card = device == "cuda"
        self.begin = torch.cuda.Event(enable_timing=True) if self.on_card else time.perf_counter()
        if self.on_card:
            self.begin.record()

    def milliseconds(self):
        if not self.on_card:
            return 1e3 * (time.perf_counter() - self.begin)
        end = torch.cuda.Event(enable_timing=True)
        end.record()
        end.synchronize()
        return self.begin.elapsed_time(end)


def parse():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--batch", type=int, default=16, help="samples per step")
    parser.add_argument("--steps", type=int, default=20, help="number of timed steps")
    parser.add_argument("--warmup", type=int, default=5, help="number of untimed steps before the timed ones")
    parser.add_argument("--learning_rate", type=float, default=3e-4, help="learning rate of AdamW")
    parser.add_argument("--write", type=pathlib.Path, help="folder for the first weights and the tokens")
    parser.add_argument("--again", action="store_true",
                        help="after the steps, free memory, print {\"waiting\": true}, and run them again after a line of input")
    parser.add_argument("--preset", choices=list(PRESETS), default="gpt2-124m", help="sizes of the model")
    parser.add_argument("--device", choices=("cuda", "cpu"), default="cuda", help="cpu computes in fp32 without compiling, to compare losses")
    options = parser.parse_args()
    if min(options.batch, options.steps) < 1 or options.warmup < 0:
        parser.error("--batch and --steps must be at least 1, --warmup at least 0")
    options.compile = options.bf16 = options.device == "cuda"
    return options


def main():
    options = parse()
    if options.device == "cuda" and not torch.cuda.is_available():
        sys.exit("torch_gpt2.py: PyTorch sees no GPU; nothing was measured")
    torch.manual_seed(1)
    torch.set_float32_matmul_precision("high")
    preset = PRESETS[options.preset]
    model = Gpt2(**preset).to(options.device)
    start(model)
    tokens = make_tokens(options.batch, preset["context"], preset["vocabulary"])
    if options.write:
        write_weights(model, options.preset, preset, options.write / "weights.safetensors")
        (options.write / "tokens.bin").write_bytes(bytes_of(tokens.to(torch.int16)))
    on_card = options.device == "cuda"
    chosen = time_attention(options, preset) if on_card else "PyTorch's choice"
    tell(device=torch.cuda.get_device_name() if on_card else "cpu", torch=torch.__version__, batch=options.batch,
         chosen_attention=chosen)
    training = Training(options, model, tokens, preset["context"])
    training.run(options.warmup + options.steps)
    tell(libraries=libraries(), memory_bytes=torch.cuda.max_memory_allocated() if on_card else 0)
    if options.again:
        if on_card:
            torch.cuda.empty_cache()
        tell(waiting=True)
        if sys.stdin.readline():
            training.run(options.warmup + options.steps)


if __name__ == "__main__":
    main()

#!/usr/bin/env python3
"""Times a GPT-2 training step in PyTorch on a GPU: the yardstick for ours.

The usual recipe: fp32 parameters, bf16 autocast, fused attention, torch.compile, fused AdamW, vocabulary padded to
50304. Prints one line of JSON.
"""

import argparse
import json
import statistics
import sys

import torch
from torch import nn
from torch.nn import functional


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
    def __init__(self, layers=12, heads=12, width=768, context=1024, vocabulary=50304):
        super().__init__()
        self.wte, self.wpe = nn.Embedding(vocabulary, width), nn.Embedding(context, width)
        self.layers = nn.ModuleList([Layer(width, heads) for _ in range(layers)])
        self.ln_f = nn.LayerNorm(width)

    def forward(self, tokens, targets):
        x = self.wte(tokens) + self.wpe(torch.arange(tokens.shape[1], device=tokens.device))
        for layer in self.layers:
            x = layer(x)
        logits = functional.linear(self.ln_f(x), self.wte.weight)
        return functional.cross_entropy(logits.float().view(-1, logits.shape[-1]), targets.view(-1))


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--batch", type=int, default=16)
    parser.add_argument("--steps", type=int, default=20)
    parser.add_argument("--warmup", type=int, default=5)
    options = parser.parse_args()
    if not torch.cuda.is_available():
        sys.exit("torch_gpt2.py: PyTorch sees no GPU; nothing was measured")
    torch.manual_seed(1)
    torch.set_float32_matmul_precision("high")
    model = Gpt2().cuda()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4, betas=(0.9, 0.95), weight_decay=0.1, fused=True)
    compiled = torch.compile(model)
    tokens = torch.randint(50257, (options.batch, 1024), device="cuda")
    targets = torch.randint(50257, (options.batch, 1024), device="cuda")
    times = []
    for i in range(options.warmup + options.steps):
        begin, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
        begin.record()
        with torch.autocast("cuda", dtype=torch.bfloat16):
            loss = compiled(tokens, targets)
        loss.backward()
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        end.record()
        end.synchronize()
        if i >= options.warmup:
            times.append(begin.elapsed_time(end))
    print(json.dumps({"device": torch.cuda.get_device_name(), "torch": torch.__version__, "batch": options.batch,
                      "ms": times, "median_ms": statistics.median(times),
                      "memory_bytes": torch.cuda.max_memory_allocated(), "loss": loss.item()}))


if __name__ == "__main__":
    main()

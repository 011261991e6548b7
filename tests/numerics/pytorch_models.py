# SPDX-License-Identifier: Apache-2.0
"""Our models in PyTorch, with weights and samples by the formulas of formula_training.h."""

import math

import numpy
import torch
from torch import nn
from torch.nn import functional

MODELS = {
    "mlp": {"kind": "mlp", "widths": [64, 128, 64, 10]},
    "cnn": {"kind": "cnn", "side": 8, "channels": [1, 16, 32], "hidden": 64, "classes": 10},
    "small-gpt": {"kind": "gpt", "layers": 2, "heads": 4, "width": 32, "context": 8, "vocabulary": 40},
    "gpt-nano": {"kind": "gpt", "layers": 4, "heads": 4, "width": 128, "context": 64, "vocabulary": 256},
    "gpt-mini": {"kind": "gpt", "layers": 6, "heads": 6, "width": 384, "context": 256, "vocabulary": 256},
    "mlp-mnist": {"kind": "mlp", "widths": [784, 512, 256, 10]},
    "cnn-mnist": {"kind": "cnn", "side": 28, "channels": [1, 16, 32], "hidden": 128, "classes": 10},
}


class Conv1D(nn.Module):
    """A linear layer with a weight [inputs, outputs], as in Hugging Face's GPT-2."""

    def __init__(self, inputs, outputs):
        super().__init__()
        self.weight = nn.Parameter(torch.empty(inputs, outputs))
        self.bias = nn.Parameter(torch.empty(outputs))

    def forward(self, x):
        return x @ self.weight + self.bias


class GptLayer(nn.Module):
    def __init__(self, width, heads):
        super().__init__()
        self.heads = heads
        self.ln_1 = nn.LayerNorm(width)
        self.qkv = Conv1D(width, 3 * width)
        self.attn_proj = Conv1D(width, width)
        self.ln_2 = nn.LayerNorm(width)
        self.fc = Conv1D(width, 4 * width)
        self.mlp_proj = Conv1D(4 * width, width)

    def forward(self, x):
        batch, tokens, width = x.shape
        q, k, v = (
            part.view(batch, tokens, self.heads, width // self.heads).transpose(1, 2)
            for part in self.qkv(self.ln_1(x)).split(width, dim=2)
        )
        y = functional.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.attn_proj(y.transpose(1, 2).reshape(batch, tokens, width))
        return x + self.mlp_proj(functional.gelu(self.fc(self.ln_2(x)), approximate="tanh"))


class Gpt(nn.Module):
    """Parameters in the order of BuildLayout()."""

    def __init__(self, layers, heads, width, context, vocabulary):
        super().__init__()
        self.wte = nn.Embedding(vocabulary, width)
        self.wpe = nn.Embedding(context, width)
        self.layers = nn.ModuleList([GptLayer(width, heads) for _ in range(layers)])
        self.ln_f = nn.LayerNorm(width)

    def forward(self, tokens):
        x = self.wte(tokens) + self.wpe(torch.arange(tokens.shape[1]))
        for layer in self.layers:
            x = layer(x)
        return functional.linear(self.ln_f(x), self.wte.weight).flatten(0, 1)


class Mlp(nn.Module):
    def __init__(self, widths):
        super().__init__()
        self.layers = nn.ModuleList([nn.Linear(a, b) for a, b in zip(widths, widths[1:])])

    def forward(self, x):
        for layer in self.layers[:-1]:
            x = functional.relu(layer(x))
        return self.layers[-1](x)


class Cnn(nn.Module):
    def __init__(self, side, channels, hidden, classes):
        super().__init__()
        self.convs = nn.ModuleList([nn.Conv2d(a, b, 3, padding=1) for a, b in zip(channels, channels[1:])])
        self.fc0 = nn.Linear(channels[-1] * (side // 2 ** len(self.convs)) ** 2, hidden)
        self.fc1 = nn.Linear(hidden, classes)

    def forward(self, x):
        for conv in self.convs:
            x = functional.max_pool2d(functional.relu(conv(x)), 2)
        return self.fc1(functional.relu(self.fc0(x.flatten(1))))


def make_model(preset):
    arguments = {name: value for name, value in preset.items() if name != "kind"}
    model = {"gpt": Gpt, "mlp": Mlp, "cnn": Cnn}[preset["kind"]](**arguments)
    offset = 0
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            is_scale = "ln_" in name and name.endswith("weight")
            index = numpy.arange(offset, offset + parameter.numel(), dtype=numpy.float64)
            values = (1.0 if is_scale else 0.0) + 0.03 * numpy.sin(1.2345 * index)
            parameter.copy_(torch.from_numpy(values.astype(numpy.float32)).view(parameter.shape))
            offset += parameter.numel()
    return model


def make_batch(preset, batch):
    """Inputs and targets of a batch."""
    if preset["kind"] == "gpt":
        shape, classes = (batch, preset["context"]), preset["vocabulary"]
        targets = batch * preset["context"]
    elif preset["kind"] == "mlp":
        shape, classes, targets = (batch, preset["widths"][0]), preset["widths"][-1], batch
    else:
        shape, classes, targets = (batch, 1, preset["side"], preset["side"]), preset["classes"], batch
    i = numpy.arange(math.prod(shape), dtype=numpy.int64)
    value = i * i * 7 + i * 13 + 5
    if preset["kind"] == "gpt":
        x = torch.from_numpy(value % classes).view(shape)
    else:
        x = torch.from_numpy(((value % 256).astype(numpy.float32)) / numpy.float32(255)).view(shape)
    j = numpy.arange(targets, dtype=numpy.int64)
    return x, torch.from_numpy((j * j * 3 + j * 11 + 1) % classes)


def make_optimizer(model, fused):
    """AdamW; tensors of two or more dimensions decay."""
    parameters = list(model.parameters())
    groups = [
        {"params": [p for p in parameters if p.dim() >= 2], "weight_decay": 0.1},
        {"params": [p for p in parameters if p.dim() < 2], "weight_decay": 0.0},
    ]
    return torch.optim.AdamW(groups, lr=1e-3, betas=(0.9, 0.95), eps=1e-8, fused=fused)

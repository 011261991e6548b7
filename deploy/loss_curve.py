#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Draws the loss curve of a run as an SVG file.

Usage: loss_curve.py METRICS.jsonl OUT.svg [--bits]

METRICS.jsonl is what ps_server writes with --metrics_out: one JSON object per round with train_loss
and, when it was evaluated, heldout_loss, both in nats. --bits draws bits (of a byte-level model:
bits per byte).
"""

import html
import json
import math
import sys

WIDTH, HEIGHT = 860, 440
LEFT, RIGHT, TOP, BOTTOM = 64, 24, 40, 52
MAX_POINTS = 400  # of the training curve; more are averaged


def read_metrics(lines):
    """Returns ([(round, train_loss)], [(round, heldout_loss)]).

    A line cut short by a kill is left out.
    """
    train, heldout = {}, {}
    for line in lines:
        try:
            record = json.loads(line)
        except ValueError:
            continue
        # Rounds that a restart repeated: the last word counts.
        if record.get("train_loss") is not None:
            train[record["round"]] = record["train_loss"]
        if record.get("heldout_loss") is not None:
            heldout[record["round"]] = record["heldout_loss"]
    return sorted(train.items()), sorted(heldout.items())


def thin_out(points, limit=MAX_POINTS):
    """Means of equal runs of points, so that at most `limit` remain."""
    step = -(-len(points) // limit)
    result = []
    for begin in range(0, len(points), max(step, 1)):
        part = points[begin : begin + step]
        result.append(tuple(sum(values) / len(part) for values in zip(*part)))
    return result


def ticks(low, high, count):
    """Round numbers from low to high, about `count` of them."""
    span = max(high - low, 1e-9)
    raw = span / count
    power = 10.0 ** math.floor(math.log10(raw))
    step = next(power * m for m in (1, 2, 5, 10) if power * m >= raw)
    first = math.ceil(low / step - 1e-9)
    last = math.floor(high / step + 1e-9)
    return [round(i * step, 10) for i in range(first, last + 1)]


class Plot:
    def __init__(self, x_max, y_min, y_max):
        self.x_max, self.y_min, self.y_max = max(x_max, 1), y_min, max(y_max, y_min + 1e-6)
        self.parts = []

    def x(self, value):
        return LEFT + (WIDTH - LEFT - RIGHT) * value / self.x_max

    def y(self, value):
        return TOP + (HEIGHT - TOP - BOTTOM) * (self.y_max - value) / (self.y_max - self.y_min)

    def text(self, x, y, text, anchor="middle", fill="#444"):
        self.parts.append(
            f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}" fill="{fill}">'
            f"{html.escape(text)}</text>"
        )

    def axes(self, x_label, y_label):
        for value in ticks(self.y_min, self.y_max, 6):
            y = self.y(value)
            self.parts.append(
                f'<line x1="{LEFT}" x2="{WIDTH - RIGHT}" y1="{y:.1f}" y2="{y:.1f}" stroke="#ddd"/>'
            )
            self.text(LEFT - 8, y + 4, f"{value:g}", "end")
        for value in ticks(0, self.x_max, 8):
            self.text(self.x(value), HEIGHT - BOTTOM + 18, f"{value:g}")
        self.text((LEFT + WIDTH - RIGHT) / 2, HEIGHT - 12, x_label)
        self.text(LEFT - 8, TOP - 16, y_label, "start")

    def curve(self, points, colour, name, legend_x, dots):
        path = " ".join(f"{self.x(x):.1f},{self.y(y):.1f}" for x, y in points)
        self.parts.append(
            f'<polyline points="{path}" fill="none" stroke="{colour}" stroke-width="1.8"/>'
        )
        if dots:
            for x, y in points:
                self.parts.append(
                    f'<circle cx="{self.x(x):.1f}" cy="{self.y(y):.1f}" r="3" fill="{colour}"/>'
                )
        self.text(legend_x, TOP - 16, name, "end", colour)

    def svg(self):
        head = (
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" '
            f'width="{WIDTH}" height="{HEIGHT}" font-family="sans-serif" font-size="12">'
        )
        background = f'<rect width="{WIDTH}" height="{HEIGHT}" fill="white"/>'
        return "\n".join([head, background, *self.parts, "</svg>", ""])


def draw(train, heldout, unit, scale):
    train = [(x, y * scale) for x, y in thin_out(train)]
    heldout = [(x, y * scale) for x, y in heldout]
    values = [y for _, y in train + heldout]
    plot = Plot(max(x for x, _ in train + heldout), min(values) * 0.95, max(values) * 1.02)
    plot.axes("round", unit)
    if train:
        plot.curve(train, "#4878cf", "training", WIDTH - RIGHT - 80, dots=False)
    if heldout:
        plot.curve(heldout, "#d1495b", "held out", WIDTH - RIGHT, dots=True)
    return plot.svg()


def main(arguments):
    in_bits = "--bits" in arguments
    paths = [a for a in arguments if a != "--bits"]
    if len(paths) != 2:
        print(__doc__, file=sys.stderr)
        return 2
    if not paths[1].endswith(".svg"):
        print(f"loss_curve.py: {paths[1]}: the curve is an SVG file; give a name that ends in .svg", file=sys.stderr)
        return 2
    try:
        with open(paths[0], encoding="utf-8") as file:
            train, heldout = read_metrics(file)
    except OSError as error:
        print(f"loss_curve.py: {error}", file=sys.stderr)
        return 1
    if not train and not heldout:
        print(f"loss_curve.py: {paths[0]} has no losses yet", file=sys.stderr)
        return 1
    unit, scale = ("bits", 1 / math.log(2)) if in_bits else ("nats", 1.0)
    try:
        with open(paths[1], "w", encoding="utf-8") as file:
            file.write(draw(train, heldout, unit, scale))
    except OSError as error:
        print(f"loss_curve.py: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

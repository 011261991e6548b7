#!/bin/bash
# The first minutes of a machine with a card: tests/gpu/first_lease.sh [--seconds=N] [--from=STEP] [flags of lease.py]
# In turn: what is there; the conformance suite of devices with --fusion=never and always; attention and loss at GPT-2's
# shapes; a step of GPT-2 124M beside PyTorch; operations; rounds of 512 samples with a server; a summary. Nothing is built or fetched.
# In a clone the programs are those of .lease/lodestar.tar.xz, which deploy/package.sh --out=.lease/lodestar.tar.xz makes.
set -euo pipefail

exec python3 -B "$(dirname "$(readlink -f "$0")")/lease.py" first "$@"

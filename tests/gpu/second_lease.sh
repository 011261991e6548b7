#!/bin/bash
# A later call on a machine with a card: tests/gpu/second_lease.sh [--seconds=N] [--from=STEP] [flags of lease.py]
# In turn: what is there; models; the three modes; memcheck and racecheck; tests named by --again; a step of GPT-2 124M
# beside PyTorch; ncu on attention backward and loss; rounds with four servers; a summary. Nothing is built or fetched.
# In a clone the programs are those of .lease/lodestar.tar.xz, which deploy/package.sh --out=.lease/lodestar.tar.xz makes.
set -euo pipefail

exec python3 -B "$(dirname "$(readlink -f "$0")")/lease.py" second "$@"

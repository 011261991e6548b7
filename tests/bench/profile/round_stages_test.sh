#!/bin/bash
set -euo pipefail
exec python3 -B tests/bench/profile/round_stages_test.py

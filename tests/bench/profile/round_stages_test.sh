#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
set -euo pipefail
exec python3 -B tests/bench/profile/round_stages_test.py

#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
set -euo pipefail
exec python3 -B deploy/scripts_test.py

#!/bin/bash
set -euo pipefail
exec python3 -B deploy/scripts_test.py

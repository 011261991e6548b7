#!/bin/bash
# SPDX-License-Identifier: Apache-2.0

# Refuses C++ sources that clang-format 14 with .clang-format would write in another way.
#   tests/lint/format.sh
# Exit code 77: there is no clang-format 14; other versions format in other ways.
set -euo pipefail
# shellcheck source-path=SCRIPTDIR source=../../deploy/script_help.sh
source "$(dirname "$(readlink -f "$0")")/../../deploy/script_help.sh"
take_no_arguments "$@"
cd "$(dirname "$(readlink -f "$0")")/../.."

program="$(command -v clang-format-14 clang-format | head -n 1)" || true
if [[ -z "$program" ]] || ! "$program" --version | grep -q 'version 14\.'; then
  echo "Nothing was tested: there is no clang-format 14"
  exit 77
fi
find . -path './.*' -prune -o -type f \( -name '*.cc' -o -name '*.h' -o -name '*.cu' -o -name '*.cuh' \) -print0 |
  xargs -0 -P "$(nproc)" -n 50 "$program" --dry-run -Werror --ferror-limit=1 || {
  echo "Format these files with: clang-format -i FILE"
  exit 1
}

#!/bin/bash
# SPDX-License-Identifier: Apache-2.0

# Two sites of two workers each, and their root behind one slow link: tests/bench/sites.sh bytes|cut DATA [flags of sites/sites.py]
#   bytes: what the link carries per round, beside two and four workers that join the root directly
#   cut: the link is cut for a while in the middle of the run: what the sites compute meanwhile, how soon the root
#     goes on, and what becomes of the samples
# DATA is a text file. Needs root, for network namespaces. BAZEL may name another bazel command.
set -euo pipefail

# shellcheck source-path=SCRIPTDIR source=../../deploy/script_help.sh
source "$(dirname "$(readlink -f "$0")")/../../deploy/script_help.sh"
answer_help_with "$(dirname "$(readlink -f "$0")")/sites/sites.py" "$@"

if (($# < 2)) || [[ ! "$1" =~ ^(bytes|cut)$ ]]; then
  show_usage >&2
  exit 2
fi
readonly command="tests/bench/sites.sh $*"
readonly part="$1" data="$(readlink -f "$2")"
shift 2

cd "$(dirname "$(readlink -f "$0")")/../.."
. tests/bench/describe_run.sh

server="$(built_binary //server:ps_server)"
worker_target=//worker:gpu_worker
[[ " $*" == *" --paced"* ]] && worker_target=//tests/bench/scaling:paced_worker
worker="$(built_binary "$worker_target")"
psctl="$(built_binary //deploy/psctl:psctl)"
links="$(built_binary //tests/bench/scaling:virtual_links)"
# shellcheck disable=SC2086  # words
describe_run $command
python3 -B tests/bench/sites/sites.py --part="$part" --ps_server="$server" --gpu_worker="$worker" \
  --virtual_links="$links" --psctl="$psctl" --data="$data" "$@"

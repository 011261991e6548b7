#!/bin/bash
# SPDX-License-Identifier: Apache-2.0

# Runs workspace_status.sh in checkouts and outside of them.
set -euo pipefail

readonly script="$PWD/common/workspace_status.sh"
readonly work="$TEST_TMPDIR"
export HOME="$work" GIT_CEILING_DIRECTORIES="$work" GIT_CONFIG_NOSYSTEM=1

fail() {
  echo "$*" >&2
  exit 1
}

expect() {
  local where="$1" wanted="$2" seen
  seen="$("$where/common/workspace_status.sh")" || fail "$where: exit code $?"
  [[ "$seen" == "$wanted" ]] || fail "$where: printed '$seen', wanted '$wanted'"
}

plant() {
  mkdir -p "$1/common"
  cp "$script" "$1/common/"
}

checkout="$work/checkout"
plant "$checkout"
git -C "$checkout" init --quiet
expect "$checkout" ''  # nothing committed
git -C "$checkout" add .
git -C "$checkout" -c user.name=a -c user.email=a@b commit --quiet --message=first
commit="$(git -C "$checkout" rev-parse HEAD)"
time="$(git -C "$checkout" log -1 --format=%ct)"
expect "$checkout" "BUILD_SCM_REVISION $commit"$'\n'"BUILD_SCM_STATUS Clean $time"
touch "$checkout/untracked"
expect "$checkout" "BUILD_SCM_REVISION $commit"$'\n'"BUILD_SCM_STATUS Clean $time"
echo >>"$checkout/common/workspace_status.sh"
expect "$checkout" "BUILD_SCM_REVISION $commit"$'\n'"BUILD_SCM_STATUS Modified $time"

plant "$work/archive"
expect "$work/archive" ''
plant "$checkout/third_party/archive"
expect "$checkout/third_party/archive" ''

mkdir "$work/without_git"
ln -s "$(command -v bash)" "$(command -v dirname)" "$(command -v readlink)" "$work/without_git/"
PATH="$work/without_git" expect "$checkout" ''

#!/bin/bash
# SPDX-License-Identifier: Apache-2.0

# Tells Bazel, before every build, which commit the sources are of. Prints nothing if they are no
# git checkout: unpacked from an archive, even inside the checkout of another project.
# These keys have no STABLE_ prefix: a change of them alone rebuilds nothing.
set -uo pipefail

cd "$(dirname "$(readlink -f "$0")")/.." || exit 0
top="$(git rev-parse --show-toplevel 2>/dev/null)" || exit 0
[[ "$top" -ef . ]] || exit 0
commit="$(git rev-parse --verify --quiet HEAD)" || exit 0
status=Clean
# No lock: others may use the repository at the same time.
[[ -z "$(git --no-optional-locks status --porcelain --untracked-files=no)" ]] || status=Modified
echo "BUILD_SCM_REVISION $commit"
# In seconds since 1970. Bazel passes no key of another name on.
time="$(git show --no-patch --format=%ct "$commit")"
echo "BUILD_SCM_STATUS $status $time"

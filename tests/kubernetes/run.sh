#!/bin/bash
# SPDX-License-Identifier: Apache-2.0

# Checks deploy/kubernetes: kustomize builds the base and every overlay, all that they make fits the schemas of Kubernetes, and
# the flags in them are flags of our programs. Programs must have been built.
#   tests/kubernetes/run.sh
# Exit code 77: there is no kubectl (its kustomize; that of Debian 12 is too old), or $PYTHON (default: python3) has no
# kubernetes_validate and yaml. tests/registry_tools.sh --install gets what is missing.
set -euo pipefail
# shellcheck source-path=SCRIPTDIR source=../../deploy/script_help.sh
source "$(dirname "$(readlink -f "$0")")/../../deploy/script_help.sh"
take_no_arguments "$@"
cd "$(dirname "$(readlink -f "$0")")/../.."

PATH="$(tests/registry_tools.sh)/bin:$PATH"
python="${PYTHON:-python3}"
command -v kubectl >/dev/null || {
  echo "Nothing was tested: there is no kubectl (tests/registry_tools.sh --install)"
  exit 77
}
if [[ "$(kubectl kustomize deploy/kubernetes/base 2>&1)" == *'unknown field "labels"'* ]]; then
  echo "Nothing was tested: $(command -v kubectl) is too old (tests/registry_tools.sh --install)"
  exit 77
fi
"$python" -c "import kubernetes_validate, yaml" 2>/dev/null || {
  echo "Nothing was tested: $python has no kubernetes_validate (tests/registry_tools.sh --install)"
  exit 77
}
exec "$python" -B tests/kubernetes/manifests_test.py

#!/bin/bash
# Checks deploy/kubernetes: kustomize builds the base and every overlay, all that they make fits the schemas of Kubernetes, and
# the flags in them are flags of our programs. Programs must have been built.
#   tests/kubernetes/run.sh
# Exit code 77: there is no kubectl (its kustomize), or $PYTHON (default: python3) has no kubernetes_validate and yaml (from the
# package registry: pip install kubernetes-validate).
set -euo pipefail
# shellcheck source-path=SCRIPTDIR source=../../deploy/script_help.sh
source "$(dirname "$(readlink -f "$0")")/../../deploy/script_help.sh"
take_no_arguments "$@"
cd "$(dirname "$(readlink -f "$0")")/../.."

python="${PYTHON:-python3}"
command -v kubectl >/dev/null || {
  echo "Nothing was tested: there is no kubectl"
  exit 77
}
"$python" -c "import kubernetes_validate, yaml" 2>/dev/null || {
  echo "Nothing was tested: $python has no kubernetes_validate"
  exit 77
}
exec "$python" -B tests/kubernetes/manifests_test.py

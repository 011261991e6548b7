#!/bin/bash
# Runs the Python example against a real server once per mode.
# Usage: python_client_test.sh PS_SERVER PYTHON_CLIENT PROTO...
set -euo pipefail

readonly server_binary="$1"
readonly client="$2"
shift 2
if ! /usr/bin/python3 -c 'import grpc, google.protobuf' 2>/dev/null; then
  echo "python3-grpcio or python3-protobuf is not installed: install them to run this test" >&2
  exit 1
fi

readonly stubs="${TEST_TMPDIR}/stubs"
mkdir -p "${stubs}"
protoc -I. --python_out="${stubs}" --grpc_out="${stubs}" \
  --plugin=protoc-gen-grpc=/usr/bin/grpc_python_plugin "$@"

server_pid=""
trap '[[ -z "${server_pid}" ]] || kill -9 "${server_pid}" 2>/dev/null || true' EXIT

run_mode() {
  local port_file="${TEST_TMPDIR}/port"
  rm -f "${port_file}"
  "${server_binary}" --listen=127.0.0.1:0 --port_file="${port_file}" --model=client \
    --optimizer=sgd --learning_rate=1 --batch_size=4 --bucket_bytes=2048 "$@" &
  server_pid=$!
  local waited
  for waited in $(seq 200); do
    [[ -s "${port_file}" ]] && break
    kill -0 "${server_pid}"
    sleep 0.05
  done
  PYTHONPATH="${stubs}" PYTHONDONTWRITEBYTECODE=1 /usr/bin/python3 "${client}" \
    --coordinator="127.0.0.1:$(cat "${port_file}")"
  kill -TERM "${server_pid}"
  local code=0
  wait "${server_pid}" || code=$?
  server_pid=""
  # 128 + SIGTERM: the job was not complete.
  if [[ "${code}" != 143 ]]; then
    echo "the server exited with ${code}, wanted 143" >&2
    exit 1
  fi
}

run_mode --mode=sync
run_mode --mode=async
run_mode --mode=local_sgd --outer_optimizer=average --local_steps=2

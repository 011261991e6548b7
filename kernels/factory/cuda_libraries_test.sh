#!/bin/bash
# SPDX-License-Identifier: Apache-2.0

# Where the CUDA plugin gets cuBLASLt from, with a plugin and a library that are made here:
#   cuda_libraries_test.sh COUNT_CUDA_DEVICES
set -euo pipefail
work="$(mktemp -d)"
trap 'rm -rf "$work"' EXIT
environment="$work/environment"
packages="$environment/lib/python3.11/site-packages/nvidia/cu13/lib"
mkdir -p "$work/bin" "$environment/bin" "$packages"
install -m 755 "$1" "$work/bin/count_cuda_devices"

fail() {
  echo "FAILED: $*"
  exit 1
}

# The loader runs without its cache, because this machine may have CUDA.
count_with_path() {
  PATH="$1" /lib64/ld-linux-x86-64.so.2 --inhibit-cache --library-path "$work/bin" "$work/bin/count_cuda_devices"
}

echo 'int Devices(void) { return 7; }' >"$work/cublas.c"
cc -shared -fPIC -Wl,-soname,libcublasLt.so.13 -o "$packages/libcublasLt.so.13" "$work/cublas.c"
echo 'int Devices(void); int LodestarCountCudaDevices(int version, void* error) { return Devices(); }' >"$work/plugin.c"
cc -shared -fPIC -o "$work/bin/liblodestar_cuda.so" "$work/plugin.c" "$packages/libcublasLt.so.13"

# A relative folder of the PATH must not be searched: the owner of the working directory would choose the library.
cd "$environment/bin"
! message="$(count_with_path ".:/usr/bin:/bin")" || fail "found without an environment on the PATH"
for part in "libcublasLt.so.13: cannot open" "no Python environment on the PATH has it as lib/python3"; do
  grep --quiet "$part" <<<"$message" || fail "$part is not said: $message"
done
seen="$(count_with_path "$environment/bin:/usr/bin:/bin")" || fail "not found: $seen"
[[ "$seen" == 7 ]] || fail "another library was loaded: $seen"

# Without a plugin, the library must not be looked for.
rm "$work/bin/liblodestar_cuda.so"
! message="$(count_with_path "$environment/bin:/usr/bin:/bin")" || fail "there is no plugin"
! grep cublas <<<"$message" || fail "cuBLASLt was looked for"

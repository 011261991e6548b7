#!/bin/bash
# SPDX-License-Identifier: Apache-2.0

# Makes programs in a folder run wherever the folder is: strips them, and adds the libraries that they need (all but glibc's and
# CUDA's) with their licences. Prints the Debian packages of these libraries, sorted: "PACKAGE VERSION ARCHITECTURE linked".
#   deploy/relocate.sh FOLDER [--guest]
# FOLDER/bin has programs and plugins. FOLDER/lib, which may be missing, has libraries of Lodestar. Other libraries are added to
# lib/, and licences to licences/.
#   --guest: for libraries that other programs load, such as Python. Those programs may load other versions of the same libraries,
#     so libx.so.1 is renamed to lodestar-libx.so.1. The compiler's libraries must exist only once, so the machine's are used.
set -euo pipefail

fail() {
  echo "relocate.sh: $*" >&2
  exit 1
}

# glibc's own and CUDA's libraries belong to the machine that runs the folder.
machine_libraries='ld-linux.*|libc|libm|libdl|libpthread|librt|libresolv|libutil|libcuda|libcudart|libcublas.*|libnvrtc.*'
folder='' prefix=''
for argument in "$@"; do
  case "$argument" in
    -h | --help)
      sed -n '4,11s/^# \?//p' "$0"
      exit 0
      ;;
    --guest)
      prefix=lodestar-
      machine_libraries+='|libstdc\+\+|libgcc_s'
      ;;
    -*) fail "unknown argument $argument; see --help" ;;
    *)
      [[ -z "$folder" ]] || fail "there are two folders, $folder and $argument; give one"
      folder="$argument"
      ;;
  esac
done
[[ -n "$folder" ]] || fail "the folder is missing; see deploy/relocate.sh --help"
[[ -d "$folder" ]] || fail "the folder $folder does not exist"
mkdir -p "$folder/lib" "$folder/licences"
shopt -s nullglob
own=("$folder"/bin/* "$folder"/lib/*)
((${#own[@]})) || fail "$folder/bin and $folder/lib are empty; put programs or libraries there first"

# The Debian package of a file: /lib is a link to /usr/lib, and packages know their files under either.
owner_of() {
  { dpkg-query --search "$1" "${1#/usr}" "/usr$1" 2>/dev/null || true; } | head -n 1 | cut -d: -f1
}

strip --strip-unneeded "${own[@]}"
# What the loader resolves here.
mapfile -t libraries < <(ldd "${own[@]}" | awk '$2 == "=>" && $3 ~ /^\// { print $3 }' | sort -u)
packages=() renamed=()
for library in "${libraries[@]}"; do
  name="$(basename "$library")"
  [[ "$name" =~ ^($machine_libraries)\.so ]] && continue
  install -m 755 "$library" "$folder/lib/$prefix$name"
  strip --strip-unneeded "$folder/lib/$prefix$name"
  [[ -z "$prefix" ]] || renamed+=(--replace-needed "$name" "$prefix$name")
  package="$(owner_of "$(realpath "$library")")"
  [[ -n "$package" ]] || fail "$library belongs to no Debian package, so its licence is unknown; install the library from a package"
  packages+=("$package")
done
mapfile -t packages < <(printf '%s\n' "${packages[@]}" | sort -u)
for package in "${packages[@]}"; do
  install -m 644 "/usr/share/doc/$package/copyright" "$folder/licences/$package"
done

# --force-rpath: the libraries here count before those of LD_LIBRARY_PATH, which may have others of the same names, as that of a
# conda environment. One change in each call: of several patchelf 0.14 makes nonsense.
# shellcheck disable=SC2016  # the loader knows $ORIGIN
for file in "$folder"/bin/* "$folder"/lib/*; do
  [[ -z "$prefix" ]] || patchelf "${renamed[@]}" "$file"
  [[ -z "$prefix" || "$(basename "$file")" != "$prefix"* ]] || patchelf --set-soname "$(basename "$file")" "$file"
  case "$file" in
    "$folder"/lib/*) patchelf --force-rpath --set-rpath '$ORIGIN' "$file" ;;
    *.so) ;; # a plugin is linked to look there itself
    *) patchelf --force-rpath --set-rpath '$ORIGIN/../lib' "$file" ;;
  esac
done
dpkg-query --show --showformat='${Package} ${Version} ${Architecture} linked\n' "${packages[@]}"

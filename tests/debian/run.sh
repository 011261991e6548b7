#!/bin/bash
# SPDX-License-Identifier: Apache-2.0

# Makes the Debian package, installs it in a fresh root, runs its programs from there, and removes it again.
#   tests/debian/run.sh [FILE.deb]     the package that is there already
# Exit code 77: there is no dpkg-deb, or this is not root.
set -euo pipefail
# shellcheck source-path=SCRIPTDIR source=../../deploy/script_help.sh
source "$(dirname "$(readlink -f "$0")")/../../deploy/script_help.sh"
answer_help "$@"
package="${1:+$(realpath "$1")}"
cd "$(dirname "$(readlink -f "$0")")/../.."

command -v dpkg-deb >/dev/null || {
  echo "Nothing was tested: there is no dpkg-deb"
  exit 77
}
[[ "$(id -u)" == 0 ]] || {
  echo "Nothing was tested: dpkg installs as root only"
  exit 77
}
fail() {
  echo "FAILED: $*" >&2
  exit 1
}

work="$(mktemp -d)"
trap 'rm -rf "$work"' EXIT
if [[ -z "$package" ]]; then
  package="$work/lodestar.deb"
  deploy/deb.sh --out="$package"
fi
root="$work/root"
mkdir -p "$root/var/lib/dpkg"/{info,updates,triggers}
touch "$root/var/lib/dpkg"/{status,available}
# Its one dependency, glibc, is this machine's.
on_root() { dpkg --root="$root" --force-depends --force-not-root --log=/dev/null "$@" >"$work/dpkg.log" 2>&1 || fail "dpkg $*: $(<"$work/dpkg.log")"; }

on_root --install "$package"
for program in ps_server gpu_worker psctl; do
  "$root/usr/bin/$program" --version >"$work/version" || fail "$program does not run"
  grep --quiet "^$program " "$work/version" || fail "$program --version says $(<"$work/version")"
  if ldd "$(readlink -f "$root/usr/bin/$program")" | grep --quiet 'not found'; then fail "$program lacks libraries"; fi
done
for page in ps_server gpu_worker psctl psctl-status psctl-set-learning-rate; do
  file="$root/usr/share/man/man1/$page.1.gz"
  [[ -s "$file" ]] || fail "there is no manual page $page"
  if command -v man >/dev/null; then
    warnings="$(LC_ALL=C.UTF-8 MANROFFSEQ='' MANWIDTH=80 man --warnings -E UTF-8 -l -Tutf8 -Z "$file" 2>&1 >/dev/null)"
    [[ -z "$warnings" ]] || fail "$page: $warnings"
  fi
done
for unit in "$root"/lib/systemd/system/*.service; do
  while read -r program; do
    [[ -x "$root$program" ]] || fail "$unit starts $program, which is not there"
  done < <(sed -n 's/^ExecStart=\([^ ]*\).*/\1/p' "$unit")
done

# A job with nothing but what was installed.
printf 'some words to learn, again and again\n%.0s' {1..400} >"$work/corpus.txt"
"$root/usr/bin/psctl" launch --data="$work/corpus.txt" --device=cpu --exit_when_done -- --model=gpt-nano --rounds=3 \
  --batch_size=2 --eval_samples=8 --checkpoint_dir="$work/run" >"$work/job.log" 2>&1 || fail "a job: $(tail -n 20 "$work/job.log")"
[[ -d "$work/run/round-00000003" ]] || fail "the job has left no checkpoint"

on_root --purge lodestar
left="$(find "$root" -path "$root/var" -prune -o -type f -print)"
[[ -z "$left" ]] || fail "purge leaves $left"
echo "installed, ran, and was removed"

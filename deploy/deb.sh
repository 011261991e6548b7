#!/bin/bash
# SPDX-License-Identifier: Apache-2.0

# Makes a Debian package (12 and later, amd64): programs, manual pages, completions, units of systemd, documents.
#   deploy/deb.sh [--out=FILE.deb]   (default: lodestar_VERSION_amd64.deb in the root of the repository)
#   deploy/deb.sh --from=DIR         builds nothing, and uses the folder that deploy/package.sh --folder=DIR has made
set -euo pipefail

fail() {
  echo "deb.sh: $*" >&2
  exit 1
}

out='' from=''
for argument in "$@"; do
  case "$argument" in
    --out=?*) out="$(realpath -m "${argument#*=}")" ;;
    --from=?*) from="$(realpath "${argument#*=}")" ;;
    -h | --help)
      sed -n '4,6s/^# \?//p' "$0"
      exit 0
      ;;
    *) fail "unknown argument $argument; see --help" ;;
  esac
done
cd "$(dirname "$(readlink -f "$0")")/.."
version="$(sed -n 's/.*kVersion\[\] = "\(.*\)".*/\1/p' common/process/version.h)"
[[ -n "$out" ]] || out="$PWD/lodestar_${version}_amd64.deb"
command -v dpkg-deb >/dev/null || fail "dpkg-deb is not installed; as root, run: apt-get install dpkg"

work="$(mktemp -d)"
trap 'rm -rf "$work"' EXIT
if [[ -z "$from" ]]; then
  from="$work/package"
  deploy/package.sh --folder="$from"
fi
[[ -x "$from/bin/ps_server" ]] || fail "--from=$from has no bin/ps_server; give a folder that deploy/package.sh --folder=DIR made"

root="$work/root"
install -d "$root/DEBIAN" "$root"/usr/{bin,lib/lodestar/bin,share/man/man1,share/doc/lodestar} "$root/lib/systemd/system"
for program in ps_server gpu_worker psctl; do
  install -m 755 "$from/bin/$program" "$root/usr/lib/lodestar/bin/"
  ln -s "../lib/lodestar/bin/$program" "$root/usr/bin/$program"
  deploy/man_pages.py "$root/usr/lib/lodestar/bin/$program" "$root/usr/share/man/man1"
done
completions="$root/usr/share/bash-completion/completions"
install -D -m 644 "$from/deploy/completions/lodestar.bash" "$completions/ps_server"
ln -s ps_server "$completions/gpu_worker"
ln -s ps_server "$completions/psctl"
install -d "$root/usr/share/zsh/vendor-completions"
cat >"$root/usr/share/zsh/vendor-completions/_lodestar" <<'ZSH'
#compdef ps_server gpu_worker psctl
autoload -U +X bashcompinit && bashcompinit
source /usr/share/bash-completion/completions/ps_server
ZSH
# Their libraries are found from where the programs are.
cp -a "$from/lib" "$root/usr/lib/lodestar/"
for unit in "$from"/deploy/systemd/*.service; do
  sed -e 's|/opt/lodestar/bin/|/usr/bin/|' -e 's| Put the package in$||' -e 's|^# /opt/lodestar, and into|# Write into|' "$unit" \
    >"$root/lib/systemd/system/$(basename "$unit")"
done
cp -a "$from"/{README.md,CHANGELOG.md,SECURITY.md,licences,bill_of_materials.spdx.json,deploy,docs} "$root/usr/share/doc/lodestar/"
install -m 644 LICENSE "$root/usr/share/doc/lodestar/copyright"
cat >"$root/DEBIAN/control" <<CONTROL
Package: lodestar
Version: $version
Architecture: amd64
Maintainer: Lodestar <lodestar@localhost>
Depends: libc6 (>= 2.36)
Section: science
Priority: optional
Installed-Size: $(du -sk "$root/usr" | cut -f1)
Description: trains one model on machines that share no fast network
 A ps_server holds the weights; gpu_workers pull them over gRPC, compute
 gradients on a CUDA card or on the CPU, and push them back: every step, as
 they come, or after many local steps. psctl looks at a job and controls it.
CONTROL
find "$root" -newermt '1 second ago' -exec touch --no-dereference --date="@${SOURCE_DATE_EPOCH:-$(date +%s)}" {} +
dpkg-deb --root-owner-group --build "$root" "$out" >/dev/null
echo "$out: $(du -h "$out" | cut -f1)"

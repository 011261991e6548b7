#!/bin/bash
# SPDX-License-Identifier: Apache-2.0

# Runs the units of deploy/systemd under a systemd of its own, in namespaces of this machine. The server is ready once its port is
# open, comes back when it is killed and when it hangs, and saves when it is stopped. The worker says what it waits
# for, comes back when it hangs, before it has joined and after, or in opening its device, and leaves when it is stopped.
# Programs must have been built.
#   tests/systemd/run.sh
# Exit code 77: there is no systemd, this is not root, or it may not make namespaces with a cgroup2 of their own.
set -euo pipefail
# shellcheck source-path=SCRIPTDIR source=../../deploy/script_help.sh
source "$(dirname "$(readlink -f "$0")")/../../deploy/script_help.sh"
take_no_arguments "$@"
cd "$(dirname "$(readlink -f "$0")")/../.."

readonly systemd=/lib/systemd/systemd
nothing() {
  echo "Nothing was tested: $*"
  exit 77
}
[[ -x $systemd ]] || nothing "there is no systemd"
command -v nsenter >/dev/null || nothing "there is no nsenter"
[[ "$(id -u)" == 0 ]] || nothing "namespaces are made as root here"
unshare --mount --pid --fork --net --cgroup sh -c \
  'mount --make-rprivate / && umount -R /sys/fs/cgroup && mount -t cgroup2 none /sys/fs/cgroup' 2>/dev/null ||
  nothing "no namespaces with a cgroup2 can be made"

work="$(mktemp -d)"
pid=''
clean_up() {
  [[ -z "$pid" ]] || kill -KILL "$pid" 2>/dev/null || true
  rm -rf "$work"
}
trap clean_up EXIT
fail() {
  echo "FAILED: $*" >&2
  tail -n 40 "$work/console" >&2
  exit 1
}

# All that systemd's own units may write to is a file system in memory: they clean up folders, too.
cat >"$work/begin" <<'BEGIN'
set -e
mount --make-rprivate /
mount -t tmpfs tmpfs "$WORK/kept"
cp -a "$WORK/bin" "$UNITS" /etc "$WORK/kept/"
mount --move "$WORK/kept" /mnt
for folder in /tmp /var /opt /root /home /srv /media; do
  [ ! -d $folder ] || mount -t tmpfs tmpfs $folder
done
mount -t tmpfs tmpfs /run
mount --bind /mnt/etc /etc
rm -rf /etc/systemd/system /etc/tmpfiles.d
mkdir -p /etc/systemd/system/ps_server.service.d /etc/systemd/system/gpu_worker@.service.d /etc/lodestar /opt/lodestar /var/tmp /var/log /run/systemd
cp -a /mnt/bin /opt/lodestar/bin
cp /mnt/systemd/*.service /etc/systemd/system/
printf '[Service]\nWatchdogSec=4\n' >/etc/systemd/system/ps_server.service.d/test.conf
printf '[Service]\nWatchdogSec=4\n' >/etc/systemd/system/gpu_worker@.service.d/test.conf
printf '[Unit]\nDefaultDependencies=no\nWants=ps_server.service\n' >/etc/systemd/system/lodestar-test.target
printf 'PS_SERVER_FLAGS=--listen=127.0.0.1:50051 --model=gpt-nano --rounds=1000000 --checkpoint_dir=run\n' >/etc/lodestar/ps_server
seq 1 20000 >/srv/numbers.txt
chmod 644 /srv/numbers.txt
printf 'GPU_WORKER_FLAGS=--device=cpu --data=/srv/numbers.txt\n' >/etc/lodestar/gpu_worker
umount -R /sys/fs/cgroup
mount -t cgroup2 none /sys/fs/cgroup
ip link set lo up
exec env -i container=lodestar-test PATH="$PATH" /lib/systemd/systemd --system --unit=lodestar-test.target --log-target=console --show-status=no
BEGIN
mkdir "$work/bin" "$work/kept"
cp bazel-bin/server/ps_server bazel-bin/worker/gpu_worker bazel-bin/deploy/psctl/psctl "$work/bin/"
WORK="$work" UNITS=deploy/systemd \
  unshare --mount --pid --fork --mount-proc --net --cgroup --kill-child sh "$work/begin" >"$work/console" 2>&1 &
pid=$!
disown "$pid"

# The systemd itself is the child of unshare.
inside() { nsenter --target "$(pgrep --parent "$pid")" --mount --pid --net --cgroup "$@"; }
unit=ps_server
property() { inside systemctl show --property="$1" --value "$unit" 2>/dev/null; }
wait_for() {  # WHAT COMMAND...
  local i
  for ((i = 0; i < 300; ++i)); do
    if "${@:2}" >/dev/null 2>&1; then return; fi
    kill -0 "$pid" 2>/dev/null || fail "systemd has ended, before $1"
    sleep 0.1
  done
  inside systemctl status --no-pager "$unit" >&2 || true
  fail "no $1"
}
is() { [[ "$(property "$1")" == "$2" ]]; }
begins_with() { [[ "$(property "$1")" == "$2"* ]]; }
answers() { inside /opt/lodestar/bin/psctl status || (($? != 129)); }  # whatever it says of the job

wait_for "readiness" is ActiveState active
wait_for "word of what it does" is StatusText "serves its shard"
wait_for "answer" answers
[[ "$(property DynamicUser)" == yes ]] || fail "it is not a user of its own"

first="$(property MainPID)"
inside kill -KILL "$first"
wait_for "restart after it was killed" is NRestarts 1
wait_for "readiness after that" is SubState running
wait_for "answer after that" answers

inside kill -STOP "$(property MainPID)"
wait_for "restart after it hung" is NRestarts 2
wait_for "readiness after that" is SubState running
wait_for "answer after that" answers

inside systemctl stop ps_server
is ActiveState inactive || fail "after a stop it is $(property ActiveState) ($(property Result))"
is Result success || fail "a stop counts as $(property Result)"

unit=gpu_worker@0
inside systemctl start --no-block "$unit"
wait_for "word of what the worker waits for" begins_with StatusText "not connected: coordinator 127.0.0.1:50051"
is ActiveState active || fail "without a server the worker is $(property ActiveState)"
inside kill -STOP "$(property MainPID)"
wait_for "restart of a worker that hung while it waited for servers" is NRestarts 1
wait_for "word of what the worker waits for" begins_with StatusText "not connected: coordinator 127.0.0.1:50051"
inside systemctl start ps_server
wait_for "word that it computes" begins_with StatusText "computes"
is NRestarts 1 || fail "a worker that waited for servers was taken for one that hangs"
inside kill -STOP "$(property MainPID)"
wait_for "restart of the worker after it hung" is NRestarts 2
wait_for "readiness after that" is SubState running
inside systemctl stop "$unit"
is ActiveState inactive || fail "after a stop the worker is $(property ActiveState) ($(property Result))"
is Result success || fail "a stop of the worker counts as $(property Result)"

# A driver that never answers: one thread of the worker hangs, and the others do not.
printf '#include <unistd.h>\n__attribute__((constructor)) static void Hang(void) { for (;;) pause(); }\n' |
  gcc -shared -fPIC -x c - -o "$work/liblodestar_cuda.so"
inside tee /opt/lodestar/bin/liblodestar_cuda.so <"$work/liblodestar_cuda.so" >/dev/null
printf 'GPU_WORKER_FLAGS=--device=cuda --stall_timeout=2s --data=/srv/numbers.txt\n' | inside tee /etc/lodestar/gpu_worker >/dev/null
unit=gpu_worker@1
inside systemctl start --no-block "$unit"
wait_for "word that the worker hangs" begins_with StatusText "this worker hangs: it opens its device"
wait_for "restart of a worker whose device hangs" is NRestarts 1
inside systemctl stop "$unit"
echo "the server was ready, came back twice, and stopped; the worker waited, came back three times, and stopped"

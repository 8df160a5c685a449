#!/bin/sh
# Runs a command in a guest that has RDMA devices, because few machines have: QEMU without hardware
# support, Debian's kernel, this machine's own files (read-only, with what the guest writes above
# them in its memory), and rdma_rxe. So what was just built runs there as it is.
#
#     guest.sh [-t SECONDS] FOLDER COMMAND...
#
# FOLDER keeps the kernel, which the first run downloads. The environment's TUTTI_*, UCX_* and
# GTEST_* go along. Exits with the command's status; with 124 when it, or the guest, took longer
# than SECONDS (default 120); with 77 and one line when something is missing here.
#
# The guest's times say nothing of any hardware's, and two devices of one guest reach each other
# only in themselves: ranks are processes that share a device.
set -eu

seconds=120
if [ "$1" = -t ]; then seconds=$2; shift 2; fi
folder=$1
shift
here=$(cd "$(dirname "$0")" && pwd)

skip() { echo "skipped: $*" >&2; exit 77; }
for program in qemu-system-x86_64 busybox cpio modprobe depmod ip rdma timeout; do
  PATH=$PATH:/usr/sbin:/sbin command -v $program >/dev/null ||
    skip "$program is not installed (cmake/packages.sh rdma)"
done
PATH=$PATH:/usr/sbin:/sbin
"$here/kernel.sh" "$folder"
folder=$(cd "$folder" && pwd)
release=$(cat "$folder/release")

run=$(mktemp -d "$folder/run.XXXXXX")
watchdog=
cleanup() {
  [ -z "$watchdog" ] || kill "$watchdog" 2>/dev/null || true
  rm -rf "$run"
}
trap cleanup EXIT
trap 'exit 130' INT TERM HUP

# The guest's first file system: busybox, and the modules that lead to the host's.
mkdir -p "$run/initramfs/bin" "$run/initramfs/modules" "$run/exchange"
cp "$(command -v busybox)" "$run/initramfs/bin/busybox"
cp "$here/guest_init.sh" "$run/initramfs/init"
ln -s busybox "$run/initramfs/bin/sh"
for module in virtio_pci 9pnet_virtio 9p overlay; do
  modprobe -d "$folder/unpacked" -S "$release" --show-depends $module
done | awk '$1 == "insmod" && !seen[$2]++ {print $2}' >"$run/modules"
while read -r module; do
  cp "$module" "$run/initramfs/modules/"
  basename "$module"
done <"$run/modules" >"$run/initramfs/modules/order"
(cd "$run/initramfs" && find . | cpio --quiet -o -H newc | gzip -1) >"$run/initramfs.gz"

# What the guest is to do. bash quotes it.
printf "KERNEL='%s'\nFOR=%s\n" "$folder/unpacked/lib/modules" "$seconds" >"$run/exchange/settings"
bash -c '
  printf "cd %q\n" "$PWD"
  for name in $(compgen -e); do
    case $name in TUTTI_* | UCX_* | GTEST_*) printf "export %s=%q\n" "$name" "${!name}" ;; esac
  done
  printf "export HOME=/root PATH=%q\n" /usr/sbin:/usr/bin:/sbin:/bin
  printf "exec"
  printf " %q" "$@"
  printf "\n"' bash "$@" >"$run/exchange/command"

# The TSC is one for all of QEMU's processors; the kernel would take a slow device for the clock.
# A guest that hangs is ended: it has 30 s more than the command to boot and to go off.
share() { echo "local,path=$1,mount_tag=$2,security_model=none,multidevs=remap$3"; }
timeout --foreground --kill-after=5 $((seconds + 30)) \
  qemu-system-x86_64 -accel tcg,thread=multi -cpu qemu64 -smp 2 -m 2048 \
  -nodefaults -no-user-config -display none -no-reboot -nic none \
  -kernel "$folder/vmlinuz" -initrd "$run/initramfs.gz" \
  -append "console=ttyS0 quiet panic=-1 mitigations=off tsc=reliable clocksource=tsc" \
  -virtfs "$(share / host ,readonly=on)" -virtfs "$(share "$run/exchange" exchange '')" \
  -serial "file:$run/console" -serial stdio </dev/null &
watchdog=$!
code=0
wait "$watchdog" || code=$?
watchdog=

if [ -s "$run/exchange/status" ]; then exit "$(cat "$run/exchange/status")"; fi
echo "guest: ended without a status (QEMU: $code); its console:" >&2
tail -n 30 "$run/console" >&2
[ "$code" -ne 124 ] || exit 124
exit 1

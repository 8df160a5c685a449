#!/bin/sh
# Debian's kernel, unpacked into a folder and not installed: for the guest (guest.sh). Downloads its
# package once. Usage: kernel.sh FOLDER; leaves FOLDER/vmlinuz, FOLDER/release and FOLDER/modules.
# Exits with 77 and a line where it cannot be had.
set -eu

folder=$1
mkdir -p "$folder"
exec 9>"$folder/lock"
flock 9  # two runs at a time unpack it once
[ -e "$folder/release" ] && exit 0

skip() { echo "skipped: $*" >&2; exit 77; }
command -v apt-get >/dev/null || skip "the guest's kernel is a Debian package, and apt-get is not here"
package=$(apt-cache depends linux-image-amd64 2>/dev/null | sed -n 's/^ *Depends: *\(linux-image-.*\)/\1/p')
[ -n "$package" ] || skip "apt knows no package linux-image-amd64 (apt-get update?)"

rm -rf "$folder/unpacked" "$folder/download"
mkdir -p "$folder/download"
chmod 777 "$folder/download"  # apt downloads as a user of its own
(cd "$folder/download" && timeout 240 apt-get -qq -o Acquire::Retries=3 download "$package" >&2) ||
  skip "apt-get could not download $package"
dpkg -x "$folder"/download/*.deb "$folder/unpacked"
release=$(ls "$folder/unpacked/lib/modules")
depmod -b "$folder/unpacked" "$release"
mv "$folder"/unpacked/boot/vmlinuz-* "$folder/vmlinuz"
ln -sfn unpacked/lib/modules "$folder/modules"
rm -rf "$folder/download" "$folder/unpacked/usr"
echo "$release" >"$folder/release"

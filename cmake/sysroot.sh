#!/bin/sh
# Unpacks the Debian packages of another architecture that the library is built with, for a cross compiler
# (cmake/aarch64.cmake). Nothing is installed; apt keeps lists and packages of its own in the folder.
# Usage: sysroot.sh ARCHITECTURE FOLDER, as sysroot.sh arm64 build/sysroot-arm64
set -eu

architecture=$1
mkdir -p "$2"
folder=$(cd "$2" && pwd)
packages="libc6-dev libstdc++-12-dev libhwy-dev libhwloc-dev libxxhash-dev libzstd-dev libpugixml-dev libsodium-dev libibverbs-dev
  libucx-dev libfmt-dev libspdlog-dev libcli11-dev nlohmann-json3-dev libpython3-dev libpython3.11-dev
  python3.11 python3-distutils"
# What is there may have been unpacked for an older list.
[ "$(cat "$folder/complete" 2>/dev/null)" != "$packages" ] || exit 0

apt=$folder/apt
mkdir -p "$apt/lists/partial" "$apt/cache/archives/partial"
: >"$apt/status"
apt_get() {
  # shellcheck disable=SC2086
  apt-get -qq -o APT::Architecture="$architecture" -o APT::Architectures="$architecture" \
    -o Dir::State::lists="$apt/lists" -o Dir::State::status="$apt/status" -o Dir::Cache="$apt/cache" \
    -o Acquire::Retries=3 -o APT::Sandbox::User=root -o Debug::NoLocking=1 "$@"
}
apt_get update
# shellcheck disable=SC2086
apt_get install --download-only --yes --no-install-recommends $packages
for package in "$apt"/cache/archives/*.deb; do
  dpkg-deb -x "$package" "$folder"
done
rm -rf "$apt"
echo "$packages" >"$folder/complete"

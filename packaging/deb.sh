#!/bin/sh
# Makes the Debian packages of this source tree, in OUT: `make deb`. Usage: deb.sh OUT
# With the CUDA modules where nvcc is, unless TUTTI_CUDA=OFF; with the Python package where TUTTI_PYTHON names an environment that
# has nanobind (tests/bindings/python/environment.sh makes one). The build is one of its own: 20 minutes on two cores.
set -eu

root=$(cd "$(dirname "$0")/.." && pwd)
out=$(mkdir -p "$1" && cd "$1" && pwd)
rm -f "$out"/*.deb "$out"/*.changes "$out"/*.buildinfo  # of another version, perhaps

profiles=
if [ "${TUTTI_CUDA:-}" != OFF ] && { command -v nvcc >/dev/null || [ -x /usr/local/cuda/bin/nvcc ]; }; then
  profiles=pkg.tutti.cuda
fi
[ -n "${TUTTI_PYTHON:-}" ] || profiles="$profiles pkg.tutti.nopython"

archive=$("$root/packaging/sources.sh" "$out")
sources=${archive%.tar.xz}
rm -rf "$sources"
tar -xf "$archive" -C "$out"
cp -r "$sources/packaging/debian" "$sources/debian"
cd "$sources"
DEB_BUILD_OPTIONS="parallel=${JOBS:-$(nproc)}" DEB_BUILD_PROFILES=$(echo "$profiles") \
  dpkg-buildpackage --build=binary --no-sign --check-builddeps
rm -rf "$sources"
cd "$out"
lintian --fail-on error,warning --tag-display-limit 0 ./*.changes
ls -l ./*.deb

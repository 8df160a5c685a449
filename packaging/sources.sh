#!/bin/sh
# Makes OUT/tutti-VERSION.tar.xz: the tracked files, the same bits for the same commit. It builds without a
# network. Usage: sources.sh OUT
set -eu

root=$(cd "$(dirname "$0")/.." && pwd)
out=$(mkdir -p "$1" && cd "$1" && pwd)
version=$(sed -n 's/^project(tutti VERSION \([0-9.]*\).*/\1/p' "$root/CMakeLists.txt")
cd "$root"
if [ -e .git ]; then
  files=$(git ls-files)
  time=@$(git log -1 --format=%ct)
else
  files=$(find . -type f -not -path './build*' | sed 's,^[.]/,,' | LC_ALL=C sort)
  time=@$(stat -c %Y CMakeLists.txt)
fi
echo "$files" | tar --create --xz --file "$out/tutti-$version.tar.xz" --files-from - --owner 0 --group 0 \
  --numeric-owner --mtime "$time" --sort name --transform "s,^,tutti-$version/,"
echo "$out/tutti-$version.tar.xz"

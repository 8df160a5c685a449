#!/bin/sh
# Installs the Debian packages of some groups of cmake/packages.txt, as far as they are missing.
# Touches neither the network nor apt when nothing is. Usage: cmake/packages.sh GROUP...
set -eu

list=$(dirname "$0")/packages.txt
wanted=$(awk -v groups=" $* " '!/^#/ && index(groups, " " $1 " ") {print $2}' "$list")

if ! command -v dpkg-query >/dev/null; then
  echo "packages: this is no Debian, so nothing is installed; the build needs:" $wanted >&2
  exit 0
fi

missing=
for package in $wanted; do
  status=$(dpkg-query -W -f '${db:Status-Status}' "$package" 2>/dev/null || true)
  [ "$status" = installed ] || missing="$missing $package"
done
[ -n "$missing" ] || exit 0

as_root=
if [ "$(id -u)" -ne 0 ]; then
  if ! command -v sudo >/dev/null; then
    echo "packages: root has to install them first: apt-get install$missing" >&2
    exit 1
  fi
  as_root=sudo
fi

echo "packages: installing$missing"
apt() {
  $as_root env DEBIAN_FRONTEND=noninteractive apt-get -qq -o Acquire::Retries=3 \
    -o DPkg::Lock::Timeout=120 -o Dpkg::Use-Pty=0 "$@"
}
apt update
apt install --yes --no-install-recommends $missing >/dev/null

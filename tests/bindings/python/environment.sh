#!/bin/sh
# Makes a virtual environment with what the Python package is built and tested with, unless it is
# there. Usage: environment.sh FOLDER. Fails, with a line that says why, where it cannot be made.
set -eu

folder=$1
packages="nanobind>=3.1 nanobind-backend>=1.0 scikit-build-core>=0.11 numpy ml_dtypes pytest mypy"

fail() {
  echo "the Python package is not built: $*"
  rm -rf "$folder"
  exit 1
}

[ ! -e "$folder/complete" ] || exit 0
python=$(command -v python3) || fail "there is no python3"
"$python" -c 'import sys; sys.exit(sys.version_info < (3, 11))' || fail "python3 is older than 3.11"
"$python" -m venv "$folder" >/dev/null 2>&1 || fail "python3 makes no environments (python3-venv)"
# shellcheck disable=SC2086
"$folder/bin/pip" install --quiet --disable-pip-version-check $packages >"$folder/log" 2>&1 ||
  fail "pip cannot get $packages: $(tail -n 1 "$folder/log")"
touch "$folder/complete"

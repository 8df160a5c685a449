#!/bin/sh
# Makes a virtual environment with what the site is built with (requirements.txt), unless it is there.
# Usage: environment.sh FOLDER. Fails, with a line that says why, where it cannot be made.
set -eu

folder=$1
wanted=$(dirname "$0")/requirements.txt

cmp -s "$wanted" "$folder/complete" && exit 0
fail() {
  echo "the site is not built: $*"
  exit 1
}
python=$(command -v python3) || fail "there is no python3"
"$python" -m venv "$folder" >/dev/null 2>&1 || fail "python3 makes no environments (python3-venv)"
"$folder/bin/pip" install --quiet --disable-pip-version-check -r "$wanted" >"$folder/log" 2>&1 ||
  fail "pip cannot get Sphinx: $(tail -n 1 "$folder/log")"
cp "$wanted" "$folder/complete"

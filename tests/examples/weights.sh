#!/bin/sh
# weights.sh TUTTI PROGRAM: a trainer of three ranks, and a server of two that comes twice.
set -eu
folder=$(mktemp -d)
"$1" run -n 3 --timeout 60 "$2" train "$folder/place" >"$folder/train" 2>&1 &
trainer=$!
trap 'kill $trainer; wait $trainer || true; rm -rf "$folder"' EXIT
for visit in 1 2; do
  "$1" run -n 2 --timeout 20 "$2" serve "$folder/place" 2
  echo "visit $visit is over"
done
grep -q "2 ranks have it" "$folder/train"

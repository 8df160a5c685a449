#!/bin/sh
# Writes the manual pages of `tutti`, of each `tutti X` and of the benchmarks from their own --help, by
# help2man. Usage: man.sh BUILD FOLDER VERSION
set -eu

build=$1
folder=$2
version=$3
inner=$(mktemp -d)
trap 'rm -r "$inner"' EXIT
mkdir -p "$folder"

# page PROGRAM: its first line of help says what it does, perhaps after its name.
page() {
  summary=$("$1" --help | sed -n '/[^ ]/ {s/^[A-Za-z_]*: //; s/[.:;] .*//; s/[.]$//; p; q}')
  help2man --no-info --version-string="$version" --name="$summary" --manual=Tutti --source="Tutti $version" \
    --output="$folder/$(basename "$1").1" "$1"
}

# `tutti run` is no program of its own.
printf '#!/bin/sh\nexec "%s" run "$@"\n' "$(realpath "$build/bin/tutti")" >"$inner/tutti-run"
chmod +x "$inner/tutti-run"
for program in "$build/bin/tutti" "$inner/tutti-run" "$build"/libexec/tutti/tutti-* "$build"/bin/*_perf; do
  page "$program"
done

#!/bin/sh
# Writes the manual pages of `tutti`, of each command and its commands (tutti-plan-show.1 is `tutti plan show`), and of
# the benchmarks from their own --help, by help2man. Usage: man.sh BUILD FOLDER VERSION
set -eu

build=$(realpath "$1")
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

# commands WORD...: the page of `WORD...`, which is no program of its own, and those of its commands.
commands() {
  program=$inner/$(echo "$*" | tr ' ' -)
  printf '#!/bin/sh\nexec "%s/bin/tutti" %s "$@"\n' "$build" "$(echo "$*" | cut -s -d ' ' -f 2-)" >"$program"
  chmod +x "$program"
  page "$program"
  for word in $("$program" --help | awk '/^[^ ]/ {on = /^Subcommands:/} on && /^  [a-z]/ {print $1}'); do
    (commands "$@" "$word")
  done
}

commands tutti
for program in "$build"/bin/*_perf; do
  page "$program"
done

#!/bin/sh
# domains.sh TUTTI PROGRAM [ARGUMENT...]: four ranks, bound to core 0 or 1 in turn. They have to
# succeed, and to say that they see two last-level caches (hwloc is told so).
tutti=$1
shift
log=$(mktemp)
trap 'rm -f "$log"' EXIT
"$tutti" run -n 4 -- sh -c 'exec taskset -c $((TUTTI_RANK % 2)) "$@"' rank "$@" >"$log" 2>&1
status=$?
cat "$log"
grep -q 'with 2 last-level caches' "$log" || { echo "no rank saw two last-level caches"; exit 1; }
exit $status

#!/bin/bash
# A link over RDMA beside perftest on the same device, in turn; to be run in the guest:
#     guest.sh -t 240 FOLDER bash bench.sh VERBS_BENCH [ROUNDS]
# Prints medians of the rounds, and their ratio. MB are 10^6 bytes.
#
# Under both, rdma_rxe stalls now and then until it sends again, more so when the host is busy; so
# both have it do so after 4 ms (timeout 10), and for ever.
set -eu
export TUTTI_VERBS_TIMEOUT=10 TUTTI_VERBS_RETRY=7
bench=$1
rounds=${2:-5}

perftest() {  # PROGRAM BYTES COUNT: the column that counts of its last line
  local program=$1 out=/tmp/perftest.$$ column
  column=$([ "$program" = ib_write_lat ] && echo 5 || echo 4)
  "$program" -d rxe0 -x 1 -u 10 -s "$2" -n "$3" >/dev/null 2>&1 &
  for try in 1 2 3 4 5 6; do
    sleep 0.5
    "$program" -d rxe0 -x 1 -u 10 -s "$2" -n "$3" 10.8.0.1 >$out 2>&1 && break
  done
  wait
  # MB of perftest are 2^20 bytes.
  awk -v c="$column" '$1 ~ /^[0-9]+$/ {print(c == 4 ? $c * 1.048576 : $c)}' $out
}
median() { sort -n | awk '{v[NR] = $1} END {print v[int((NR + 1) / 2)]}'; }

compare() {  # lat|bw BYTES COUNT
  local theirs=() ours=() program=ib_write_$1
  for ((i = 0; i < rounds; ++i)); do
    theirs+=("$(perftest "$program" "$2" "$3")")
    ours+=("$("$bench" "$1" "$2" "$3")")
  done
  local t o
  t=$(printf '%s\n' "${theirs[@]}" | median)
  o=$(printf '%s\n' "${ours[@]}" | median)
  awk -v k="$1" -v b="$2" -v t="$t" -v o="$o" -v p="$program" 'BEGIN {
    printf "bench %s %8d bytes: link %8.2f %s, %s %8.2f %s, ratio %.2f\n",
           k, b, o, k == "lat" ? "us" : "MB/s", p, t, k == "lat" ? "us" : "MB/s", o / t }'
}

compare lat 8 1000
compare lat 4096 500
compare bw 4096 2000
compare bw 16384 800
compare bw 65536 300

#!/bin/bash
# Puts into a window over RDMA beside ib_write_bw on the same device, in turn; to be run in the guest:
#     guest.sh -t 300 FOLDER bash put_bench.sh TUTTI_COMMAND PUT_PERF [ROUNDS]
# Prints medians of the rounds, and their ratio. MB are 10^6 bytes. bench.sh says why the processes
# are bound, and why the timeouts are short.
set -eu
export TUTTI_VERBS_TIMEOUT=10 TUTTI_VERBS_RETRY=7 TUTTI_TRANSPORT=verbs
tutti=$1 put_perf=$2 rounds=${3:-5}

write_bw() {  # BYTES COUNT
  taskset -c 0 ib_write_bw -d rxe0 -x 1 -u 10 -s "$1" -n "$2" >/dev/null 2>&1 &
  for try in 1 2 3 4 5 6; do
    sleep 0.5
    taskset -c 1 ib_write_bw -d rxe0 -x 1 -u 10 -s "$1" -n "$2" 10.8.0.1 >/tmp/perftest.$$ 2>&1 && break
  done
  wait
  # MB of perftest are 2^20 bytes.
  awk '$1 ~ /^[0-9]+$/ {print $4 * 1.048576}' /tmp/perftest.$$
}
puts() {  # BYTES COUNT
  "$tutti" run -n 2 -- sh -c \
    'TUTTI_HOST_ID=host$TUTTI_RANK exec taskset -c $TUTTI_RANK "$@"' sh \
    "$put_perf" -b "$1" -e "$1" -n "$2" -w 3 -N 1 2>/tmp/put_perf.$$ |
    awk '$1 ~ /^[0-9]+$/ {print $5 * 1000; if ($8 != 0) print "wrong data" >"/dev/stderr"}'
}
median() { printf '%s\n' "$@" | sort -n | awk '{v[NR] = $1} END {print v[int((NR + 1) / 2)]}'; }

for size in "65536 300" "1048576 30" "4194304 10"; do
  writes=() ours=()
  for ((i = 0; i < rounds; ++i)); do
    # shellcheck disable=SC2086
    writes+=("$(write_bw $size)") ours+=("$(puts $size)")
  done
  awk -v s="${size% *}" -v w="$(median "${writes[@]}")" -v o="$(median "${ours[@]}")" 'BEGIN {
    printf "put %7d bytes: %.1f MB/s, ib_write_bw %.1f (ratio %.2f)\n", s, o, w, o / w}'
done

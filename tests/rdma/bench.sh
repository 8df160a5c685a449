#!/bin/bash
# A link over RDMA, and send(), recv() and all_reduce() of a communicator, beside perftest on the same
# device, in turn; to be run in the guest:
#     guest.sh -t 240 FOLDER bash bench.sh WIRE_BENCH [ROUNDS [sums]]
# With `sums`, the all_reduces alone.
# Prints medians of the rounds, and their ratios. The receiver of ib_write_bw sleeps, ours
# does when it is idle, and that of ib_send_bw polls. MB are 10^6 bytes.
#
# Each side has a processor of its own: two that spin on one take a tick of the clock for each message.
# Under both, rdma_rxe stalls now and then until it sends again, more so when the host is busy; so
# both have it do so after 4 ms (timeout 10), and for ever.
set -eu
export TUTTI_VERBS_TIMEOUT=10 TUTTI_VERBS_RETRY=7 TUTTI_TRANSPORT=verbs
bench=$1
rounds=${2:-5}

perftest() {  # PROGRAM BYTES COUNT: the column that counts of its last line
  local program=$1 out=/tmp/perftest.$$ column
  column=$([[ $program = *_lat ]] && echo 5 || echo 4)
  taskset -c 0 "$program" -d rxe0 -x 1 -u 10 -s "$2" -n "$3" >/dev/null 2>&1 &
  for try in 1 2 3 4 5 6; do
    sleep 0.5
    taskset -c 1 "$program" -d rxe0 -x 1 -u 10 -s "$2" -n "$3" 10.8.0.1 >$out 2>&1 && break
  done
  wait
  # MB of perftest are 2^20 bytes.
  awk -v c="$column" '$1 ~ /^[0-9]+$/ {print(c == 4 ? $c * 1.048576 : $c)}' $out
}
median() { printf '%s\n' "$@" | sort -n | awk '{v[NR] = $1} END {print v[int((NR + 1) / 2)]}'; }

compare() {  # lat|bw BYTES COUNT
  local writes=() sends=() ours=() ranks=()
  for ((i = 0; i < rounds; ++i)); do
    writes+=("$(perftest "ib_write_$1" "$2" "$3")")
    ours+=("$("$bench" "$1" "$2" "$3")")
    ranks+=("$("$bench" "comm_$1" "$2" "$3")")
    sends+=("$(perftest "ib_send_$1" "$2" "$3")")
  done
  awk -v k="$1" -v b="$2" -v w="$(median "${writes[@]}")" -v o="$(median "${ours[@]}")" \
    -v c="$(median "${ranks[@]}")" -v s="$(median "${sends[@]}")" 'BEGIN {
    u = k == "lat" ? "us" : "MB/s"
    printf "bench %s %7d bytes, %s: link %.2f, send/recv %.2f, ib_write_%s %.2f (ratios %.2f, %.2f), ib_send_%s %.2f (ratios %.2f, %.2f)\n",
           k, b, u, o, c, k, w, o / w, c / w, k, s, o / s, c / s }'
}

compare_sums() {  # BYTES COUNT
  local writes=() ours=()
  for ((i = 0; i < rounds; ++i)); do
    writes+=("$(perftest ib_write_lat "$1" "$2")")
    ours+=("$("$bench" sum_lat "$1" "$2")")
  done
  awk -v b="$1" -v w="$(median "${writes[@]}")" -v o="$(median "${ours[@]}")" 'BEGIN {
    printf "bench sum %7d bytes, us: all_reduce %.2f, ib_write_lat %.2f (ratio %.2f)\n", b, o, w, o / w }'
}

for bytes in 8192 16384 32768 65536; do compare_sums $bytes 200; done
[ "${3:-}" != sums ] || exit 0
compare lat 8 1000
compare lat 4096 500
compare bw 4096 2000
compare bw 16384 800
compare bw 65536 300
compare bw 1048576 30

#!/bin/bash
# Messages in one direction between two hosts (network namespaces of this machine), beside iperf3 with
# writes of the same size (1 MiB at most), in turn; needs root, iproute2 and iperf3:
#     bench/stream.sh BUILD_FOLDER [ROUNDS [BYTES...]]
# Prints GB/s (10^9 bytes) of each round, and the medians. A broadcast of two ranks by `direct` is one
# message a call, from rank 0 to rank 1. Each side is bound to a core; both have reno.
set -eu
build=$(realpath "$1")
rounds=${2:-5}
shift; shift || true
sizes=("${@:-}")
[[ -n ${sizes[0]} ]] || sizes=(65536 262144 1048576)

name=tts$$
id=$(mktemp -u)
trap 'ip netns del ${name}0; ip netns del ${name}1; rm -f "$id"' EXIT
for h in 0 1; do ip netns add $name$h; done
ip link add eth0 netns ${name}0 type veth peer name eth0 netns ${name}1
for h in 0 1; do
  ip -n $name$h addr add 10.99.0.$((h + 1))/24 dev eth0
  ip -n $name$h link set lo up
  ip -n $name$h link set eth0 up
  ip netns exec $name$h sysctl -qw net.ipv4.tcp_congestion_control=reno
  ip netns exec $name$h sysctl -qw net.ipv4.tcp_no_metrics_save=1
done
sleep 1

of_iperf() {  # BYTES
  ip netns exec ${name}1 taskset -c 1 timeout 20 iperf3 -s -1 >/dev/null 2>&1 &
  sleep 0.3
  ip netns exec ${name}0 taskset -c 0 timeout 20 iperf3 -c 10.99.0.2 -l $(($1 < 1048576 ? $1 : 1048576)) \
    -t 1 -f M | awk '/receiver/ {print $7 * 1.048576 / 1000}'
  wait
}
of_tutti() {  # BYTES
  SPACE=$name TUTTI_ALGORITHM=direct ID=$id timeout 60 "$build/bin/tutti" run -n 2 sh -c '
    unset TUTTI_UNIQUE_ID; export TUTTI_ID_FILE=$ID
    exec ip netns exec $SPACE$TUTTI_RANK taskset -c $TUTTI_RANK "$0" "$@"' \
    "$build/bin/broadcast_perf" -b "$1" -e "$1" -n $((2000000000 / $1 + 10)) -w 50 -c 0 |
    awk '$3 == "float" {print $1 / $10 / 1000}'
}
median() { printf '%s\n' "$@" | sort -n | awk '{v[NR] = $1} END {print v[int((NR + 1) / 2)]}'; }

for bytes in "${sizes[@]}"; do
  theirs=() ours=() ratios=()
  for ((i = 0; i < rounds; ++i)); do
    theirs+=("$(of_iperf "$bytes")")
    ours+=("$(of_tutti "$bytes")")
    ratios+=("$(awk -v a="${ours[-1]}" -v b="${theirs[-1]}" 'BEGIN {printf "%.2f", a / b}')")
  done
  echo "$bytes bytes: iperf3 ${theirs[*]}; tutti ${ours[*]}"
  echo "  medians: iperf3 $(median "${theirs[@]}"), tutti $(median "${ours[@]}"), ratio $(median "${ratios[@]}")"
done

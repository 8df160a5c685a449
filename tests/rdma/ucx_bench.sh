#!/bin/bash
# Messages over UCX beside ucx_perftest's active messages, in turn, over UCX's TCP and its shared
# memory, in a network namespace of its own (as root). Prints medians of the rounds, and their ratio.
# Usage: ucx_bench.sh WIRE_BENCH [ROUNDS]
set -eu
if [ "${UCX_BENCH_INSIDE:-}" != 1 ]; then
  exec env UCX_BENCH_INSIDE=1 unshare --net "$0" "$@"
fi
bench=$1 rounds=${2:-5}
# Two ends of one cable in one namespace: what is sent to either goes over the loopback device.
ip link set lo up
ip link add ucxa type veth peer name ucxb
ip address add 10.98.0.1/24 dev ucxa
ip link set ucxa up
ip link set ucxb up
sleep 1
sysctl -qw net.ipv4.tcp_congestion_control=reno
sent() { awk '$1 == "lo:" {print $10}' /proc/self/net/dev; }
median() { printf '%s\n' "$@" | sort -n | awk '{v[NR] = $1} END {print v[int((NR + 1) / 2)]}'; }
port=23000
perftest() {  # lat|bw BYTES COUNT
  port=$((port + 1))
  taskset -c 0 ucx_perftest -p $port -t "ucp_am_$1" -s "$2" -n "$3" -w 20 >/dev/null 2>&1 &
  local server=$! try
  for try in 1 2 3 4 5 6; do
    sleep 0.4
    taskset -c 1 ucx_perftest 127.0.0.1 -p $port -t "ucp_am_$1" -s "$2" -n "$3" -w 20 >$out 2>&1 && break
  done
  wait $server || true
  # Final: count, 50th percentile and average latency; bandwidth in MB (2^20) of the last and all
  awk -v k="$1" '/^Final/ {print(k == "lat" ? $3 : $7 * 1.048576)}' $out
}
out=$(mktemp)
trap 'rm -f "$out"' EXIT
compare() {  # lat|bw BYTES COUNT
  local theirs=() ours=() before between after
  for ((i = 0; i < rounds; ++i)); do
    before=$(sent)
    theirs+=("$(perftest "$@")")
    between=$(sent)
    ours+=("$("$bench" "comm_$1" "$2" "$3")")
    after=$(sent)
  done
  awk -v k="$1" -v b="$2" -v n="$3" -v t="$UCX_TLS" -v p="$(median "${theirs[@]}")" \
    -v o="$(median "${ours[@]}")" -v wp=$((between - before)) -v wo=$((after - between)) 'BEGIN {
    printf "%s %s %d bytes: ours %.2f, ucx_perftest %.2f (ratio %.2f); over sockets %.0f and %.0f MB\n",
           t, k, b, o, p, o / p, wo / 1e6, wp / 1e6 }'
}
export TUTTI_TRANSPORT=ucx
for tls in tcp,self posix,sysv,cma,self; do
  export UCX_TLS=$tls
  [ $tls != tcp,self ] || export UCX_NET_DEVICES=lo
  [ $tls = tcp,self ] || unset UCX_NET_DEVICES
  compare lat 8 20000
  compare lat 4096 10000
  compare lat 65536 2000
  compare bw 65536 10000
  compare bw 1048576 1000
  compare bw 16777216 60
done

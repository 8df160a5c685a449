#!/bin/bash
# Ranks over RDMA, each a host of its own, of which one is killed, or whose link goes down, while
# they exchange; to be run in the guest (guest.sh). Every survivor must say soon what has happened,
# and to whom; nobody may hang, and nothing may be left of the ranks' queue pairs and memory.
# Usage: faults.sh NETWORK_RANK KILLS LINKS_DOWN
set -u
program=$1 kills=$2 downs=$3
patience=20  # s, for what takes less than one
folder=$(mktemp -d)
failed=0 slowest=0
export TUTTI_TRANSPORT=verbs TUTTI_REPORT_AFTER=0

complain() {
  echo "fault $fault: $*"
  tail -n 3 "$folder"/rank.*
  failed=1
}
# start RANKS: each writes to $folder/rank.N
start() {
  rm -f "$folder"/*
  pids=()
  for ((r = 0; r < $1; ++r)); do
    TUTTI_RANK=$r TUTTI_SIZE=$1 TUTTI_HOST_ID=host$r TUTTI_ID_FILE=$folder/id TUTTI_ADDRESS=127.0.0.1 \
      "$program" "$bytes" 60 $memory >"$folder/rank.$r" 2>&1 &
    pids+=($!)
  done
  for ((t = 0; t < 20 * patience; ++t)); do
    [ "$(grep -l READY "$folder"/rank.* 2>/dev/null | wc -l)" -eq "$1" ] && return
    sleep 0.05
  done
  complain "the ranks do not meet"
}
# Until all but rank $1 have ended; what still runs then is killed.
finish() {
  local begun=$EPOCHREALTIME end=$((SECONDS + patience)) r
  for r in "${!pids[@]}"; do
    while [ "$r" != "$1" ] && kill -0 "${pids[r]}" 2>/dev/null; do
      [ $SECONDS -lt $end ] || { complain "rank $r hangs"; break; }
      sleep 0.02
    done
  done
  local took
  took=$(awk -v a="$begun" -v b="$EPOCHREALTIME" 'BEGIN {print b - a}')
  slowest=$(awk -v a="$took" -v b="$slowest" 'BEGIN {print (a > b ? a : b)}')
  { kill -9 "${pids[@]}"; wait "${pids[@]}"; } 2>/dev/null
  grep -q WRONG "$folder"/rank.* && complain "wrong data"
}
nothing_left() {
  local left
  for ((t = 0; t < 40; ++t)); do
    left=$(rdma resource show qp type RC; rdma resource show mr)
    [ -z "$left" ] && return
    sleep 0.05
  done
  complain "left behind: $left"
}

for ((fault = 1; fault <= kills; ++fault)); do
  ranks=$((2 + fault % 3)) victim=$((RANDOM % (2 + fault % 3)))
  bytes=$((fault % 2 == 0 ? 64 : 1 << 20))
  memory=$([ $((fault % 4)) -eq 1 ] || echo window)
  start $ranks
  sleep 0.$((RANDOM % 3))$((RANDOM % 10))
  kill -9 "${pids[victim]}"
  finish $victim
  for ((r = 0; r < ranks; ++r)); do
    [ $r -eq $victim ] || grep -q "ERROR peer_lost $victim .*rank $victim (pid ${pids[victim]} on" \
      "$folder/rank.$r" || complain "rank $r does not name rank $victim"
  done
  nothing_left
done
for ((fault = 1; fault <= downs; ++fault)); do
  bytes=$((1 << 20))
  memory=$([ $((fault % 2)) -eq 0 ] || echo window)
  TUTTI_VERBS_DEVICES=rxe1 start 2
  sleep 0.$((RANDOM % 3))$((RANDOM % 10))
  ip link set d1 down
  finish none
  ip link set d1 up
  for r in 0 1; do
    grep -q "ERROR peer_lost $((1 - r)) .*over rxe1" "$folder/rank.$r" ||
      complain "rank $r does not name the device"
  done
  nothing_left
done
rm -r "$folder"
echo "$kills ranks killed, $downs links down; the slowest survivors had ended after $slowest s"
exit $failed

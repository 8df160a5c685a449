#!/bin/bash
# What `make test-rdma` runs in the guest (guest.sh): first that the guest's devices work at all, with
# the programs of libibverbs and perftest; then wires by themselves; then ranks, each a host of its
# own: all collectives and types, random calls, and faults. Each gets 90 s.
# Usage: suite.sh [TUTTI_COMMAND TEST_FOLDER]   TUTTI_TEST_KILLS: so many ranks are killed
set -u
here=$(dirname "$0")
failed=0

# run NAME COMMAND...: PASS or FAIL, and the output of what fails.
run() {
  local name=$1 start=$SECONDS
  shift
  if timeout --kill-after=5 90 bash -c '"$@"' bash "$@" >/tmp/output 2>&1; then
    echo "PASS  $name ($((SECONDS - start)) s)"
  else
    echo "FAIL  $name (status $?, $((SECONDS - start)) s)"
    sed 's/^/      /' /tmp/output
    failed=1
  fi
}

# A server and its client on rxe0; on address 1 of its table, which is the one for IPv4.
pair() {
  "$@" >/tmp/server 2>&1 &
  local server=$! status=1 try
  for try in 1 2 3 4 5; do  # until the server listens
    sleep 0.5
    "$@" 10.8.0.1 && status=0 && break
    kill -0 $server 2>/dev/null || break
  done
  [ $status -eq 0 ] || { kill $server 2>/dev/null; cat /tmp/server; }
  wait $server && return $status
}
export -f pair

run ibv_rc_pingpong pair ibv_rc_pingpong -d rxe0 -g 1 -n 200
run ib_write_bw pair ib_write_bw -d rxe0 -x 1 -s 65536 -n 100
run ib_write_lat pair ib_write_lat -d rxe0 -x 1 -s 8 -n 200
run ib_send_bw pair ib_send_bw -d rxe0 -x 1 -s 65536 -n 100
[ $# -eq 2 ] || exit $failed
tutti=$1 tests=$2

for name in endpoint_test wire_test wire_places_test; do
  run $name "$tests/$name" --gtest_brief=1 --gtest_filter=*Verbs
done
for name in verbs_test verbs_channels_test verbs_wires_test; do
  run $name "$tests/$name" --gtest_brief=1
  grep -E 'PASSED|SKIPPED' /tmp/output | sed 's/^/      /'
done

# ranks COUNT PROGRAM...: over verbs, which must carry the data: TCP has only what the ranks say when
# they meet, and notes.
ranks() {
  local packets loopback
  packets() { cat /sys/class/infiniband/rxe*/ports/1/hw_counters/sent_pkts | awk "{n += \$1} END {print n}"; }
  packets=$(packets) loopback=$(cat /sys/class/net/lo/statistics/tx_bytes)
  TUTTI_TRANSPORT=verbs "$tutti" run -n "$1" -- sh -c 'TUTTI_HOST_ID=host$TUTTI_RANK exec "$@"' sh \
    "${@:2}" || return
  packets=$(($(packets) - packets))
  loopback=$(($(cat /sys/class/net/lo/statistics/tx_bytes) - loopback))
  echo "$packets packets over RDMA, $loopback bytes over TCP"
  [ $packets -gt 300 ] && [ $loopback -lt $((400 * packets)) ]
}
export tutti tests
export -f ranks

run "matrix, 2 ranks" ranks 2 "$tests/matrix_rank" --every 101
tail -n 2 /tmp/output | sed 's/^/      /'
run "matrix, 4 ranks" ranks 4 "$tests/matrix_rank" --every 307
tail -n 2 /tmp/output | sed 's/^/      /'
# Long messages in memory that the devices reach, so that these read and write it.
run "long messages, 2 ranks" ranks 2 "$tests/matrix_rank" --large --brief --window --every 29
tail -n 2 /tmp/output | sed 's/^/      /'
run "random calls, 2 ranks" ranks 2 "$tests/stress_rank" 2
run "random calls, 4 ranks" ranks 4 "$tests/stress_rank" 2
run "windows, 2 ranks" ranks 2 "$tests/put_rank" 1
# Those of its tests that are short enough here.
run "messages in users' memory" env TUTTI_TRANSPORT=verbs "$tests/lending_test" --gtest_brief=1 \
  --gtest_filter='Protected/Lending.*Overwritten*WINDOWS:*OneCalls*WINDOWS:*NothingLands*WINDOWS'
grep -E 'PASSED|SKIPPED' /tmp/output | sed 's/^/      /'
run "faults" bash "$here/faults.sh" "$tests/network_rank" "${TUTTI_TEST_KILLS:-4}" 1
tail -n 1 /tmp/output | sed 's/^/      /'
exit $failed

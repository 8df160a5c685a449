#!/bin/bash
# What `make test-rdma` runs in the guest (guest.sh): first that the guest's devices work at all, with
# the programs of libibverbs and perftest; then the tests, each of which gets 90 s.
# Usage: suite.sh TEST_PROGRAM...
set -u
failed=0

# run NAME COMMAND...: PASS or FAIL, and the output of what fails.
run() {
  local name=$1 start=$SECONDS
  shift
  if timeout --kill-after=5 90 bash -c '"$@"' bash "$@" >/tmp/output 2>&1; then
    echo "PASS  $name ($((SECONDS - start)) s)"
  else
    echo "FAIL  $name (status $?)"
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
for test in "$@"; do
  run "$(basename "$test")" "$test" --gtest_brief=1
  grep -E 'PASSED|SKIPPED|^bench' /tmp/output | sed 's/^/      /'
done
exit $failed

#!/bin/sh
# on_hosts.sh N PROGRAM [ARGUMENT...]: one rank, which believes that N ranks in a row share a host. So
# ranks of this machine talk as hosts do, over sockets on loopback.
export TUTTI_HOST_ID="host$((TUTTI_RANK / $1))"
shift
exec "$@"

#!/bin/sh
# foreign_proc.sh COMMAND [ARGUMENT...]: runs it in a PID namespace of its own that has the outer one's
# /proc, and then without a /proc. Exits with 77 where that needs rights that there are not.
unshare --fork --pid --mount true 2>/dev/null || { echo "needs root, for namespaces"; exit 77; }
unshare --fork --pid "$@" || exit 1
exec unshare --mount sh -c 'mount -t tmpfs none /proc && exec "$@"' sh "$@"

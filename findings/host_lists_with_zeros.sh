#!/bin/sh
# Packages: python-hostlist 2.3.0, clustershell 1.10.1.
# Guess: both readers of Slurm's host lists make n01, n02, n03 of n[01-3], and refuse n[1-03]; blanks after a comma
#   do not count.
# Seen: python-hostlist takes the width of the first number (n01 n02 n03; n1 n2 n3), ClusterShell refuses both. Of
#   "n1, n2" python-hostlist makes a host whose name begins with a blank. For n[08,9] they give other orders.
set -eu
work=$(mktemp -d); export TMPDIR="$work"; trap 'rm -rf "$work"' EXIT
trap 'exit 130' HUP INT TERM
python3 -m venv "$work/venv"
"$work/venv/bin/pip" install -q --no-compile python-hostlist==2.3.0 clustershell==1.10.1
cat >"$work/program.py" <<'END'
from ClusterShell.NodeSet import NodeSet, NodeSetException
from hostlist import expand_hostlist

for hosts in ("n[08-10]", "n[01-3]", "n[1-03]", "n1, n2", "n[08,9]"):
    try:
        other = list(NodeSet(hosts))
    except NodeSetException:
        other = "refuses"
    print(hosts, "hostlist", expand_hostlist(hosts), "ClusterShell", other)
END
seen=$(timeout --foreground 120 "$work/venv/bin/python" "$work/program.py" 2>"$work/errors") ||
  { cat "$work/errors"; exit 1; }
echo "$seen"
[ "$seen" = "n[08-10] hostlist ['n08', 'n09', 'n10'] ClusterShell ['n08', 'n09', 'n10']
n[01-3] hostlist ['n01', 'n02', 'n03'] ClusterShell refuses
n[1-03] hostlist ['n1', 'n2', 'n3'] ClusterShell refuses
n1, n2 hostlist ['n1', ' n2'] ClusterShell ['n1', 'n2']
n[08,9] hostlist ['n08', 'n9'] ClusterShell ['n9', 'n08']" ] || { echo "this has changed"; exit 1; }

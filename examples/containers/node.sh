#!/bin/sh
# A container as a host: an sshd that lets in the holder of the job's key, /keys/key, which all of
# its containers have. The same key shows the containers to each other.
set -eu
install -D -m 600 /keys/key /root/.ssh/id_ed25519
ssh-keygen -y -f /root/.ssh/id_ed25519 >/root/.ssh/authorized_keys
printf '* %s\n' "$(cat /root/.ssh/authorized_keys)" >/root/.ssh/known_hosts
# Ranks start as the image has it, not as a login shell would.
env | grep -E '^(PATH|LD_LIBRARY_PATH|TUTTI_[A-Z_]*)=' >/root/.ssh/environment || true
exec /usr/sbin/sshd -D -e -o HostKey=/root/.ssh/id_ed25519 -o PermitRootLogin=prohibit-password \
  -o PasswordAuthentication=no -o PermitUserEnvironment=yes -o MaxStartups=1000

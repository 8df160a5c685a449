#!/bin/sh
# Tries the Debian packages of FOLDER as a new user would, in a clean Debian 12: `make test-deb`. Adds and compares numbers with
# ranks of this host, and of four hosts (namespaces with an sshd each); compiles programs by pkg-config and by CMake with the
# packages for that alone; imports the Python package; reads a manual page; removes all, and finds nothing left; upgrades.
# Usage: try.sh FOLDER. Needs root, mmdebstrap and iproute2; downloads about 250 MB of Debian packages.
set -eu

folder=$(cd "$1" && pwd)
root=$(cd "$(dirname "$0")/.." && pwd)
work=$(mktemp -d)
clean=$work/root
hosts="1 2 3 4"
name=tutti$$

leave() {
  for host in $hosts; do
    for pid in $(ip netns pids "$name-$host" 2>/dev/null); do kill -9 "$pid" || true; done
    ip netns del "$name-$host" 2>/dev/null || true
  done
  ip link del "$name" 2>/dev/null || true
  for mounted in dev/shm dev/pts sys proc; do umount "$clean/$mounted" 2>/dev/null || true; done
  rm -rf --one-file-system "$work"
}
trap leave EXIT
trap 'exit 130' INT TERM

say() { printf '\n== %s\n' "$*"; }
inside() { chroot "$clean" env DEBIAN_FRONTEND=noninteractive LC_ALL=C.UTF-8 "$@"; }
# quiet COMMAND...: says what the command printed only where it fails.
quiet() { "$@" >"$work/quiet" 2>&1 || { echo "failed: $*"; cat "$work/quiet"; exit 1; }; }
# install WORD...: packages of Debian's, and files of /packages as ./NAME_*.deb; these are what the shell there finds.
install() { quiet inside sh -c "cd /packages && apt-get -qq -o Dpkg::Use-Pty=0 install --yes --no-install-recommends $*"; }

say "a clean Debian 12, with an sshd as clusters have it"
mmdebstrap --quiet --variant=minbase --include=openssh-server,openssh-client,iproute2 bookworm "$clean"
mount -t proc proc "$clean/proc"
mount -t sysfs -o ro sysfs "$clean/sys"
mount -t devpts devpts "$clean/dev/pts"
mkdir -p "$clean/dev/shm" "$clean/run/sshd" "$clean/root/.ssh" "$clean/packages"
mount -t tmpfs tmpfs "$clean/dev/shm"
for deb in "$folder"/*.deb; do
  case $deb in *-dbgsym_*) ;; *) cp "$deb" "$clean/packages/" ;; esac
done
packages=$(for deb in "$clean"/packages/*.deb; do dpkg-deb --field "$deb" Package; done)
inside ssh-keygen -q -t ed25519 -N '' -f /root/.ssh/id_ed25519
cp "$clean/root/.ssh/id_ed25519.pub" "$clean/root/.ssh/authorized_keys"
echo 'StrictHostKeyChecking accept-new' >"$clean/root/.ssh/config"
inside apt-get -qq update

ip link add "$name" type bridge
ip link set "$name" up
for host in $hosts; do
  ip netns add "$name-$host"
  ip link add "v$host-$$" type veth peer name eth0 netns "$name-$host"
  ip link set "v$host-$$" master "$name" up
  ip -n "$name-$host" addr add "10.71.0.$host/24" dev eth0
  ip -n "$name-$host" link set eth0 up
  ip -n "$name-$host" link set lo up
  ip netns exec "$name-$host" chroot "$clean" /usr/sbin/sshd -o PidFile=none
done

begin=$(date +%s%N)
since() { echo "$((($(date +%s%N) - begin) / 1000000)) ms since the first command"; }
say 'apt install ./tutti_*.deb ./libtutti0.1_*.deb'
install './tutti_*.deb' './libtutti0.1_*.deb'
since
say 'tutti run -n 4 all_reduce_perf -b 8 -e 1M -f 32'
inside tutti run -n 4 all_reduce_perf -b 8 -e 1M -f 32
since
say 'tutti run -H 10.71.0.1,... all_reduce_perf -b 8 -e 1M -f 32'
ip netns exec "$name-1" chroot "$clean" tutti run -H 10.71.0.1,10.71.0.2,10.71.0.3,10.71.0.4 all_reduce_perf -b 8 -e 1M -f 32
since

say "programs in C and C++, with the packages for that alone"
install './libtutti-dev_*.deb' './libtutti-c1_*.deb' './tutti-nccl_*.deb' g++ cmake make pkg-config
cp "$root/examples/hello.cpp" "$root/examples/sum.c" "$clean/root/"
inside sh -c 'cd /root && g++ -std=c++20 hello.cpp -o hello $(pkg-config --cflags --libs tutti) && tutti run -n 3 ./hello'
inside sh -c 'cd /root && gcc -std=c11 sum.c -o sum $(pkg-config --cflags --libs tutti_c) && tutti run -n 3 ./sum'
inside sh -c 'mkdir -p /root/project && cd /root/project && mv ../hello.cpp . && cat >CMakeLists.txt && cmake -S . -B build >/dev/null && cmake --build build >/dev/null && tutti run -n 3 build/hello' <<'CMAKE'
cmake_minimum_required(VERSION 3.25)
project(first LANGUAGES CXX)
find_package(tutti REQUIRED)
add_executable(hello hello.cpp)
target_link_libraries(hello PRIVATE tutti::tutti tutti::parallel)
CMAKE

say "the other packages"
install './*.deb' man-db
quiet ip netns exec "$name-1" chroot "$clean" tutti doctor
for tool in $(inside sh -c 'ls /usr/libexec/tutti' | sed -n 's/^tutti-//p'); do
  quiet inside tutti "$tool" --help
  quiet inside man -w "tutti-$tool"
done
quiet inside sh -c 'man -P cat tutti-run | grep hostfile'
quiet inside sh -c 'man -P cat tutti-plan-verify | grep invariant'
install zsh
quiet inside zsh -fc 'autoload -Uz compinit && compinit -u -D && [ "$_comps[tutti]" = _tutti ]'
quiet inside tutti run --windows -n 2 all_reduce_perf -b 8 -e 64K -f 8
if [ -e "$clean/usr/lib/python3/dist-packages/tutti" ]; then
  inside tutti run -n 3 python3 -c '
import numpy, tutti
c = tutti.init()
x = numpy.full(5, c.rank + 1.0)
c.all_reduce(x)
assert (x == 6).all(), x'
fi

# away: removes every package; nothing of that name is left, and no shared memory.
away() {
  # shellcheck disable=SC2086
  inside apt-get -qq purge --yes $packages >/dev/null
  left=$(inside find / -xdev -iname '*tutti*' -not -path '/packages/*' -not -path '/var/cache/man/*'; inside find /dev/shm -type f)
  [ -z "$left" ] || { echo "left behind: $left"; exit 1; }
}
say "away"
away

say "an upgrade: the same packages with an older number, then these"
older=$work/older
for deb in "$clean"/packages/*.deb; do
  dpkg-deb --raw-extract "$deb" "$older"
  version=$(dpkg-deb --field "$deb" Version)
  sed -i "s/^Version: .*/Version: $version~old/; s/(= $version)/(= $version~old)/g" "$older/DEBIAN/control"
  dpkg-deb -Znone --build "$older" "$clean/packages/older-$(basename "$deb")" >/dev/null
  rm -r "$older"
done
install './older-*.deb'
[ "$(inside dpkg-query --show --showformat '${Version}' tutti)" = "$version~old" ]
rm "$clean"/packages/older-*.deb
install './*.deb'
for package in $packages; do
  [ "$(inside dpkg-query --show --showformat '${Version}' "$package")" = "$version" ]
done
quiet inside tutti run -n 2 all_reduce_perf -b 8 -e 64K -f 8
away
say "all is well"

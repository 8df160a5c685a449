#!/bin/sh
# The first process of the guest (guest.sh): the host's files under an overlay, two RDMA devices in
# software (rdma_rxe: rxe0 and rxe1, each on a dummy network device), then the command, then off.
# The kernel's own messages are on the first serial line, the command's output on the second.
/bin/busybox --install -s /bin
export PATH=/bin

mkdir -p /proc /sys /dev /host /above /root
mount -t proc proc /proc
mount -t sysfs sysfs /sys
mount -t devtmpfs devtmpfs /dev
while read -r module; do
  insmod "/modules/$module" || echo "guest: $module cannot be loaded"
done </modules/order

finish() { sync; poweroff -f; }
trap finish EXIT
set -e

mount -t 9p -o trans=virtio,version=9p2000.L,msize=512000,cache=loose,ro host /host
mount -t tmpfs tmpfs /above
mkdir /above/upper /above/work
mount -t overlay -o lowerdir=/host,upperdir=/above/upper,workdir=/above/work overlay /root
mkdir -p /root/proc /root/sys /root/dev /root/run/guest /root/lib/modules
mount --bind /proc /root/proc
mount --bind /sys /root/sys
mount --bind /dev /root/dev
mkdir -p /root/dev/shm /root/dev/pts
mount -t tmpfs -o mode=1777 tmpfs /root/dev/shm
mount -t devpts devpts /root/dev/pts
mount -t 9p -o trans=virtio,version=9p2000.L,msize=512000,cache=none exchange /root/run/guest
. /root/run/guest/settings  # KERNEL, FOR
mount --bind "/root$KERNEL" /root/lib/modules

export PATH=/usr/sbin:/usr/bin:/sbin:/bin
in_host() { /bin/chroot /root /usr/bin/env "$@"; }  # env: busybox would take its own programs
in_host hostname guest
in_host ip link set lo up
for module in crc32_generic ib_uverbs rdma_ucm rdma_rxe dummy; do in_host modprobe "$module"; done
for i in 0 1; do
  in_host ip link add "d$i" type dummy
  in_host ip link set "d$i" mtu 4500  # for the largest RDMA MTU, 4096
  in_host ip address add "10.$((8 + i)).0.1/24" dev "d$i"
  in_host ip link set "d$i" up
  in_host rdma link add "rxe$i" type rxe netdev "d$i"
done

set +e
/bin/stty -F /dev/ttyS1 raw
in_host timeout --kill-after=5 "$FOR" bash /run/guest/command </dev/null >/dev/ttyS1 2>&1
echo $? >/root/run/guest/status

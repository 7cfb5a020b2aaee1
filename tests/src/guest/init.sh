#!/bin/bash
# Process 1 of the QEMU guest. The kernel's command line gives GUEST_SCRIPT, to be run, and GUEST_WORK, a folder with its
# environment that gets its exit code. Without them the guest only comes up and goes down.
export PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin HOME=/root LANG=C.UTF-8 TERM=dumb

# end : restarts at once, which ends the machine; what matters has been written to the other side of the 9p mount.
end() { echo b >/proc/sysrq-trigger; }

mount -t proc proc /proc
mount -t sysfs sysfs /sys
mount -t devtmpfs devtmpfs /dev
[ -n "$GUEST_SCRIPT" ] || end
mkdir -p /dev/pts /dev/shm
mount -t devpts devpts /dev/pts
for folder in /dev/shm /run /tmp; do mount -t tmpfs tmpfs $folder; done
ln -sfT /proc/self/fd /dev/fd
ln -sfT /proc/mounts /etc/mtab
modprobe -aq @MODULES@ 2>/dev/null
mount -t configfs configfs /sys/kernel/config
mount -t 9p -o trans=virtio,version=9p2000.L,msize=262144,cache=none host /host

echo 'root:x:0:0:root:/root:/bin/bash' >/etc/passwd
printf 'root:x:0:\ndisk:x:6:\n' >/etc/group
echo '127.0.0.1 localhost' >/etc/hosts
hostname guest
ip link set lo up
for device in /sys/class/net/e*; do
    ip addr add 10.0.2.15/24 dev "${device##*/}"
    ip link set "${device##*/}" up
done
mkdir -p /etc/iscsi /etc/nvme
echo InitiatorName=iqn.2026-11.org.platter.tests:guest >/etc/iscsi/initiatorname.iscsi
echo nqn.2014-08.org.nvmexpress:uuid:7b0cbb84-6a0b-4d83-9d53-2f5a3c0c5a11 >/etc/nvme/hostnqn
echo 7b0cbb84-6a0b-4d83-9d53-2f5a3c0c5a11 >/etc/nvme/hostid
/lib/systemd/systemd-udevd --daemon --resolve-names=never 2>/dev/null

stty -F /dev/ttyS1 raw -echo
. "$GUEST_WORK/environment"
cd /host || end
setsid bash "$GUEST_SCRIPT" </dev/null >/dev/ttyS1 2>&1
echo $? >"$GUEST_WORK/exit"
end

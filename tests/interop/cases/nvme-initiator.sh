# A Linux host (nvme-cli): discovery, connect without and with digests, ext4, fio with verify, fsck, disconnect.
# server: nvme
. /host/tests/interop/guest.sh

must "discovery" nvme discover -t tcp -a "${PORTAL%:*}" -s "${PORTAL#*:}"
must "discovery names the subsystem and the advertised portal" \
    shows "subnqn: *$SUBSYSTEM" "traddr: *${PORTAL%:*}" "trsvcid: *${PORTAL#*:}"

for digests in "" "-g" "-G" "-g -G"; do
    # shellcheck disable=SC2086
    must "connect ${digests:-without digests}" connect "$SUBSYSTEM" "$PORTAL" $digests
    DISK=$(namespace_of "$SUBSYSTEM") || exit 1
    must "write cache is told" grep -q 'write back' "/sys/block/${DISK#/dev/}/queue/write_cache"
    must "FUA is told" grep -q 1 "/sys/block/${DISK#/dev/}/queue/fua"
    must "mkfs.ext4" mkfs.ext4 -q -F "$DISK"
    mkdir -p /mnt/x
    must "mount" mount "$DISK" /mnt/x
    must "fio verify in the file system" verified /mnt/x/f 16m --fsync=32
    must "umount" umount /mnt/x
    must "e2fsck -n" e2fsck -f -n "$DISK"
    must "fio verify on the disk, 1 MiB blocks" verified "$DISK" 64m --rw=write --bs=1m --iodepth=4
    must "disconnect" nvme disconnect -n "$SUBSYSTEM"
done
must "connect-all" nvme connect-all -t tcp -a "${PORTAL%:*}" -s "${PORTAL#*:}"
must "it found the namespace" namespace_of "$SUBSYSTEM"
must "disconnect" nvme disconnect -n "$SUBSYSTEM"
must "no error reached the block layer" no_io_errors
all_passed

# A Linux initiator (open-iscsi): discovery, login without and with digests, XFS, fio with verify, repair, logout.
# server: iscsi
. /host/tests/interop/guest.sh

start_iscsid
must "discovery" iscsiadm -m discovery -t st -p "$PORTAL"
must "discovery names the advertised portal" shows "^$PORTAL,1 $TARGET"

for digest in None CRC32C; do
    must "login, digests $digest" login "$TARGET" "$PORTAL" \
        "node.conn[0].iscsi.HeaderDigest=$digest" "node.conn[0].iscsi.DataDigest=$digest"
    DISK=$(disk_of "$TARGET") || exit 1
    must "digests are $digest" digests_are "$digest"
    must "write cache is told" grep -q 'write back' "/sys/block/${DISK#/dev/}/queue/write_cache"
    must "FUA is told" grep -q 1 "/sys/block/${DISK#/dev/}/queue/fua"
    must "mkfs.xfs" mkfs.xfs -f -q "$DISK"
    mkdir -p /mnt/x
    must "mount" mount "$DISK" /mnt/x
    must "fio verify in the file system" verified /mnt/x/f 32m --fsync=32
    must "umount" umount /mnt/x
    must "xfs_repair -n" xfs_repair -n "$DISK"
    must "fio verify on the disk, 1 MiB blocks" verified "$DISK" 64m --rw=write --bs=1m --iodepth=4
    must "logout" logout "$TARGET" "$PORTAL"
done
must "no error reached the block layer" no_io_errors
all_passed

# A Linux initiator (open-iscsi): discovery, login without and with digests, XFS, fio with verify, repair, logout.
# server: host
. /host/tests/interop/guest.sh

start_iscsid
must "discovery" iscsiadm -m discovery -t st -p "$PORTAL"
must "discovery names the advertised portal" grep -q "^$PORTAL,1 $TARGET" /tmp/out

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
    must "fio verify in the file system" fio --name=v --filename=/mnt/x/f --size=32m --rw=randwrite --bs=4k --iodepth=16 \
        --ioengine=libaio --direct=1 --fsync=32 --verify=crc32c --do_verify=1 --verify_fatal=1 --verify_state_save=0
    must "umount" umount /mnt/x
    must "xfs_repair -n" xfs_repair -n "$DISK"
    must "fio verify on the disk, 1 MiB blocks" fio --name=w --filename="$DISK" --size=64m --rw=write --bs=1m --iodepth=4 \
        --ioengine=libaio --direct=1 --verify=crc32c --do_verify=1 --verify_fatal=1 --verify_state_save=0
    must "logout" iscsiadm -m node -T "$TARGET" -p "$PORTAL" --logout
done
echo "all passed"

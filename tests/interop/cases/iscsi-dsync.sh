# Writes with O_DSYNC by a real initiator, which sends each as a FUA write and, up to Linux 7.3 at least, a flush behind it:
# the server elides the flush, so that a disk with FUA is never asked for one and a disk without for one per write.
. /host/tests/interop/guest.sh

start_iscsid
for fua in 1 0; do
    [ $fua = 1 ] || null_disk_can fua || { echo "this kernel's null_blk always has FUA: the other half is not run"; break; }
    NULL=$(null_disk "disk$fua" cache_size=64 fua=$fua)
    configure <<YAML
portals: { p: { listen: "127.0.0.1:3260" } }
disks: { d: { path: $NULL } }
volumes:
  v: { disk: d, hosts: { allow_any: true }, iscsi: { target: "$TARGET", lun: 0 } }
YAML
    must "the server starts" serve
    must "login" login "$TARGET" 127.0.0.1:3260
    DISK=$(disk_of "$TARGET") || exit 1
    dsync_costs "$DISK" "$NULL" $fua
    must "logout" logout "$TARGET" 127.0.0.1:3260
    must "clean stop" stop_server
done
all_passed

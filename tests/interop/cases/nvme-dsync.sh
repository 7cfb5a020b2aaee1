# Writes with O_DSYNC by a real initiator, which sends each as a Write with FUA and, up to Linux 7.3 at least, a Flush behind it:
# the server elides the flush, so that a disk with FUA is never asked for one and a disk without for one per write.
. /host/tests/interop/guest.sh

for fua in 1 0; do
    [ $fua = 1 ] || null_disk_can fua || { echo "this kernel's null_blk always has FUA: the other half is not run"; break; }
    NULL=$(null_disk "disk$fua" cache_size=64 fua=$fua)
    configure <<YAML
portals: { n: { listen: "127.0.0.1:4420", protocol: nvme } }
disks: { d: { path: $NULL } }
volumes:
  v: { disk: d, hosts: { allow_any: true }, nvme: { subsystem: "$SUBSYSTEM" } }
YAML
    must "the server starts" serve
    must "connect" connect "$SUBSYSTEM" 127.0.0.1:4420
    DISK=$(namespace_of "$SUBSYSTEM") || exit 1
    dsync_costs "$DISK" "$NULL" $fua
    must "disconnect" nvme disconnect -n "$SUBSYSTEM"
    must "clean stop" stop_server
done
all_passed

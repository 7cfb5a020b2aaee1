# The server in the guest: a disk is pulled and comes back. Its volume is NOT READY meanwhile, the other one serves.
. /host/tests/interop/guest.sh

start_iscsid
KEPT=$(null_disk kept cache_size=64)
PULLED=$(null_disk pulled cache_size=64)
configure <<YAML
portals: { p: { listen: "127.0.0.1:3260" } }
disks: { kept: { path: $KEPT }, pulled: { path: $PULLED } }
volumes:
  v0: { disk: kept, hosts: { allow_any: true }, iscsi: { target: "$TARGET", lun: 0 } }
  v1: { disk: pulled, hosts: { allow_any: true }, iscsi: { target: "$TARGET", lun: 1 } }
YAML
must "the server starts" serve
must "login" login "$TARGET" 127.0.0.1:3260
LUN0=$(disk_of "$TARGET" 0) && LUN1=$(disk_of "$TARGET" 1) || exit 1
pulled_is() { disk_count pulled state | grep -q "^$1"; }

# unit DISK : TEST UNIT READY through the generic device, which needs no medium; its answer, once the unit attentions are told.
unit() {
    local generic i
    generic=/dev/$(ls "/sys/block/${1#/dev/}/device/scsi_generic")
    for i in 1 2 3; do sg_raw "$generic" 00 00 00 00 00 00 >/dev/null 2>&1; done
    sg_raw "$generic" 00 00 00 00 00 00 2>&1
}
not_ready() { unit "$1" | grep -i 'not ready'; }
ready() { unit "$1" | grep -i 'good'; }

must "write before" dd if=/dev/urandom of="$LUN1" bs=4k count=8 oflag=direct
must "flush before" sg_raw "$LUN1" 35 00 00 00 00 00 00 00 00 00
echo 0 >/sys/kernel/config/nullb/pulled/power
must "the loss is noticed" within 10 pulled_is missing
must "the other disk serves" dd if=/dev/urandom of="$LUN0" bs=4k count=8 oflag=direct
must "its volume is not ready" not_ready "$LUN1"
echo 1 >/sys/kernel/config/nullb/pulled/power
must "it is found again" within 10 pulled_is ok
must "its volume is ready again" ready "$LUN1"
must "write after" dd if=/dev/urandom of="$LUN1" bs=4k count=8 oflag=direct
must "logout" logout "$TARGET" 127.0.0.1:3260
must "clean stop" stop_server
all_passed

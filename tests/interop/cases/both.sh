# One volume over both protocols at once: what is written over one is read over the other, a flush over one covers the writes
# of the other, and a compare-and-write over one is one step to the other.
. /host/tests/interop/guest.sh

start_iscsid
NULL=$(null_disk disk cache_size=64)
configure <<YAML
portals:
  i: { listen: "127.0.0.1:3260" }
  n: { listen: "127.0.0.1:4420", protocol: nvme }
disks: { d: { path: $NULL } }
volumes:
  v:
    disk: d
    hosts: { allow_any: true }
    iscsi: { target: "$TARGET", lun: 0 }
    nvme: { subsystem: "$SUBSYSTEM" }
YAML
must "the server starts" serve
must "login" login "$TARGET" 127.0.0.1:3260
must "connect" connect "$SUBSYSTEM" 127.0.0.1:4420
SCSI=$(disk_of "$TARGET") && NVME=$(namespace_of "$SUBSYSTEM") || exit 1
must "both have its size" eval "size_is $SCSI $((256 << 20)) && size_is $NVME $((256 << 20))"

# ---- data
head -c 8M /dev/urandom >/tmp/data
copies() { dd if=/tmp/data of="$1" bs=1M seek="$2" oflag=direct conv=fsync && dd if="$3" bs=1M skip="$2" count=8 iflag=direct | cmp - /tmp/data; }
must "written over iSCSI, read over NVMe" copies "$SCSI" 0 "$NVME"
must "written over NVMe, read over iSCSI" copies "$NVME" 64 "$SCSI"
must "a file system over iSCSI" mkfs.ext4 -q -F "$SCSI"
mkdir -p /mnt/x
must "mount" mount "$SCSI" /mnt/x
must "a file in it" cp /tmp/data /mnt/x/data
must "umount" umount /mnt/x
must "mount over NVMe" mount -o ro "$NVME" /mnt/x
must "the file is there" cmp /tmp/data /mnt/x/data
must "umount" umount /mnt/x

# ---- flushes
# costs FLUSHES COMMAND... : of the device.
costs() {
    local before expected=$1
    shift
    before=$(flushes "$NULL")
    "$@" || return 1
    echo "it cost $(($(flushes "$NULL") - before))"
    [ $(($(flushes "$NULL") - before)) = "$expected" ]
}
flush_scsi() { sg_raw "$SCSI" 35 00 00 00 00 00 00 00 00 00; }
flush_nvme() { nvme flush "$NVME" -n 1; }
write_to() { dd if=/tmp/data of="$1" bs=4k count=1 oflag=direct; }
must "flush everything" flush_scsi
must "a write over iSCSI" costs 0 write_to "$SCSI"
must "a flush over NVMe covers it" costs 1 flush_nvme
must "and leaves nothing to do over iSCSI" costs 0 flush_scsi
must "a write over NVMe" costs 0 write_to "$NVME"
must "a flush over iSCSI covers it" costs 1 flush_scsi
must "and leaves nothing to do over NVMe" costs 0 flush_nvme

# ---- compare-and-write: 4 KiB at block 4096, all of one letter
for letter in a b c; do head -c 4096 /dev/zero | tr '\0' $letter >/tmp/$letter; done
# swap A B : COMPARE AND WRITE, from A to B.
swap() {
    cat "/tmp/$1" "/tmp/$2" >/tmp/pair
    sg_compare_and_write --in=/tmp/pair --lba=4096 --num=8 --xferlen=8192 "$SCSI"
}
is_by_nvme() { nvme compare "$NVME" -s 4096 -c 7 -z 4096 -d "/tmp/$1"; }
must "NVMe writes a" nvme write "$NVME" -s 4096 -c 7 -z 4096 -d /tmp/a
must "compare-and-write from a to b" swap a b
must "NVMe finds b" is_by_nvme b
must "NVMe does not find a" refused is_by_nvme a
must "compare-and-write from a to c is refused" refused swap a c
must "NVMe still finds b" is_by_nvme b
must "NVMe writes c" nvme write "$NVME" -s 4096 -c 7 -z 4096 -d /tmp/c
must "compare-and-write from b to a is refused" refused swap b a
must "compare-and-write from c to a" swap c a
# While it goes to and fro, NVMe always reads one letter, never some of each.
swapping() {
    local i
    for i in $(seq 40); do swap a b && swap b a || return 1; done
}
whole_by_nvme() {
    local i letters
    for i in $(seq 200); do
        letters=$(dd if="$NVME" bs=4k skip=512 count=1 iflag=direct status=none | tr -s ab)
        [ "$letters" = a ] || [ "$letters" = b ] || { echo "read $letters"; return 1; }
    done
}
swapping >/tmp/swapping 2>&1 &
SWAPPING=$!
must "NVMe reads it whole all the while" whole_by_nvme
must "every compare-and-write found what the one before wrote" wait $SWAPPING

# ---- both under load
start_load load "$NVME" 4m
must "verified writes over iSCSI beside those over NVMe" verified "$SCSI" 8m --offset=128m
must "the load goes on" load_goes_on load
must "every write was read back" end_load load
must "no error reached the block layer" no_io_errors
must "disconnect" nvme disconnect -n "$SUBSYSTEM"
must "logout" logout "$TARGET" 127.0.0.1:3260
must "clean stop" stop_server
all_passed

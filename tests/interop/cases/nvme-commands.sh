# The tools of a Linux host: what Identify and the log pages say to them, the commands that they can send, and what is
# refused; one and several I/O queues; reset.
. /host/tests/interop/guest.sh

configure <<YAML
portals: { n: { listen: "127.0.0.1:4420", protocol: nvme } }
disks:
  d: { path: /run/platter/d.img, size: 64MiB, block_size: 512, physical_block: 4096, rpm: 7200 }
  e: { path: /run/platter/e.img, size: 32MiB, block_size: 4096 }
volumes:
  v: { disk: d, hosts: { allow_any: true }, nvme: { subsystem: "$SUBSYSTEM", nsid: 1 } }
  w: { disk: e, read_only: true, hosts: { allow_any: true }, nvme: { subsystem: "$SUBSYSTEM", nsid: 7, ana_group: 2 } }
YAML
must "the server starts" serve
must "connect with one I/O queue" connect "$SUBSYSTEM" 127.0.0.1:4420 -i 1
CONTROLLER=$(controller_of "$SUBSYSTEM") && DISK=$(namespace_of "$SUBSYSTEM" 1) && OTHER=$(namespace_of "$SUBSYSTEM" 7) || exit 1
queues_are() { [ "$(cat "/sys/class/nvme/${CONTROLLER#/dev/}/queue_count")" = "$1" ]; }
must "it has an admin queue and one more" queues_are 2

# ---- what it says of itself
must "list" nvme list -o json
must "list shows both namespaces" shows "${DISK#/dev/}" "${OTHER#/dev/}"
must "id-ctrl" nvme id-ctrl "$CONTROLLER" -o json
# NVMe 2.1. ONCS: Compare, Dataset Management, Write Zeroes, Select, Timestamp, Verify, Copy. VWC: there is a cache, and a
# Flush of all namespaces is one. SGLS: any alignment, in-capsule offsets, transport data blocks.
must "id-ctrl says what the server does" fields .cntrltype=1 .ver=131328 .kas=1 .oacs=0 .oncs=477 .fuses=1 .vwc=7 \
    .sqes=102 .cqes=68 .sgls=3145729 .icdoff=0 .cmic=11 .ctratt=81 ".subnqn=$SUBSYSTEM" .oncs=477 .mdts=8
must "id-ns, 512-byte blocks" nvme id-ns "$DISK" -o json
must "id-ns says what the volume is" fields .nsze=131072 .ncap=131072 .nlbaf=0 .flbas=0 ".lbafs[0].ds=9" ".lbafs[0].ms=0" \
    .nmic=1 .npwg=7 .npwa=7 .nows=7 .nsattr=0 .anagrpid=1 .endgid=1 .dps=0
must "id-ns, 4096-byte blocks" nvme id-ns "$OTHER" -o json
must "id-ns says that the other is read-only" fields .nsze=8192 ".lbafs[0].ds=12" .nsattr=1 .anagrpid=2
must "the kernel sees it as read-only" grep -qx 1 "/sys/block/${OTHER#/dev/}/ro"
must "and the first as rotational" grep -qx 1 "/sys/block/${DISK#/dev/}/queue/rotational"
must "ns-descs" nvme ns-descs "$DISK"
must "there is a UUID" shows '[0-9a-f]\{8\}-[0-9a-f]\{4\}-'
must "ana-log" nvme ana-log "$CONTROLLER"
must "both groups are optimized" shows '^ngrps.*2' '^state.*optimized'
must "error-log" nvme error-log "$CONTROLLER"
must "fw-log" nvme fw-log "$CONTROLLER"
must "effects-log" nvme effects-log "$CONTROLLER"
must "get-feature of the write cache" nvme get-feature "$CONTROLLER" -f 6
must "it is on" shows '0*1$'

# ---- commands that write
smart() { nvme smart-log "$CONTROLLER" -o json | jq ".$1"; }
WRITES=$(smart host_write_commands)
head -c 4096 /dev/urandom >/tmp/a
head -c 4096 /dev/urandom >/tmp/b
head -c 4096 /dev/zero >/tmp/zeroes
reads_as() { dd if="$DISK" bs=4096 skip="$1" count=1 iflag=direct status=none | cmp - "$2"; }
must "write" nvme write "$DISK" -s 8 -c 7 -z 4096 -d /tmp/a
must "smart-log counts it" test $(($(smart host_write_commands) - WRITES)) -ge 1
must "what was written is read" reads_as 1 /tmp/a
must "write with FUA" nvme write "$DISK" -s 16 -c 7 -z 4096 -d /tmp/b -f
must "what was written is read" reads_as 2 /tmp/b
must "compare with the same" nvme compare "$DISK" -s 8 -c 7 -z 4096 -d /tmp/a
must "compare with other data is refused" refused nvme compare "$DISK" -s 8 -c 7 -z 4096 -d /tmp/b
must "as a compare failure" shows '0x4\?285'
must "flush" nvme flush "$DISK" -n 1
must "verify" nvme verify "$DISK" -s 8 -c 7
must "copy" nvme copy "$DISK" -d 24 -s 8 -b 7
must "what was copied is read" reads_as 3 /tmp/a
must "write-zeroes" nvme write-zeroes "$DISK" -s 8 -c 7
must "they read as zeroes" reads_as 1 /tmp/zeroes
must "dsm that deallocates" nvme dsm "$DISK" -d -s 16 -b 8
must "it reads as zeroes" reads_as 2 /tmp/zeroes
must "blkdiscard" blkdiscard "$DISK"
must "write-uncor is refused" refused nvme write-uncor "$DISK" -s 8 -c 7
must "as an invalid opcode" shows '0x4\?001'
must "a write to the read-only namespace is refused" refused nvme write "$OTHER" -s 0 -c 0 -z 4096 -d /tmp/a
must "a read beyond the end is refused" refused nvme read "$DISK" -s 131072 -c 0 -z 512
must "as out of range" shows '0x4\?080'
must "format is refused" refused nvme format "$DISK" -f

# ---- queues and reset
must "reset" nvme reset "$CONTROLLER"
must "it is live again" within 10 controller_is "$CONTROLLER" live
must "the namespace still serves" verified "$DISK" 1m
must "disconnect" nvme disconnect -n "$SUBSYSTEM"
# As many as there are processors, of each kind.
must "connect with more I/O queues" connect "$SUBSYSTEM" 127.0.0.1:4420 -i 4 -W 4 -P 4
CONTROLLER=$(controller_of "$SUBSYSTEM") && DISK=$(namespace_of "$SUBSYSTEM" 1) || exit 1
must "it has them" queues_are $((1 + 3 * $(nproc)))
must "fio verify" verified "$DISK" 4m --numjobs=2 --offset_increment=16m
must "disconnect" nvme disconnect -d "$CONTROLLER"
must "the kernel finds nothing unusual" eval '! dmesg | grep -i "nvme.*unusual"'
must "clean stop" stop_server
all_passed

# The server in the guest, on a null_blk disk with a volatile cache, with and without FUA, through both backends: the
# device's own flush counter agrees with what the server promises.
. /host/tests/interop/guest.sh

start_iscsid
dd if=/dev/urandom of=/tmp/block bs=4096 count=1 status=none

# fua_writes DISK N : N FUA writes of 4 KiB (WRITE(10), FUA bit), each followed by SYNCHRONIZE CACHE(10).
fua_writes() {
    local i
    for i in $(seq "$2"); do
        sg_raw -s 4096 -i /tmp/block "$1" 2a 08 00 00 00 $(printf %02x "$i") 00 00 08 00 &&
            sg_raw "$1" 35 00 00 00 00 00 00 00 00 00 || return 1
    done
}

# segment_writes DISK : a plain write of 4 KiB at each MiB of the first 64.
segment_writes() {
    fio --name=segments --filename="$1" --rw=write:1020k --bs=4k --size=64m --io_size=256k --direct=1 --ioengine=psync
}

for fua in 1 0; do
    [ $fua = 1 ] || null_disk_can fua || { echo "this kernel's null_blk always has FUA: the other half is not run"; break; }
    NULL=$(null_disk "disk$fua" cache_size=64 fua=$fua)
    must "null_blk disk with fua=$fua" test -b "$NULL"
    QUEUE=/sys/block/${NULL#/dev/}/queue
    must "it has a volatile cache" grep -q 'write back' "$QUEUE/write_cache"
    must "its FUA is $fua" grep -qx $fua "$QUEUE/fua"
    for backend in uring threads; do
        configure <<YAML
backend: $backend
portals: { p: { listen: "127.0.0.1:3260" } }
disks: { d: { path: $NULL } }
volumes:
  v:
    segments:
$(for i in $(seq 0 63); do echo "      - { disk: d, offset: $((i * 2))MiB, size: 1MiB }"; done)
    hosts: { allow_any: true }
    iscsi: { target: "$TARGET", lun: 0 }
YAML
        must "the server starts" serve
        must "login, $backend" login "$TARGET" 127.0.0.1:3260
        DISK=$(disk_of "$TARGET") || exit 1

        before=$(flushes "$NULL") asked=$(disk_count d asked.flushes) requested=$(disk_count d flush_requested)
        must "50 FUA writes + SYNCHRONIZE CACHE" fua_writes "$DISK" 50
        # Each SYNCHRONIZE CACHE is a request, and so is each FUA write that the disk cannot make durable by itself.
        must "all of them arrived" test $(($(disk_count d flush_requested) - requested)) = $((100 - 50 * fua))
        got=$(($(flushes "$NULL") - before))
        echo "fua=$fua $backend: device flushes $got, server says $(($(disk_count d asked.flushes) - asked))"
        must "$((50 * (1 - fua))) flushes" test $got = $((50 * (1 - fua)))
        must "the server counts the same" test $got = $(($(disk_count d asked.flushes) - asked))

        writes=$(disk_count d asked.writes)
        must "a write to each of 64 segments" segment_writes "$DISK"
        must "64 writes arrived" test $(($(disk_count d asked.writes) - writes)) = 64
        before=$(flushes "$NULL")
        must "one SYNCHRONIZE CACHE over 64 segments" sg_raw "$DISK" 35 00 00 00 00 00 00 00 00 00
        must "one device flush" test $(($(flushes "$NULL") - before)) = 1

        must "logout" logout "$TARGET" 127.0.0.1:3260
        must "clean stop" stop_server
    done
done
all_passed

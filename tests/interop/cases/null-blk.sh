# The server in the guest, on a null_blk disk with a volatile cache, with and without FUA, through both backends: the
# device's own flush counter agrees with what the server promises.
. /host/tests/interop/guest.sh

start_iscsid
PLATTER=/host/target/release/platter
TARGET=iqn.2026-11.org.platter:null
dd if=/dev/urandom of=/tmp/block bs=4096 count=1 status=none

asked() { $PLATTER status --json --admin /tmp/admin.sock | jq "[.shards[].disks[]][0].$1"; }

# fua_writes DISK N : N FUA writes of 4 KiB (WRITE(10), FUA bit), each followed by SYNCHRONIZE CACHE(10).
fua_writes() {
    local i
    for i in $(seq "$2"); do
        sg_raw -s 4096 -i /tmp/block "$1" 2a 08 00 00 00 $(printf %02x "$i") 00 00 08 00 &&
            sg_raw "$1" 35 00 00 00 00 00 00 00 00 00 || return 1
    done
}

# segment_writes DISK : a plain WRITE(10) of 4 KiB at each MiB of the first 64.
segment_writes() {
    local i
    for i in $(seq 0 63); do
        sg_raw -s 4096 -i /tmp/block "$1" 2a 00 00 $(printf '%02x %02x' $((i * 8 / 256)) $((i * 8 % 256))) 00 00 00 08 00 ||
            return 1
    done
}

PORT=3260
for fua in 1 0; do
    NULL=$(null_disk "disk$fua" cache_size=64 fua=$fua)
    must "null_blk disk with fua=$fua" test -b "$NULL"
    QUEUE=/sys/block/${NULL#/dev/}/queue
    must "it has a volatile cache" grep -q 'write back' "$QUEUE/write_cache"
    must "its FUA is $fua" grep -qx $fua "$QUEUE/fua"
    for backend in uring threads; do
        PORT=$((PORT + 1))
        cat >/tmp/p.yaml <<YAML
state: /tmp/state$PORT
admin: /tmp/admin.sock
backend: $backend
portals: { p: { listen: "127.0.0.1:$PORT" } }
disks: { d: { path: $NULL } }
volumes:
  v:
    segments:
$(for i in $(seq 0 63); do echo "      - { disk: d, offset: $((i * 2))MiB, size: 1MiB }"; done)
    hosts: { allow_any: true }
    iscsi: { target: "$TARGET", lun: 0 }
YAML
        $PLATTER serve /tmp/p.yaml 2>/tmp/log &
        SERVER=$!
        until grep -q 'listening on' /tmp/log; do kill -0 $SERVER || { cat /tmp/log; exit 1; }; sleep 0.1; done
        must "login, $backend" login "$TARGET" "127.0.0.1:$PORT"
        DISK=$(disk_of "$TARGET") || exit 1

        before=$(flushes "${NULL#/dev/}") asked=$(asked asked.flushes) requested=$(asked flush_requested)
        must "100 FUA writes + SYNCHRONIZE CACHE" fua_writes "$DISK" 100
        # Each SYNCHRONIZE CACHE is a request, and so is each FUA write that the disk cannot make durable by itself.
        must "all of them arrived" test $(($(asked flush_requested) - requested)) = $((200 - 100 * fua))
        got=$(($(flushes "${NULL#/dev/}") - before))
        echo "fua=$fua $backend: device flushes $got, server says $(($(asked asked.flushes) - asked))"
        must "$((100 * (1 - fua))) flushes" test $got = $((100 * (1 - fua)))
        must "the server counts the same" test $got = $(($(asked asked.flushes) - asked))

        must "a write to each of 64 segments" segment_writes "$DISK"
        before=$(flushes "${NULL#/dev/}")
        must "one SYNCHRONIZE CACHE over 64 segments" sg_raw "$DISK" 35 00 00 00 00 00 00 00 00 00
        must "one device flush" test $(($(flushes "${NULL#/dev/}") - before)) = 1

        before=$(flushes "${NULL#/dev/}")
        must "100 O_DIRECT|O_DSYNC writes by the kernel" fio --name=d --filename="$DISK" --rw=write --bs=4k --size=400k \
            --direct=1 --sync=dsync --ioengine=psync
        got=$(($(flushes "${NULL#/dev/}") - before))
        echo "fua=$fua $backend: 100 O_DSYNC writes cost $got device flushes"
        must "its redundant flushes are elided" test $got = $((100 * (1 - fua)))

        must "logout" iscsiadm -m node -T "$TARGET" -p "127.0.0.1:$PORT" --logout
        kill -TERM $SERVER
        must "clean stop" wait $SERVER
    done
done
echo "all passed"

# Sourced by the cases, in the guest. Everything here either waits for a condition, with a limit, or changes one thing.

mkdir -p /run/platter
CONFIG=/run/platter/platter.yaml
ADMIN=/run/platter/admin.sock
LOG=/run/platter/log

# A command that is missing is never taken for one that failed.
command_not_found_handle() {
    echo "FAILED: the guest has no command $1"
    kill -TERM $$
}

# ---- claims

# must NAME COMMAND... : runs it; ends the case if it fails. Its output is in /tmp/out for the next command to look at.
must() {
    local name=$1 rc
    shift
    "$@" >/tmp/out.new 2>&1
    rc=$?
    mv /tmp/out.new /tmp/out
    [ $rc = 0 ] && echo "ok: $name" && return
    echo "FAILED ($rc): $name: $*"
    echo "--- its output"
    tail -20 /tmp/out
    echo "--- end of the server's log"
    tail -15 $LOG 2>/dev/null
    echo "--- end of the kernel's log"
    dmesg | tail -15
    exit 1
}

# refused COMMAND... : succeeds if it fails.
refused() { ! "$@"; }

# shows PATTERN... : the last output has a line for each.
shows() {
    local pattern
    for pattern; do
        grep -q -- "$pattern" /tmp/out || { echo "no line with $pattern in:"; cat /tmp/out; return 1; }
    done
}

# fields FILTER=VALUE... : of the last output, which is JSON.
fields() {
    local pair is
    for pair; do
        is=$(jq -r "${pair%=*}" /tmp/out)
        [ "$is" = "${pair##*=}" ] || { echo "$pair, but it is $is in:"; cat /tmp/out; return 1; }
    done
}

# within SECONDS COMMAND... : tries it until it succeeds. The seconds are those of hardware.
within() {
    local end=$((SECONDS + $1 * ${PATIENCE:-1}))
    shift
    until "$@"; do
        [ $SECONDS -lt $end ] || return 1
        sleep 0.1
    done
}

# skip WHY : ends the case, as one that cannot be run here.
skip() {
    echo "$1"
    exit 77
}

# no_io_errors : neither the block layer nor a file system has been given an error since the start.
no_io_errors() {
    ! dmesg | grep -E 'I/O error|Buffer I/O|lost async page write|JBD2: .*error|XFS .*(error|shut)'
}

all_passed() {
    echo "all passed"
    exit 0
}

# ---- the server in the guest

# configure : the configuration file is these standard lines and what comes by standard input.
configure() {
    printf '%s\n' "state: /run/platter/state" "admin: $ADMIN" >$CONFIG
    cat >>$CONFIG
}

# serve [COMMAND...] : starts it, perhaps by way of `COMMAND...`, and waits until it listens; sets SERVER to its pid.
serve() {
    # Only what this server says.
    : >$LOG
    "$@" "$PLATTER" serve $CONFIG 2>>$LOG &
    SERVER=$!
    within 10 serving
}

serving() {
    grep -q 'listening on' $LOG || { kill -0 $SERVER 2>/dev/null && return 1; cat $LOG; exit 1; }
}

# stop_server : SIGTERM; its exit code.
stop_server() {
    kill -TERM $SERVER
    wait $SERVER
}

# kill_server : SIGKILL.
kill_server() {
    kill -KILL $SERVER
    wait $SERVER 2>/dev/null
    return 0
}

# reload : the changed configuration file takes effect.
reload() { "$PLATTER" reload --admin $ADMIN; }

# status FILTER : what jq makes of the server's status.
status() { "$PLATTER" status --json --admin $ADMIN | jq -r "$1"; }

# disk_count DISK COUNTER : of the server's counters of a disk, such as asked.flushes or flush_elided.
disk_count() { status ".shards[].disks[] | select(.name == \"$1\").$2"; }

# ---- cables: veth pairs between this host and the server's network namespace

# cable NAME NETWORK : this end is NETWORK.1, the server's NETWORK.2.
cable() {
    ip netns list | grep -q '^server' || ip netns add server
    ip link add name "$1" type veth peer name "$1" netns server
    ip addr add "$2.1/24" dev "$1"
    ip -n server addr add "$2.2/24" dev "$1"
    ip link set dev "$1" up
    ip -n server link set dev "$1" up
    ip -n server link set dev lo up
}

# pull NAME : nothing passes any more, and neither end is told.
pull() {
    tc qdisc add dev "$1" root netem loss 100% && tc -n server qdisc add dev "$1" root netem loss 100%
}

# plug NAME : everything passes again.
plug() {
    tc qdisc del dev "$1" root && tc -n server qdisc del dev "$1" root
}

# ---- load: rounds of random writes that are read back and verified

VERIFY="--bs=4k --iodepth=16 --ioengine=libaio --direct=1 --randrepeat=0 --allrandrepeat=0 --verify=crc32c --do_verify=1 \
    --verify_fatal=1 --verify_state_save=0"

# verified FILE SIZE [FIO'S OPTIONS...] : one round.
verified() {
    local file=$1 size=$2
    shift 2
    [ ! -e "$file" ] || [ -f "$file" ] || [ -b "$file" ] || return 1
    # shellcheck disable=SC2086
    fio --name=verify --filename="$file" --size="$size" --rw=randwrite $VERIFY "$@"
}

# start_load NAME FILE SIZE : rounds in the background until end_load.
start_load() {
    rm -f "/tmp/$1.stop" "/tmp/$1.failed"
    echo 0 >"/tmp/$1.rounds"
    (
        while [ ! -e "/tmp/$1.stop" ]; do
            verified "$2" "$3" >"/tmp/$1.out" 2>&1 || { mv "/tmp/$1.out" "/tmp/$1.failed"; break; }
            echo $(($(cat "/tmp/$1.rounds") + 1)) >"/tmp/$1.rounds.new"
            mv "/tmp/$1.rounds.new" "/tmp/$1.rounds"
        done
    ) &
    LOAD=$!
}

load_failed() { [ -e "/tmp/$1.failed" ] && cat "/tmp/$1.failed"; }

# load_goes_on NAME : waits for the ends of two rounds, so that one began and ended from now on.
load_goes_on() {
    local goal
    goal=$(($(cat "/tmp/$1.rounds") + 2))
    within 60 load_got "$1" $goal && ! load_failed "$1"
}

load_got() { [ "$(cat "/tmp/$1.rounds")" -ge "$2" ] || [ -e "/tmp/$1.failed" ]; }

# end_load NAME : lets the round end; fails if any round did.
end_load() {
    touch "/tmp/$1.stop"
    wait $LOAD
    ! load_failed "$1" && [ "$(cat "/tmp/$1.rounds")" -gt 0 ]
}

# ---- disks of the guest

# flushes DISK : flushes that the block device has completed (Documentation/block/stat, field 16).
flushes() {
    local fields
    read -ra fields <"/sys/block/${1#/dev/}/stat"
    echo "${fields[15]}"
}

# null_disk NAME NAME=VALUE... : a null_blk disk that keeps its data; prints its device node. fua=1 is what it is unless told.
null_disk() {
    local dir=/sys/kernel/config/nullb/$1 setting
    shift
    mkdir "$dir"
    for setting in memory_backed=1 size=256 blocksize=512 irqmode=0 completion_nsec=0 "$@"; do
        [ "$setting" = fua=1 ] || echo "${setting#*=}" >"$dir/${setting%%=*}" || return 1
    done
    echo 1 >"$dir/power"
    ls -d "/dev/nullb$(cat "$dir/index")" "/dev/$(basename "$dir")" 2>/dev/null | head -1
}

# null_disk_can NAME : this kernel's null_blk has that setting.
null_disk_can() { grep -qw "$1" /sys/kernel/config/nullb/features; }

# dsync_costs DISK NULL FUA : 100 writes with O_DSYNC to DISK, which is the volume on the server's disk d, which is the null_blk
# disk NULL with FUA or without; claims about what reached NULL.
dsync_costs() {
    local null=$2 fua=$3 device asked requested elided
    must "a write and a flush, to start from" dd if=/dev/zero of="$1" bs=4k count=1 oflag=direct conv=fsync
    device=$(flushes "$null") asked=$(disk_count d asked.flushes)
    requested=$(disk_count d flush_requested) elided=$(disk_count d flush_elided)
    must "100 writes with O_DSYNC" fio --name=d --filename="$1" --rw=write --bs=4k --size=400k --direct=1 --sync=dsync \
        --ioengine=psync
    device=$(($(flushes "$null") - device)) asked=$(($(disk_count d asked.flushes) - asked))
    requested=$(($(disk_count d flush_requested) - requested)) elided=$(($(disk_count d flush_elided) - elided))
    echo "fua=$fua: $requested flushes were wanted, $elided had nothing to do, the device saw $device"
    must "the host asked for a flush behind most writes" test $elided -ge 90
    must "one flush per write without FUA, none with" test $device = $((100 * (1 - fua)))
    must "the server counts what the device counts" test $asked = $device
}

# size_is DISK BYTES
size_is() { [ $(($(cat "/sys/block/${1#/dev/}/size") * 512)) = "$2" ]; }

# ---- iSCSI

start_iscsid() {
    mkdir -p /run/lock/iscsi /etc/iscsi
    pidof iscsid >/dev/null || iscsid
    within 10 pidof iscsid >/dev/null
}

# login TARGET PORTAL NAME=VALUE... : with these settings of the node record.
login() {
    local target=$1 portal=$2 setting
    shift 2
    iscsiadm -m node -T "$target" -p "$portal" -o new
    for setting in node.startup=manual "$@"; do
        iscsiadm -m node -T "$target" -p "$portal" -o update -n "${setting%%=*}" -v "${setting#*=}" || return 1
    done
    iscsiadm -m node -T "$target" -p "$portal" --login
}

logout() { iscsiadm -m node -T "$1" -p "$2" --logout; }

# session_of TARGET [PORTAL] : its folder in sysfs.
session_of() {
    local session connection
    for session in /sys/class/iscsi_session/session*; do
        [ "$(cat "$session/targetname" 2>/dev/null)" = "$1" ] || continue
        connection=/sys/class/iscsi_connection/connection${session##*/session}:0
        [ -z "${2:-}" ] || [ "$(cat "$connection/persistent_address")" = "${2%:*}" ] || continue
        echo "$session"
        return 0
    done
    return 1
}

# disk_of TARGET [LUN [PORTAL]] : prints the device node once it is there.
disk_of() { within 10 find_disk "$@" || { echo "no disk for $*" >&2; return 1; }; }

find_disk() {
    local session node
    session=$(session_of "$1" "${3:-}") || return 1
    for node in "$session"/device/target*/*:"${2:-0}"/block/*; do
        [ -b "/dev/${node##*/}" ] && echo "/dev/${node##*/}" && return 0
    done
    return 1
}

# session_is TARGET STATE : LOGGED_IN, FAILED.
session_is() { [ "$(cat "$(session_of "$1")/state")" = "$2" ]; }

digests_are() { iscsiadm -m session -P 2 | grep -c "Digest: $1" | grep -qx 2; }

# ---- NVMe

# connect SUBSYSTEM PORTAL [NVME'S OPTIONS...]
connect() {
    local subsystem=$1 portal=$2
    shift 2
    nvme connect -t tcp -n "$subsystem" -a "${portal%:*}" -s "${portal##*:}" "$@"
}

# controller_of SUBSYSTEM [PORTAL] : prints its device node.
controller_of() {
    local controller
    for controller in /sys/class/nvme/nvme*; do
        [ "$(cat "$controller/subsysnqn" 2>/dev/null)" = "$1" ] || continue
        [ -z "${2:-}" ] || grep -q "traddr=${2%:*},trsvcid=${2##*:}" "$controller/address" || continue
        echo "/dev/${controller##*/}"
        return 0
    done
    return 1
}

# namespace_of SUBSYSTEM [NSID] : prints the device node once it is there.
namespace_of() { within 10 find_namespace "$@" || { echo "no namespace for $*" >&2; return 1; }; }

find_namespace() {
    local subsystem node
    for subsystem in /sys/class/nvme-subsystem/nvme-subsys*; do
        [ "$(cat "$subsystem/subsysnqn" 2>/dev/null)" = "$1" ] || continue
        for node in "$subsystem"/nvme*n*; do
            # The name of one path to it has a c in it.
            [[ ${node##*/} =~ ^nvme[0-9]+n[0-9]+$ ]] || continue
            [ "$(cat "$node/nsid" 2>/dev/null)" = "${2:-1}" ] || continue
            [ -b "/dev/${node##*/}" ] && echo "/dev/${node##*/}" && return 0
        done
    done
    return 1
}

# controllers_are NUMBER : that the server has.
controllers_are() { [ "$(status '[.shards[].controllers | length] | add')" = "$1" ]; }

# controller_is CONTROLLER STATE : live, connecting, ...
controller_is() { [ "$(cat "/sys/class/nvme/${1#/dev/}/state" 2>/dev/null)" = "$2" ]; }

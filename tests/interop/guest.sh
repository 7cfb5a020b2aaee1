# Sourced by the cases, in the guest.

# must NAME COMMAND... : runs it; ends the case if it fails. Its output is in /tmp/out for the next command to look at.
must() {
    local name=$1 rc
    shift
    "$@" >/tmp/out.new 2>&1
    rc=$?
    mv /tmp/out.new /tmp/out
    if [ $rc = 0 ]; then
        echo "ok: $name"
    else
        echo "FAILED ($rc): $name: $*"
        tail -20 /tmp/out
        dmesg | tail -5
        exit 1
    fi
}

start_iscsid() {
    mkdir -p /run/lock/iscsi /etc/iscsi
    pidof iscsid >/dev/null || iscsid
    until pidof iscsid >/dev/null; do sleep 0.1; done
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

# disk_of TARGET [LUN] : prints the device node once it is there.
disk_of() {
    local session node i
    for i in $(seq 100); do
        for session in /sys/class/iscsi_session/session*; do
            [ "$(cat "$session/targetname" 2>/dev/null)" = "$1" ] || continue
            for node in "$session"/device/target*/*:"${2:-0}"/block/*; do
                [ -b "/dev/${node##*/}" ] && echo "/dev/${node##*/}" && return 0
            done
        done
        sleep 0.1
    done
    echo "no disk for $1" >&2
    return 1
}

digests_are() {
    iscsiadm -m session -P 2 | grep -c "Digest: $1" | grep -qx 2
}

# flushes DISK : flushes that the block device has completed (Documentation/block/stat, field 16).
flushes() {
    awk '{print $16}' "/sys/block/$1/stat"
}

# null_disk NAME NAME=VALUE... : a null_blk disk that keeps its data; prints the kernel's name for it.
null_disk() {
    local dir=/sys/kernel/config/nullb/$1 setting
    shift
    mkdir "$dir"
    for setting in memory_backed=1 size=256 blocksize=512 irqmode=0 completion_nsec=0 "$@"; do
        echo "${setting#*=}" >"$dir/${setting%%=*}" || return 1
    done
    echo 1 >"$dir/power"
    ls -d "/dev/nullb$(cat "$dir/index")" "/dev/$(basename "$dir")" 2>/dev/null | head -1
}

# Two portals of one subsystem, joined by the host's own multipath: it follows the ANA states, and their changes by a reload,
# and uses the other path while one is out, in the middle of verified writes; no write failed.
# limit: 180
. /host/tests/interop/guest.sh

[ "$(cat /sys/module/nvme_core/parameters/multipath)" = Y ] || skip "this kernel has no native NVMe multipath"
cable a 10.7.1
cable b 10.7.2
# config A B : the ANA states by the two portals.
config() {
    configure <<YAML
portals:
  a: { listen: "10.7.1.2:4420", protocol: nvme }
  b: { listen: "10.7.2.2:4420", protocol: nvme }
nvme:
  ana_groups: { 1: { a: $1, b: $2 } }
disks: { d: { path: /run/platter/disk.img, size: 128MiB } }
volumes:
  v: { disk: d, hosts: { allow_any: true }, nvme: { subsystem: "$SUBSYSTEM" } }
YAML
}
config optimized non-optimized
must "the server starts" serve ip netns exec server
must "discovery" nvme discover -t tcp -a 10.7.1.2 -s 4420
must "it names both portals" shows 'traddr: *10.7.1.2' 'traddr: *10.7.2.2'
for address in 10.7.1.2 10.7.2.2; do
    must "connect to $address" connect "$SUBSYSTEM" $address:4420 --keep-alive-tmo=4 --reconnect-delay=1
done
A=$(controller_of "$SUBSYSTEM" 10.7.1.2:4420) && B=$(controller_of "$SUBSYSTEM" 10.7.2.2:4420) || exit 1
DISK=$(namespace_of "$SUBSYSTEM") || exit 1

# path CONTROLLER : the folder in sysfs of its path to the namespace.
path() { echo "/sys/class/nvme/${1#/dev/}"/nvme*c*n*; }
ana_is() { [ "$(cat "$(path "$1")/ana_state" 2>/dev/null)" = "$2" ]; }
# writes CONTROLLER : that took its path (Documentation/block/stat, field 5).
writes() {
    local fields
    read -ra fields <"$(path "$1")/stat"
    echo "${fields[4]}"
}
# takes CONTROLLER OTHER : a round of writes takes only the path of the first.
takes() {
    local first other
    first=$(writes "$1") other=$(writes "$2")
    verified "$DISK" 1m --offset=64m && [ "$(writes "$1")" -gt "$first" ] && [ "$(writes "$2")" = "$other" ]
}
must "two paths to one namespace" eval "[ -e $(path "$A")/stat ] && [ -e $(path "$B")/stat ]"
must "by a it is optimized" within 10 ana_is "$A" optimized
must "by b it is not" within 10 ana_is "$B" non-optimized
must "writes go by a" takes "$A" "$B"

start_load load "$DISK" 4m
config non-optimized optimized
must "reload with the states exchanged" reload
must "by b it is optimized" within 10 ana_is "$B" optimized
must "by a it is not" within 10 ana_is "$A" non-optimized
must "the load goes on" load_goes_on load
must "writes go by b" takes "$B" "$A"
config optimized inaccessible
must "reload with the namespace out of reach by b" reload
must "by b it is inaccessible" within 10 ana_is "$B" inaccessible
must "the load goes on" load_goes_on load
must "writes go by a" takes "$A" "$B"
config optimized optimized
must "reload with both optimized" reload
must "by b it is optimized" within 10 ana_is "$B" optimized

must "cable a is pulled" pull a
must "the host notices" within 20 controller_is "$A" connecting
must "the load goes on" load_goes_on load
must "cable a is back" plug a
must "so is its controller" within 60 controller_is "$A" live
must "cable b is pulled" pull b
must "the host notices" within 20 controller_is "$B" connecting
must "the load goes on" load_goes_on load
must "cable b is back" plug b
must "so is its controller" within 60 controller_is "$B" live
must "every write was read back" end_load load
must "no write of the namespace failed" eval "! dmesg | grep -E 'I/O error, dev ${DISK#/dev/},|Buffer I/O error'"
must "disconnect" nvme disconnect -n "$SUBSYSTEM"
must "clean stop" stop_server
all_passed

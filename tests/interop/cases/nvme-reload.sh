# Namespaces are added, grown and removed by a reload of the configuration, and the host sees each without being told to
# look; the one beside them goes on all the while.
. /host/tests/interop/guest.sh

# config W SIZE : with the volume w of that size, or without it.
config() {
    configure <<YAML
portals: { n: { listen: "127.0.0.1:${PORT:-4420}", protocol: nvme } }
disks:
  d: { path: /run/platter/d.img, size: 64MiB }
$([ -z "$1" ] || echo "  e: { path: /run/platter/e.img, size: $1 }")
volumes:
  v: { disk: d, hosts: { allow_any: true }, nvme: { subsystem: "$SUBSYSTEM", nsid: 1 } }
$([ -z "$1" ] || echo "  w: { disk: e, hosts: { allow_any: true }, nvme: { subsystem: \"$SUBSYSTEM\", nsid: 2 } }")
YAML
}
config ""
must "the server starts" serve
must "connect" connect "$SUBSYSTEM" 127.0.0.1:4420
DISK=$(namespace_of "$SUBSYSTEM" 1) || exit 1
start_load load "$DISK" 4m
must "the load runs" load_goes_on load

config 32MiB
must "reload with another volume" reload
must "its namespace comes" namespace_of "$SUBSYSTEM" 2
NEW=$(cat /tmp/out)
must "of the right size" within 10 size_is "$NEW" $((32 << 20))
must "it serves" verified "$NEW" 4m
config 48MiB
must "reload with a larger one" reload
must "the namespace grows" within 10 size_is "$NEW" $((48 << 20))
must "its new end serves" verified "$NEW" 4m --offset=40m
PORT=4421 config ""
must "a reload with another portal is refused" refused reload
must "and changes nothing" size_is "$NEW" $((48 << 20))
config ""
must "reload without it" reload
must "the namespace goes" within 10 eval "[ ! -e $NEW ]"
must "the load goes on" load_goes_on load
must "every write was read back" end_load load
must "no error reached the block layer" no_io_errors
must "disconnect" nvme disconnect -n "$SUBSYSTEM"
must "clean stop" stop_server
all_passed

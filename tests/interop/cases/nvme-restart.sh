# A controller survives restarts of the server, one clean and one by SIGKILL, in the middle of verified writes: the same
# namespace is there afterwards, and no write failed.
. /host/tests/interop/guest.sh

configure <<YAML
portals: { n: { listen: "127.0.0.1:4420", protocol: nvme } }
disks: { d: { path: /run/platter/disk.img, size: 128MiB } }
volumes:
  v: { disk: d, hosts: { allow_any: true }, nvme: { subsystem: "$SUBSYSTEM" } }
YAML
must "the server starts" serve
must "connect" connect "$SUBSYSTEM" 127.0.0.1:4420 --reconnect-delay=1
CONTROLLER=$(controller_of "$SUBSYSTEM") && DISK=$(namespace_of "$SUBSYSTEM") || exit 1
start_load load "$DISK" 4m
must "the load runs" load_goes_on load
for end in stop_server kill_server; do
    must "$end" $end
    must "the host notices" within 10 controller_is "$CONTROLLER" connecting
    must "the server is back" serve
    must "so is the controller" within 20 controller_is "$CONTROLLER" live
    must "the load goes on" load_goes_on load
done
must "every write was read back" end_load load
must "it is the same namespace" test "$(namespace_of "$SUBSYSTEM")" = "$DISK"
must "no error reached the block layer" no_io_errors
must "disconnect" nvme disconnect -n "$SUBSYSTEM"
must "clean stop" stop_server
all_passed

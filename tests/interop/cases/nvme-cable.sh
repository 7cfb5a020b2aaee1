# The server does not answer for longer than the keep alive timeout, because the cable is out and then because it is stopped,
# in the middle of verified writes: the host gives the controller up and connects anew, and no write failed.
# limit: 180
. /host/tests/interop/guest.sh

cable a 10.7.1
configure <<YAML
portals: { n: { listen: "10.7.1.2:4420", protocol: nvme } }
disks: { d: { path: /run/platter/disk.img, size: 128MiB } }
volumes:
  v: { disk: d, hosts: { allow_any: true }, nvme: { subsystem: "$SUBSYSTEM" } }
YAML
must "the server starts" serve ip netns exec server
must "connect with a keep alive timeout of 4 s" connect "$SUBSYSTEM" 10.7.1.2:4420 --keep-alive-tmo=4 --reconnect-delay=1
CONTROLLER=$(controller_of "$SUBSYSTEM") && DISK=$(namespace_of "$SUBSYSTEM") || exit 1
start_load load "$DISK" 4m
must "the load runs" load_goes_on load

must "the cable is pulled" pull a
must "the host notices" within 20 controller_is "$CONTROLLER" connecting
must "so does the server" within 20 grep -q 'keep alive timeout' $LOG
must "the cable is back" plug a
must "so is the controller" within 60 controller_is "$CONTROLLER" live
must "the load goes on" load_goes_on load

must "the server is stopped" kill -STOP $SERVER
must "the host notices" within 20 controller_is "$CONTROLLER" connecting
must "the server goes on" kill -CONT $SERVER
must "the controller is back" within 60 controller_is "$CONTROLLER" live
must "the load goes on" load_goes_on load

must "every write was read back" end_load load
must "the server has one controller" controllers_are 1
must "no error reached the block layer" no_io_errors
must "disconnect" nvme disconnect -n "$SUBSYSTEM"
must "it has none" within 10 controllers_are 0
must "clean stop" stop_server
all_passed

# The cable between initiator and server is out for longer than the pings of both allow, in the middle of verified writes;
# the session recovers, and no write failed.
. /host/tests/interop/guest.sh

start_iscsid
cable a 10.7.1
configure <<YAML
portals: { p: { listen: "10.7.1.2:3260" } }
disks: { d: { path: /run/platter/disk.img, size: 128MiB } }
volumes:
  v: { disk: d, hosts: { allow_any: true }, iscsi: { target: "$TARGET", lun: 0 } }
YAML
must "the server starts" serve ip netns exec server
must "login" login "$TARGET" 10.7.1.2:3260 "node.conn[0].timeo.noop_out_interval=2" "node.conn[0].timeo.noop_out_timeout=3"
DISK=$(disk_of "$TARGET") || exit 1
start_load load "$DISK" 4m
must "the load runs" load_goes_on load
must "the cable is pulled" pull a
PULLED=$SECONDS
must "the initiator notices" within 20 session_is "$TARGET" FAILED
must "it stays out for 20 s" within 60 eval "[ \$SECONDS -ge $((PULLED + 20)) ]"
must "the cable is back" plug a
must "so is the session" within 60 session_is "$TARGET" LOGGED_IN
must "the load goes on" load_goes_on load
must "every write was read back" end_load load
must "the server has one session" test "$(status '[.shards[].sessions[]] | length')" = 1
must "no error reached the block layer" no_io_errors
must "logout" logout "$TARGET" 10.7.1.2:3260
must "clean stop" stop_server
all_passed

# A session survives restarts of the server, one clean and one by SIGKILL, in the middle of verified writes: the same disk
# is there afterwards, and no write failed.
. /host/tests/interop/guest.sh

start_iscsid
configure <<YAML
portals: { p: { listen: "127.0.0.1:3260" } }
disks: { d: { path: /run/platter/disk.img, size: 128MiB } }
volumes:
  v: { disk: d, hosts: { allow_any: true }, iscsi: { target: "$TARGET", lun: 0 } }
YAML
must "the server starts" serve
must "login" login "$TARGET" 127.0.0.1:3260
DISK=$(disk_of "$TARGET") || exit 1
SESSION=$(session_of "$TARGET")
start_load load "$DISK" 4m
must "the load runs" load_goes_on load
for end in stop_server kill_server; do
    must "$end" $end
    must "the initiator notices" within 10 session_is "$TARGET" FAILED
    must "the server is back" serve
    must "so is the session" within 10 session_is "$TARGET" LOGGED_IN
    must "the load goes on" load_goes_on load
done
must "every write was read back" end_load load
must "it is the same session" test "$(session_of "$TARGET")" = "$SESSION"
must "it is the same disk" test "$(disk_of "$TARGET")" = "$DISK"
must "no error reached the block layer" no_io_errors
must "logout" logout "$TARGET" 127.0.0.1:3260
must "clean stop" stop_server
all_passed

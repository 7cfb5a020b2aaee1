# Units are added, grown and removed by a reload of the configuration: a rescan finds what is new, a unit that is gone is
# refused, and the one beside them goes on all the while.
. /host/tests/interop/guest.sh

# config W SIZE : with the volume w of that size, or without it.
config() {
    configure <<YAML
portals: { p: { listen: "127.0.0.1:${PORT:-3260}" } }
disks:
  d: { path: /run/platter/d.img, size: 64MiB }
  e: { path: /run/platter/e.img, size: 16MiB }
$([ -z "$1" ] || echo "  f: { path: /run/platter/f.img, size: $1 }")
volumes:
  v: { disk: d, hosts: { allow_any: true }, iscsi: { target: "$TARGET", lun: 0 } }
  x: { disk: e, hosts: { allow_any: true }, iscsi: { target: "$TARGET", lun: 1 } }
$([ -z "$1" ] || echo "  w: { disk: f, hosts: { allow_any: true }, iscsi: { target: \"$TARGET\", lun: 2 } }")
YAML
}
rescan() { iscsiadm -m node -T "$TARGET" -R; }

start_iscsid
config ""
must "the server starts" serve
must "login" login "$TARGET" 127.0.0.1:3260
DISK=$(disk_of "$TARGET" 0) && SECOND=$(disk_of "$TARGET" 1) || exit 1
must "two units of different sizes" eval "size_is $DISK $((64 << 20)) && size_is $SECOND $((16 << 20))"
must "of different identities" test "$(/lib/udev/scsi_id --whitelisted "$DISK")" != "$(/lib/udev/scsi_id --whitelisted "$SECOND")"
must "the second serves" verified "$SECOND" 1m
start_load load "$DISK" 4m
must "the load runs" load_goes_on load

config 32MiB
must "reload with another volume" reload
must "rescan" rescan
must "its unit comes" disk_of "$TARGET" 2
NEW=$(cat /tmp/out)
must "of the right size" size_is "$NEW" $((32 << 20))
must "it serves" verified "$NEW" 4m
config 48MiB
must "reload with a larger one" reload
must "rescan" rescan
must "the unit has grown" within 10 size_is "$NEW" $((48 << 20))
must "its new end serves" verified "$NEW" 4m --offset=40m
PORT=3261 config ""
must "a reload with another portal is refused" refused reload
must "and changes nothing" verified "$NEW" 1m
config ""
must "reload without it" reload
must "it does not serve any more" refused sg_turs "$NEW"
must "REPORT LUNS has the other two" eval "sg_luns $DISK | grep -q 'number of.*2\|imples 2\|entries=2\|length=16\|list length.* 16'"
must "the second still serves" verified "$SECOND" 1m
must "the load goes on" load_goes_on load
must "every write was read back" end_load load
must "logout" logout "$TARGET" 127.0.0.1:3260
must "clean stop" stop_server
all_passed

# Two portals of one target, joined by dm-multipath: both paths are known to lead to one disk, one of them goes away and comes
# back in the middle of verified writes, then the other, and no write failed.
. /host/tests/interop/guest.sh

cat >/etc/multipath.conf <<'CONF'
defaults {
    polling_interval 1
    max_polling_interval 1
    find_multipaths no
    user_friendly_names no
    path_grouping_policy failover
    failback immediate
    no_path_retry 10
}
blacklist {
    devnode "^(nvme|nullb|loop|ubd|ram)"
}
CONF
start_iscsid
cable a 10.7.1
cable b 10.7.2
configure <<YAML
portals:
  a: { listen: "10.7.1.2:3260" }
  b: { listen: "10.7.2.2:3260" }
disks: { d: { path: /run/platter/disk.img, size: 128MiB } }
volumes:
  v: { disk: d, hosts: { allow_any: true }, iscsi: { target: "$TARGET", lun: 0 } }
YAML
must "the server starts" serve ip netns exec server
must "discovery" iscsiadm -m discovery -t st -p 10.7.1.2:3260
must "it names both portals" shows "^10.7.1.2:3260,.* $TARGET" "^10.7.2.2:3260,.* $TARGET"
for portal in 10.7.1.2:3260 10.7.2.2:3260; do
    must "login by $portal" login "$TARGET" $portal node.session.timeo.replacement_timeout=3 \
        "node.conn[0].timeo.noop_out_interval=1" "node.conn[0].timeo.noop_out_timeout=2"
done
A=$(disk_of "$TARGET" 0 10.7.1.2:3260) && B=$(disk_of "$TARGET" 0 10.7.2.2:3260) || exit 1
must "two disks" test "$A" != "$B"
id_of() { /lib/udev/scsi_id --whitelisted "$1"; }
must "of one identity" test "$(id_of "$A")" = "$(id_of "$B")"

mkdir -p /run/multipathd /etc/multipath
must "multipathd" multipathd
# paths_are STATE STATE : what it thinks of the paths by a and by b.
paths_are() { paths >/tmp/paths; grep -qx "${A#/dev/} $1" /tmp/paths && grep -qx "${B#/dev/} $2" /tmp/paths; }
paths() { multipathd show paths raw format "%d %t" 2>/dev/null; }
must "both paths are active" within 20 paths_are active active
maps() { multipathd show maps raw format "%n" 2>/dev/null; }
must "one map" within 10 eval '[ "$(maps | wc -l)" = 1 ] && [ -b "/dev/mapper/$(maps)" ]'
MAP=/dev/mapper/$(maps)


start_load load "$MAP" 4m
must "the load runs" load_goes_on load
for cable in a b; do
    [ $cable = a ] && down="failed active" || down="active failed"
    must "cable $cable is pulled" pull $cable
    must "multipathd takes its path out" within 30 paths_are $down
    must "the load goes on" load_goes_on load
    must "cable $cable is back" plug $cable
    must "so is its path" within 60 paths_are active active
    must "the load goes on again" load_goes_on load
done
must "every write was read back" end_load load
must "a file system on the map" mkfs.ext4 -q -F "$MAP"
must "none of the map's I/O failed" eval '! dmesg | grep -E "I/O error.*dev dm-|Buffer I/O error"'
multipathd shutdown >/dev/null 2>&1
must "multipathd ends" within 10 eval "! pidof multipathd >/dev/null"
must "the map goes" within 10 multipath -F
must "logout" iscsiadm -m node --logoutall=all
must "clean stop" stop_server
all_passed

# `platter serve --demo`, and the lines that it prints, as printed.
. /host/tests/interop/guest.sh

start_iscsid
mkdir -p /tmp/demo
cd /tmp/demo || exit 1
ln -s "$PLATTER" /usr/local/bin/platter
platter serve --demo >/tmp/demo/lines 2>$LOG &
SERVER=$!
must "the demo starts" within 10 serving
grep -E '^  (iscsi-ls|iscsi-inq|iscsiadm|nvme|platter) ' lines >commands
while read -r line; do
    must "$line" eval "$line"
done <commands
must "there was discovery and use over both protocols" eval \
    'grep -q "iscsiadm .*discovery" commands && grep -q "iscsiadm .*--login" commands && grep -q "nvme discover" commands && grep -q "nvme connect" commands'
SCSI=$(disk_of iqn.2026-11.org.platter:demo) && NVME=$(namespace_of nqn.2026-11.org.platter:demo) || exit 1
must "both lead to the demo's volume" eval "size_is $SCSI $((2 << 30)) && size_is $NVME $((2 << 30))"
must "a file system over iSCSI" mkfs.ext4 -q -F "$SCSI"
must "is found over NVMe" e2fsck -f -n "$NVME"
must "disconnect" nvme disconnect -n nqn.2026-11.org.platter:demo
must "logout" iscsiadm -m node --logoutall=all
must "clean stop" stop_server
all_passed

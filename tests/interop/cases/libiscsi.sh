# The tests of a newer libiscsi that the one of the host has wrong: see tests/tools/libiscsi-defects.tsv.
# server: iscsi
. /host/tests/interop/guest.sh

# Each line of the list names a test and the one assertion that the old one has wrong.
grep -v '^#' /host/tests/tools/libiscsi-defects.tsv >/tmp/defects
while IFS=$'\t' read -r test defect _; do
    iscsi-test-cu --dataloss --fail -n -t "$test" "iscsi://$PORTAL/$TARGET/0" >/tmp/test.out 2>&1
    ! grep -qF "$defect" /tmp/test.out || skip "the libiscsi of the guest is the old one: $defect"
    must "$test" cat /tmp/test.out
    must "it ran and nothing failed" awk '$1 == "tests" { exit !($3 == 1 && $5 == 0) }' /tmp/out
done </tmp/defects
must "there was a test" test -s /tmp/defects
all_passed

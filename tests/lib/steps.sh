# Sourced by test scripts: steps with a name and a result, and a summary that counts them.
PASSED=0 FAILED=0 SKIPPED=0 FAILURES=()

# step NAME COMMAND... : runs it; exit code 77 means skipped, and its last line says why.
step() {
    local name=$1 rc start=$SECONDS
    shift
    echo "==> $name: $*"
    "$@"
    rc=$?
    case $rc in
        0) PASSED=$((PASSED + 1)); echo "<== passed in $((SECONDS - start)) s: $name" ;;
        77) SKIPPED=$((SKIPPED + 1)); echo "<== SKIPPED: $name" ;;
        *) FAILED=$((FAILED + 1)); FAILURES+=("$name"); echo "<== FAILED ($rc) after $((SECONDS - start)) s: $name" ;;
    esac
}

finish() {
    for name in "${FAILURES[@]}"; do echo "failed: $name"; done
    echo "$PASSED passed, $FAILED failed, $SKIPPED skipped"
    [ $FAILED = 0 ]
    exit
}

# need_packages FILE:PACKAGE... : installs the packages whose file (a command, or a QEMU block driver) is missing.
need_packages() {
    local pair file missing=()
    for pair in "$@"; do
        file=${pair%%:*}
        command -v "$file" >/dev/null || ls /usr/lib/*/qemu/"$file" >/dev/null 2>&1 || missing+=("${pair#*:}")
    done
    [ ${#missing[@]} = 0 ] && return
    if ! command -v apt-get >/dev/null || [ "$(id -u)" != 0 ]; then
        echo "missing: ${missing[*]} (Debian's names); tests that need them will fail"
        return
    fi
    echo "installing ${missing[*]}"
    export DEBIAN_FRONTEND=noninteractive
    apt-get update -qq
    # qemu-block-extra must be of the same release as qemu-utils: where they differ, both come from the stable suite.
    apt-get install -y -qq --no-install-recommends "${missing[@]}" >/dev/null ||
        apt-get install -y -qq --no-install-recommends --allow-downgrades \
            $(printf '%s\n' "${missing[@]}" qemu-utils | sort -u | sed "s,^qemu.*,&/$(. /etc/os-release; echo "$VERSION_CODENAME"),") >/dev/null
}

# start_server CONFIG_FILE LOG : starts the release binary, waits until its portals listen; sets SERVER to its pid.
start_server() {
    target/release/platter serve "$1" 2>"$2" &
    SERVER=$!
    wait_for_log "$2" 'listening on' || { cat "$2"; return 1; }
}

# wait_for_log FILE PATTERN : until the line is there or the server is gone.
wait_for_log() {
    local i
    for i in $(seq 100); do
        grep -q "$2" "$1" 2>/dev/null && return 0
        kill -0 "$SERVER" 2>/dev/null || return 1
        sleep 0.1
    done
    return 1
}

# stop_server : SIGTERM; its exit code.
stop_server() {
    kill -TERM "$SERVER"
    wait "$SERVER"
}

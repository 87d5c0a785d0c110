#!/usr/bin/env bash
# Real faults against the journal and folders of inboxes: kill -9, power cuts, full disks, failing
# syncs, races; against Redis Cluster and Sentinel: masters that are killed, paused or cut off, slots
# that move; then the same with planted bugs, which must be noticed. Arguments are names of
# experiments (kill, power, full, sync, race, failover, sentinel, reshard, self-test) and of what is
# tried (journal, dir, redis), by default all. FAULTS_SCALE=10 makes it ten times longer.
#
# Needs root for mounts, and strace, mkfs.ext4 and python3. For Redis it needs redis-server,
# redis-cli, ip, and root or user namespaces for a network of its own. What cannot run says so; with
# CI=true that is a failure.
set -euo pipefail
source "$(dirname "${BASH_SOURCE[0]}")/environment.sh"

# CI machines let their user become root; elsewhere nobody becomes root without having asked for it.
AS_ROOT=()
if ((EUID != 0)) && [[ "${CI:-}" == true ]] && sudo -n true 2>/dev/null; then
    AS_ROOT=(sudo -n --preserve-env=CI,FAULTS_SCALE,FAULTS_SEED,TMPDIR)
fi

is_root() {
    ((EUID == 0 || ${#AS_ROOT[@]} > 0))
}

install_missing() {
    local packages=()
    command -v strace >/dev/null || packages+=(strace)
    command -v mkfs.ext4 >/dev/null || packages+=(e2fsprogs)
    command -v python3 >/dev/null || packages+=(python3)
    command -v ip >/dev/null || packages+=(iproute2)
    if ((${#packages[@]} == 0)); then
        return
    fi
    if ! is_root || ! command -v apt-get >/dev/null; then
        echo "missing, and not installed by this script here: ${packages[*]}" >&2
        return
    fi
    echo "installing ${packages[*]}"
    "${AS_ROOT[@]}" apt-get update -qq
    "${AS_ROOT[@]}" apt-get install -y -qq --no-install-recommends "${packages[@]}" >/dev/null
}

# mkfs.ext4 is not on everybody's path.
export PATH="$PATH:/usr/sbin:/sbin"
install_missing
cargo build -q $LOCKED -p mailbox-faults

# With mounts of its own: whatever happens to the program, none of them stays behind.
OWN_MOUNTS=()
if is_root && "${AS_ROOT[@]}" unshare --mount true 2>/dev/null; then
    OWN_MOUNTS=(unshare --mount)
fi
exec "${AS_ROOT[@]}" "${OWN_MOUNTS[@]}" "$TARGET_DIR/debug/mailbox-faults" "$@"

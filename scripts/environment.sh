# Sourced by the other scripts: goes to the repository root and says how cargo is called.
# shellcheck shell=bash
cd "$(dirname "${BASH_SOURCE[0]}")/.."

# cargo install puts its binaries here; a fresh shell may not look there yet.
export PATH="${CARGO_HOME:-$HOME/.cargo}/bin:$PATH"

# CI must build what the lock file says; a developer may be in the middle of changing it.
# Left unquoted where it is used, so that nothing at all is passed when it is empty.
LOCKED=""
if [[ "${CI:-}" == true ]]; then
    LOCKED="--locked"
fi
export LOCKED

TARGET_DIR="${CARGO_TARGET_DIR:-target}"
export TARGET_DIR

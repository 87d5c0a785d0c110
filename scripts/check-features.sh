#!/usr/bin/env bash
# Clippy with warnings denied: `mailbox` without features, with each feature alone, then the whole
# workspace with default and with all features. The features come from the manifest, so that a new
# one cannot be forgotten.
#
# Each set is checked twice: the library by itself, as a user builds it, and all targets, whose
# dev-dependencies switch on features of other crates and so hide a missing one.
set -euo pipefail
source "$(dirname "${BASH_SOURCE[0]}")/environment.sh"

clippy() {
    cargo clippy -q $LOCKED "$@" -- -D warnings
}

check_set() {
    echo "mailbox: ${1:-no features}"
    clippy -p mailbox --lib --no-default-features --features "$1"
    clippy -p mailbox --all-targets --no-default-features --features "$1"
}

features="$(scripts/metadata.sh features mailbox)"
check_set ""
for feature in $features; do
    check_set "$feature"
done
echo "workspace: default features"
clippy --workspace --all-targets
echo "workspace: all features"
clippy --workspace --all-targets --all-features

#!/usr/bin/env bash
# The fast inner loop: what finds most mistakes in under a minute once things are built.
set -euo pipefail
source "$(dirname "${BASH_SOURCE[0]}")/environment.sh"
source scripts/steps.sh

step "tools"  scripts/install-tools.sh
step "format" cargo fmt --all --check
step "lints"  cargo clippy -q $LOCKED --workspace --all-targets -- -D warnings
# `repository` is the test of mailbox-tidy that reads every tracked file.
step "tests"  cargo nextest run $LOCKED --workspace --lib --test repository

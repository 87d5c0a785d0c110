#!/usr/bin/env bash
# Installs what `make test` needs beyond a Rust toolchain, if it is missing.
set -euo pipefail
source "$(dirname "${BASH_SOURCE[0]}")/environment.sh"

for component in fmt clippy; do
    if ! cargo "$component" --version >/dev/null 2>&1; then
        echo "cargo $component is missing; 'rustup component add rustfmt clippy' installs it" >&2
        exit 1
    fi
done

if cargo nextest --version >/dev/null 2>&1; then
    cargo nextest --version | head -n 1
else
    echo "cargo-nextest is missing, installing it (once; takes a few minutes)"
    cargo install cargo-nextest --locked
fi

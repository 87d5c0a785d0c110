#!/usr/bin/env bash
# Everything CI runs, cheapest first. A step that finds nothing to run fails: a suite that has
# disappeared must not look like a suite that passed.
set -euo pipefail
source "$(dirname "${BASH_SOURCE[0]}")/environment.sh"
source scripts/steps.sh

docs() {
    RUSTDOCFLAGS="-D warnings" cargo doc $LOCKED --workspace --all-features --no-deps \
        --document-private-items
}

step "tools"               scripts/install-tools.sh
step "format"              cargo fmt --all --check
step "lints, feature sets" scripts/check-features.sh
step "docs"                docs
# Two thousand lines that say PASS would hide the one that does not.
# Conformance is left to its own steps: nextest runs each case in a process of its own, which would
# start its own servers, and hides the summary per subject.
step "tests"               cargo nextest run $LOCKED --workspace --all-features --status-level slow \
                               -E 'not binary(conformance)'
step "conformance"         cargo test $LOCKED -p mailbox-conformance --all-features \
                               --test conformance -- --quiet
step "conformance, cli"    cargo test $LOCKED -p mailbox-cli --all-features \
                               --test conformance -- --quiet
step "schemathesis"        scripts/run-schemathesis.sh
step "faults"              scripts/run-faults.sh
step "doctests"            cargo test $LOCKED --doc --workspace --all-features
step "examples"            scripts/run-examples.sh
step "shuttle"             scripts/run-shuttle.sh
step "fuzz"                scripts/run-fuzz.sh
step "dependencies"        scripts/check-dependencies.sh

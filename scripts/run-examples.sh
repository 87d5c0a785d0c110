#!/usr/bin/env bash
# Runs every example of the mailbox crate. An example that fails, or that is not done in time, fails
# the build; so does finding none.
set -euo pipefail
source "$(dirname "${BASH_SOURCE[0]}")/environment.sh"

SECONDS_MAX=60

examples="$(scripts/metadata.sh example mailbox)"
if [[ -z "$examples" ]]; then
    echo "mailbox has no examples" >&2
    exit 1
fi

cargo build -q $LOCKED -p mailbox --examples --all-features
for example in $examples; do
    echo "--- $example"
    status=0
    # Cargo replaces itself with the example, so the time-out reaches it.
    timeout "$SECONDS_MAX" cargo run -q $LOCKED -p mailbox --all-features --example "$example" \
        </dev/null || status=$?
    case $status in
    0) ;;
    124) echo "example $example was not done after $SECONDS_MAX s" >&2 && exit 1 ;;
    *) echo "example $example ended with status $status" >&2 && exit 1 ;;
    esac
done

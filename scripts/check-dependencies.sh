#!/usr/bin/env bash
# Keeps the library small: somebody who wants mailboxes in memory gets no HTTP, Redis, AWS, gRPC or
# TLS crate, and mailbox-core depends on nothing at all.
set -euo pipefail
source "$(dirname "${BASH_SOURCE[0]}")/environment.sh"

# Most crates in a tree of `mailbox`, itself included: without features, for mailboxes in memory; and
# with the default ones, which bring inboxes in folders (rustix, base64 and what they stand on).
# Raise them only with a reason.
BUDGET_BARE=46
BUDGET_DEFAULT=50
# With Redis: its client, and TLS with one provider of cryptography.
BUDGET_REDIS=105
# With the client of a service: HTTP, TLS with the same provider, capabilities.
BUDGET_REMOTE=84
# The same with OAP/1: protobuf, and zstd; and with gRPC: HTTP/2 beside protobuf, and tonic without its
# own connections, TLS and server.
BUDGET_OAP=93
BUDGET_GRPC=107

# A name in this list stands for itself and for its family: `hyper` also for `hyper-util`.
HEAVY="actix aws axum curl deadpool-redis fred grpcio h2 h3 http httparse hyper isahc native-tls
openssl prost protobuf quinn redis reqwest ring rusoto rustls s2n schannel security-framework tonic
tower-http tungstenite ureq warp webpki"

# Reads `name vX.Y.Z` lines, prints those of heavy crates.
heavy_crates() {
    local family
    family="$(echo $HEAVY | tr ' ' '|')"
    grep -E "^($family)([-_][a-zA-Z0-9_-]+)? v" || true
}

# First the proof that the check can fail, and that it does not fail for a name that only looks alike.
self_test() {
    local line
    for line in "hyper v1.0.0" "hyper-util v0.1.0" "aws-sdk-sqs v1.0.0" "redis v1.0.0" \
        "tonic v0.14.0 (proc-macro)" "ring v0.17.0"; do
        if [[ -z "$(printf 'bytes v1.0.0\n%s\n' "$line" | heavy_crates)" ]]; then
            echo "the dependency check does not see '$line'" >&2
            exit 1
        fi
    done
    for line in "httpdate v1.0.0" "ringbuf v0.4.0" "bytes v1.0.0"; do
        if [[ -n "$(echo "$line" | heavy_crates)" ]]; then
            echo "the dependency check takes '$line' for a heavy crate" >&2
            exit 1
        fi
    done
}

# The crates in a tree, each once.
crates() {
    cargo tree $LOCKED --prefix none "$@" | sed 's/ (.*//' | sort -u
}

self_test

# Every platform counts for the ban, only this one for the budget.
found="$(crates -p mailbox -e normal --target all | heavy_crates)"
if [[ -n "$found" ]]; then
    echo "the default features of mailbox pull in:" >&2
    echo "$found" >&2
    exit 1
fi
echo "mailbox: no heavy crate in the default tree"

within_budget() {
    local what="$1" budget="$2" count
    shift 2
    count="$(crates -p mailbox -e normal "$@" | wc -l)"
    echo "mailbox: $((count)) crates in the $what tree, budget $budget"
    if ((count > budget)); then
        echo "over the budget by $((count - budget)):" >&2
        crates -p mailbox -e normal "$@" >&2
        exit 1
    fi
}

within_budget bare "$BUDGET_BARE" --no-default-features
within_budget default "$BUDGET_DEFAULT"
within_budget redis "$BUDGET_REDIS" --features redis
within_budget remote "$BUDGET_REMOTE" --features remote
within_budget oap "$BUDGET_OAP" --features oap
within_budget grpc "$BUDGET_GRPC" --features grpc

core="$(crates -p mailbox-core -e normal,build --target all)"
if (($(echo "$core" | wc -l) != 1)); then
    echo "mailbox-core must not depend on anything:" >&2
    echo "$core" >&2
    exit 1
fi
echo "mailbox-core: no dependencies"

#!/usr/bin/env bash
# Lets schemathesis make up requests from the OpenAPI document, good ones and bad ones, and send them
# to a service that keeps nothing: no answer may be a defect, or one that the document does not have.
set -euo pipefail
source "$(dirname "${BASH_SOURCE[0]}")/environment.sh"

EXAMPLES="${SCHEMATHESIS_EXAMPLES:-15}"
SCHEMATHESIS="$(realpath "$TARGET_DIR")/python/bin/schemathesis"
work="$(mktemp -d)"
service=""
finish() {
    if [[ -n "$service" ]]; then
        kill "$service" 2>/dev/null || true
        wait "$service" 2>/dev/null || true
    fi
    rm -rf "$work"
}
trap finish EXIT

cargo build -q $LOCKED -p mailbox-cli
"$TARGET_DIR/debug/mailbox" serve --listen 127.0.0.1:0 --oap off --data "$work/data" --store memory: \
    --max-wait 1s 2>"$work/log" &
service=$!
for _ in $(seq 200); do
    [[ -s "$work/data/url" ]] && break
    sleep 0.05
done
url="$(head -n 1 "$work/data/url")" || { cat "$work/log" >&2; exit 1; }

# Where it may leave what it has learnt: every run begins anew.
cd "$work"
# Not asked for: that a document whose fields all have the right types is accepted. Whether a mailbox
# may be called so, or a key is in use, is more than a schema can say.
"$SCHEMATHESIS" run "$url/openapi.json" \
    --header "Authorization: Bearer $(cat "$work/data/operator.cap")" \
    --checks not_a_server_error,status_code_conformance,content_type_conformance,response_headers_conformance,response_schema_conformance,negative_data_rejection \
    --exclude-path-regex '/v1/(recv/stream|caps/rotate|caps/revoke)' \
    --max-examples "$EXAMPLES" --seed 1 --request-timeout 10 --no-color

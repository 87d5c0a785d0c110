#!/usr/bin/env bash
# Fuzzes what comes over the wire, each target for FUZZ_SECONDS (60) from the inputs that are kept in
# `fuzz/corpus`. `scripts/run-fuzz.sh frame` runs one of them. What is found on the way stays out of
# the repository; an input that breaks something is left in `target/fuzz/broken`.
#
# Coverage is what tells libFuzzer where to go. The flags are those of its manual; they change every
# crate, hence a target directory of its own.
set -euo pipefail
source "$(dirname "${BASH_SOURCE[0]}")/environment.sh"

SECONDS_EACH="${FUZZ_SECONDS:-60}"
# Longest input, and how many places it has to reach at least: far fewer than the kept inputs do, but
# more than one that runs blind.
declare -A LONGEST=([frame]=4096 [sequence]=2048 [ops]=4096 [proto]=2048)
declare -A LEAST=([frame]=200 [sequence]=100 [ops]=1000 [proto]=1000)
TARGETS=("$@")
if ((${#TARGETS[@]} == 0)); then
    TARGETS=(frame sequence ops proto)
fi
# Two at a time leaves nobody waiting on a machine with two cores.
AT_ONCE=2

HOST="$(rustc -vV | sed -n 's/^host: //p')"
BINARIES="$TARGET_DIR/fuzz/$HOST/release"
BROKEN="$TARGET_DIR/fuzz/broken"
SCRATCH="$(mktemp -d)"
# Nobody goes on in the background when this is interrupted.
trap 'jobs -p | xargs -r kill 2>/dev/null || true; rm -rf "$SCRATCH"' EXIT

cargo fmt --manifest-path fuzz/Cargo.toml --check
# With a target named, the flags are not for build scripts, which have no libFuzzer in them.
RUSTFLAGS="--cfg fuzzing -Cpasses=sancov-module \
    -Cllvm-args=-sanitizer-coverage-level=4 \
    -Cllvm-args=-sanitizer-coverage-inline-8bit-counters \
    -Cllvm-args=-sanitizer-coverage-pc-table \
    -Cllvm-args=-sanitizer-coverage-trace-compares" \
    CARGO_TARGET_DIR="$TARGET_DIR/fuzz" \
    cargo build -q $LOCKED --release --manifest-path fuzz/Cargo.toml --target "$HOST"
mkdir -p "$BROKEN"

# The proof that an allocation above the bound is noticed: one is made.
self_test() {
    local target="$1"
    if FUZZ_PLANT=1 "$BINARIES/$target" -runs=1 -artifact_prefix="$SCRATCH/planted-" \
        "$SCRATCH/$target" "fuzz/corpus/$target" >"$SCRATCH/$target.planted" 2>&1; then
        echo "$target: an allocation above the bound was not noticed" >&2
        exit 1
    fi
    grep -q "larger than the bound" "$SCRATCH/$target.planted"
}

fuzz() {
    local target="$1" log="$SCRATCH/$1.log" dictionary=()
    if [[ -f "fuzz/$target.dict" ]]; then
        dictionary=(-dict="fuzz/$target.dict")
    fi
    "$BINARIES/$target" -max_total_time="$SECONDS_EACH" -max_len="${LONGEST[$target]}" \
        -rss_limit_mb=512 -timeout=5 -print_final_stats=1 "${dictionary[@]}" \
        -artifact_prefix="$BROKEN/$target-" "$SCRATCH/$target" "fuzz/corpus/$target" \
        >"$log" 2>&1
}

# The last number behind a word in what libFuzzer has said.
said() {
    sed -n "s/.*$2:[[:space:]]*\([0-9][0-9]*\).*/\1/p" "$SCRATCH/$1.log" | tail -n 1
}

report() {
    local target="$1" status="$2" runs covered before
    if ((status != 0)); then
        sed -n '/panicked at\|than the bound\|ERROR: libFuzzer/,$p' "$SCRATCH/$target.log" |
            head -n 60 >&2
        echo "$target: broken; the input is in $BROKEN" >&2
        return 1
    fi
    runs="$(said "$target" number_of_executed_units)"
    covered="$(said "$target" cov)"
    before="$(sed -n 's/.*INITED cov: \([0-9]*\).*/\1/p' "$SCRATCH/$target.log")"
    echo "$target: ${runs:-no} executions in $SECONDS_EACH s, coverage ${before:-0} -> ${covered:-0}"
    if ((${runs:-0} < 100 || ${covered:-0} < ${LEAST[$target]})); then
        echo "$target: that is next to nothing; does coverage still work?" >&2
        return 1
    fi
}

for target in "${TARGETS[@]}"; do
    if [[ -z "${LONGEST[$target]:-}" ]]; then
        echo "there is no target '$target': frame, sequence, ops, proto" >&2
        exit 2
    fi
    mkdir -p "$SCRATCH/$target"
    self_test "$target"
done

failed=0
for ((at = 0; at < ${#TARGETS[@]}; at += AT_ONCE)); do
    declare -A running=()
    for target in "${TARGETS[@]:at:AT_ONCE}"; do
        fuzz "$target" &
        running[$target]=$!
    done
    for target in "${!running[@]}"; do
        status=0
        wait "${running[$target]}" || status=$?
        report "$target" "$status" || failed=1
    done
    unset running
done
exit "$failed"

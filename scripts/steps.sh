# Sourced by test.sh and check.sh: `step NAME COMMAND...` prints a heading, runs the command and
# notes how long it took. The times are printed at the end, also when a step failed.
# shellcheck shell=bash
STEP_TIMES=()
CURRENT_STEP=""

step() {
    CURRENT_STEP="$1"
    shift
    printf '\n==> %s\n' "$CURRENT_STEP"
    local started=$SECONDS
    "$@"
    STEP_TIMES+=("$(printf '%5d s  %s' "$((SECONDS - started))" "$CURRENT_STEP")")
    CURRENT_STEP=""
}

print_times() {
    local status=$?
    printf '\n'
    if ((${#STEP_TIMES[@]} > 0)); then
        printf '%s\n' "${STEP_TIMES[@]}"
    fi
    printf '%5d s  in all\n' "$SECONDS"
    if ((status != 0)); then
        printf 'FAILED: %s\n' "${CURRENT_STEP:-before the first step}" >&2
    fi
    exit "$status"
}
trap print_times EXIT

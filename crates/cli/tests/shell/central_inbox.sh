#!/usr/bin/env bash
# The write flow and the read flow of the central inbox, as plain shell: two writers and two readers
# with nothing but mv, beside a writer and two readers of the mailbox program, on one inbox at the same
# time. Every message must be read once, by one of them.
#
# One mistake of the plan is mended: it asks for $RANDOM twice, so that the file that is moved is not
# the one that was written. Here the name is kept in a variable.
#
# Needs: MAILBOX, the program. Runs in the current directory, which should be empty.
set -euo pipefail

INBOX=.tmp/inbox
EACH=150
TOTAL=$((3 * EACH))
DEADLINE=$((SECONDS + 120))

mkdir -p $INBOX/incoming/.tmp $INBOX/processing $INBOX/done $INBOX/dead-letter $INBOX/acks
chmod -R go-w .tmp

fail() {
    echo "FAILED: $*" >&2
    find $INBOX/incoming $INBOX/processing $INBOX/dead-letter -type f | head -20 >&2
    exit 1
}

uuid() {
    cat /proc/sys/kernel/random/uuid
}

# The write flow.
write_with_mv() {
    local SENDER="$1" UUID JSON TEMP number
    for ((number = 1; number <= EACH; number++)); do
        UUID="$(uuid)"
        JSON='{"id":"'$UUID'","timestamp":"'$(date -u +%Y-%m-%dT%H:%M:%SZ)'","sender":"'$SENDER'"'
        JSON+=',"type":"result","content":"'$SENDER' '$number'","attempts":0}'
        # 1. Write to temp
        TEMP="$INBOX/incoming/.tmp/msg-$$-$SENDER-$RANDOM-$number"
        echo "$JSON" > "$TEMP"
        # 2. Atomic move to ready
        mv "$TEMP" "$INBOX/incoming/$(date +%s)-$SENDER-$UUID.json"
    done
}

# The read flow. What was read is noted before the message is done, so that a loss would show.
read_with_mv() {
    local log="$1" path FILE
    while [[ ! -e stop ]] && ((SECONDS < DEADLINE)); do
        for path in "$INBOX"/incoming/*.json; do
            FILE="${path##*/}"
            # 1. Claim (atomic rename)
            mv "$INBOX/incoming/$FILE" "$INBOX/processing/$FILE" 2>/dev/null || continue
            # 2. Process
            grep -o '"content":"[^"]*"' "$INBOX/processing/$FILE" | cut -d'"' -f4 >> "$log"
            # 3. Complete
            mv "$INBOX/processing/$FILE" "$INBOX/done/$FILE"
        done
        sleep 0.01
    done
}

write_with_program() {
    local number
    for ((number = 1; number <= EACH; number++)); do
        echo "program $number"
    done | "$MAILBOX" send dir:$INBOX --lines > ids
}

# A message of a script has JSON for its payload, one of the program plain text.
read_with_program() {
    "$MAILBOX" receive dir:$INBOX --follow --ack 2>> program.log | tr -d '"' > "$1"
}

children=()
start() {
    "$@" &
    children+=($!)
}

: > read.1
: > read.2
start read_with_mv read.1
start read_with_mv read.2
start read_with_program read.3
# In one write: two of them run at a time.
start "$MAILBOX" work dir:$INBOX -j 2 -- sh -c 'sleep 0.05; echo "$(tr -d \")" >> read.4' 2>> program.log
readers=("${children[@]}")
children=()
start write_with_mv agent1
start write_with_mv agent2
start write_with_program
for writer in "${children[@]}"; do
    wait "$writer" || fail "a writer failed"
done

waiting() {
    find $INBOX/incoming $INBOX/processing -name '*.json' | wc -l
}
while (($(waiting) > 0)); do
    ((SECONDS < DEADLINE)) || fail "$(waiting) messages were not read"
    sleep 0.05
done

touch stop
# The programs are told to stop; a pipe's first part is a child of the shell that runs it.
pkill -TERM -P "${readers[2]}" -x mailbox || true
kill -TERM "${readers[3]}"
for reader in "${readers[@]}"; do
    wait "$reader" || fail "a reader failed"
done

for who in agent1 agent2 program; do
    for ((number = 1; number <= EACH; number++)); do
        echo "$who $number"
    done
done | sort > expected
cat read.1 read.2 read.3 read.4 | sort > found
diff expected found > difference || fail "read twice, or not at all: $(head -20 difference)"

by_shell=$(cat read.1 read.2 | wc -l)
by_program=$(cat read.3 read.4 | wc -l)
((by_shell > 0 && by_program > 0)) || fail "only one kind of reader read: $by_shell, $by_program"
done=$(find $INBOX/done -name '*.json' | wc -l)
((done == TOTAL)) || fail "$done of $TOTAL messages are in done/"
others=$(find $INBOX/dead-letter $INBOX/aside $INBOX/incoming/.tmp -type f | wc -l)
((others == 0)) || fail "$others files are elsewhere"
echo "$TOTAL messages, $by_shell read with mv, $by_program by the program, each once"

#!/usr/bin/env bash
# A script takes a message with mv and dies. The lease of a shell ends, whoever receives next gets the
# message with one attempt more, and after three attempts it is a dead letter.
#
# Needs: MAILBOX, the program. Runs in the current directory, which should be empty.
set -euo pipefail

"$MAILBOX" init dir:inbox --shell-lease 1s > /dev/null
echo '{"id":"a","sender":"x","type":"signal","content":"go","attempts":0}' > inbox/incoming/.tmp/a
mv inbox/incoming/.tmp/a inbox/incoming/1700000000-x-a.json

take_and_die() {
    local path
    path="$(echo inbox/incoming/*.json)"
    mv "$path" inbox/processing/
}

# Not by when it was last written: that is long ago.
touch -d '1 day ago' inbox/incoming/*.json
take_and_die
if "$MAILBOX" receive dir:inbox > /dev/null 2>&1; then
    echo "FAILED: taken from a script that has it" >&2
    exit 1
fi
for ((tries = 0; tries < 100; tries++)); do
    if message="$("$MAILBOX" receive dir:inbox --json --wait 100ms 2>/dev/null)"; then
        break
    fi
done
grep -q '"delivery_count":2' <<< "$message" || { echo "FAILED: $message" >&2; exit 1; }
grep -q '"body":"go"' <<< "$message" || { echo "FAILED: $message" >&2; exit 1; }

# The third attempt, by a script again; then it is dead.
handle="$(grep -o '"receipt_handle":"[^"]*"' <<< "$message" | cut -d'"' -f4)"
"$MAILBOX" nack dir:inbox "$handle"
take_and_die
for ((tries = 0; tries < 100; tries++)); do
    if "$MAILBOX" receive dir:inbox --wait 100ms > /dev/null 2>&1; then
        echo "FAILED: delivered for the fourth time" >&2
        exit 1
    fi
    if compgen -G 'inbox/dead-letter/*.json' > /dev/null; then
        break
    fi
done
"$MAILBOX" dead list dir:inbox | grep -q max_attempts || { echo "FAILED: not dead" >&2; exit 1; }
echo "delivered again after the lease, dead after three attempts"

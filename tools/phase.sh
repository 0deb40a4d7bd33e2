#!/bin/sh
# Run one step and say it in one line:  sh tools/phase.sh LABEL COMMAND...
# What the command printed is shown only where it failed.
label=$1
shift
started=$(date +%s)
log=$(mktemp)
trap 'rm -f "$log"' EXIT
printf '%-28s' "$label"
if "$@" >"$log" 2>&1; then
    printf 'ok (%d s)\n' $(($(date +%s) - started))
else
    status=$?
    printf 'FAILED\n'
    cat "$log"
    echo
    exit "$status"
fi

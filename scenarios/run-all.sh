#!/bin/sh
# Plays every scenario in every format and says of each whether its ledger balanced.
# usage: scenarios/run-all.sh [flags of client-sim, such as --corpus FILE --compression deflate --seconds 2]
# Exit code 1 when a run failed, lost events or lost its relay; a run whose timing is no evidence (3) is only marked.
set -u
program=${CLIENT_SIM:-target/release/client-sim}
status=0
for scenario in $("$program" scenarios | cut -d' ' -f1); do
    for format in json cbor-schemaless cbor-packed cbor-intkey proto-string proto-binary capnp dannypack notepack; do
        output=$("$program" --scenario "$scenario" --format "$format" "$@" 2>&1)
        code=$?
        delivered=$(printf '%s\n' "$output" | sed -n 's/^  delivered *//p')
        case $code in
        0) verdict=fine ;;
        3) verdict='balanced, timing no evidence' ;;
        *)
            verdict="FAILED with exit code $code"
            status=1
            printf '%s\n' "$output" | tail -5
            ;;
        esac
        printf '%-22s %-16s %-30s %s\n' "$scenario" "$format" "$verdict" "$delivered"
    done
done
exit $status

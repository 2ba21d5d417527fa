#!/bin/sh
# Plays every scenario in every format and says of each run whether its ledger balanced; a summary at the end.
# usage: scenarios/run-all.sh [flags of client-sim, such as --corpus FILE --compression deflate]
# Runs are short (--seconds 1 unless the flags say otherwise): this asks whether everything arrives, not how fast.
# FORMATS="json notepack" and SCENARIOS="mixed-day" narrow it, CLIENT_SIM names the program.
# A format that holds no event of a kind that a scenario needs cannot play the scenario, which is counted apart (in JSON it is a failure).
# Exit code 1 when a run failed, lost events or lost its relay. A run whose timing is no evidence (exit code 3: a busy host, or a
# scenario too short for what it expects) is only counted.
set -u
program=${CLIENT_SIM:-target/release/client-sim}
scenarios=${SCENARIOS:-$("$program" scenarios | cut -d' ' -f1)}
formats=${FORMATS:-$("$program" formats | cut -d' ' -f1)}
if [ -z "$scenarios" ] || [ -z "$formats" ]; then
    echo "$program does not list scenarios and formats; build it with: cargo build --release -p client-sim" >&2
    exit 1
fi
case " $* " in
*" --seconds"*) seconds= ;;
*) seconds='--seconds 1' ;;
esac
fine=0 no_evidence=0 cannot=0 failed=0
for scenario in $scenarios; do
    for format in $formats; do
        # shellcheck disable=SC2086
        output=$("$program" --scenario "$scenario" --format "$format" $seconds "$@" 2>&1)
        code=$?
        delivered=$(printf '%s\n' "$output" | sed -n 's/^  delivered *//p')
        case $code in
        0) verdict=balanced fine=$((fine + 1)) ;;
        3) verdict='balanced, timing no evidence' no_evidence=$((no_evidence + 1)) ;;
        *)
            if [ "$code" -eq 2 ] && [ "$format" != json ] && reason=$(printf '%s\n' "$output" | grep -o 'the corpus lacks [^;]*'); then
                verdict="cannot play: $reason" cannot=$((cannot + 1))
                printf '%-22s %-16s %s\n' "$scenario" "$format" "$verdict"
                continue
            fi
            verdict="FAILED with exit code $code"
            failed=$((failed + 1))
            printf '%s\n' "$output" | grep -v ' deliveries$' | tail -8
            ;;
        esac
        printf '%-22s %-16s %-30s %s\n' "$scenario" "$format" "$verdict" "$delivered"
    done
done
total=$((fine + no_evidence + cannot + failed))
echo "$total runs: $fine balanced, $no_evidence balanced without evidence in their timing, $cannot not playable, $failed failed"
[ "$failed" -eq 0 ]

#!/usr/bin/env bash
# A run whose relay and agents have machines of their own, by ssh from the coordinator's:
#
#   cargo build --release -p compare
#   deploy/ssh.sh relay.example generator-0 generator-1
#
# Needs nats-server here, and machines that let ssh in without a question and run the same binaries.
# Agents reach port 7777 of the relay's.
set -euo pipefail
cd "$(dirname "$0")/.."

relay=$1
shift
nats=nats://127.0.0.1:4222

nats-server -js -a 127.0.0.1 &
trap 'kill $(jobs -p) 2>/dev/null || true' EXIT

# attends HOST WORD...: copies the program there and starts it, with a tunnel to the server.
agents=()
attends() {
    scp -q target/release/compare "$1":
    ssh -n -o ExitOnForwardFailure=yes -R 127.0.0.1:4222:127.0.0.1:4222 "$@" &
    agents+=($!)
}

index=0
for generator in "$@"; do
    attends "$generator" ./compare agent --nats $nats --index $index --of $# \
        --allow-target "ws://$relay:7777" --max-rate 1000
    index=$((index + 1))
done
attends "$relay" ./compare agent --nats $nats --of $# --relay-listen 0.0.0.0:7777 --relay-url "ws://$relay:7777"

code=0
target/release/compare run --nats $nats --agents $# --relay-agents 1 \
    --scenario note-stream --formats json,cbor-packed --compressions none --rates 1000 || code=$?
# Agents leave when the run ends, however it does. Where none began they would wait for one.
case $code in 0 | 3 | 5 | 99) wait "${agents[@]}" || true ;; esac
exit $code

#!/usr/bin/env bash
# Compares two relays by `compare run`, as action.yml has it on a runner of GitHub, or by hand:
#
#   BASE='./old --listen {address}' HEAD='./new --listen {address}' COMPARE=target/release/compare deploy/action.sh
#
# Reads   BASE, HEAD      commands for `--relay`
#         SCENARIO, ROUNDS, BLOCK_SECONDS   as flags of `compare run`; its defaults where empty
#         FAIL_ON         one `--fail-on` a line
#         OUT             folder for results
#         COMPARE         the program; else the one of release VERSION below RELEASES, which are those of
#                         the action's repository
# Writes  OUT/junit.xml, and files that GITHUB_STEP_SUMMARY and GITHUB_OUTPUT name
#
# Ends as `compare` does: 0, 100 where head is worse, or a code that `compare run --help` explains.
set -euo pipefail

here=$(cd "$(dirname "$0")" && pwd)
out=${OUT:-relay-comparison}
junit=$out/junit.xml

# fail TEXT: ends with 2, the code for a wrong command line.
fail() {
    echo "::error::$1" >&2
    exit 2
}

# fetch: sets `compare` to that of the release's archive, whose checksum must be right.
fetch() {
    local version=${VERSION:-} path=${GITHUB_ACTION_PATH:-} repository=${GITHUB_REPOSITORY:-} target folder name file
    command -v curl >/dev/null || fail "this machine or container has no curl: install it, or set COMPARE"
    # Runners check actions out into _actions/OWNER/REPOSITORY/REF. Another path is the workflow's own checkout.
    [[ $path != */_actions/*/*/* ]] || repository=$(cut -d / -f 1,2 <<<"${path##*/_actions/}")
    local releases=${RELEASES:-${GITHUB_SERVER_URL:-https://github.com}/${repository:?set COMPARE or RELEASES}/releases/download}
    [ -n "$version" ] || version=$(sed -n 's/^version = "\(.*\)"/\1/p' "$here/../Cargo.toml" | head -n 1)
    version=${version#v}
    case "$(uname -s) $(uname -m)" in
        "Linux x86_64") target=x86_64-unknown-linux-musl ;;
        "Linux aarch64") target=aarch64-unknown-linux-musl ;;
        *) fail "releases are for Linux on x86_64 and aarch64, this is $(uname -sm): set COMPARE" ;;
    esac
    name=nostr-load-test-$version-$target
    folder=$(mktemp -d "${RUNNER_TEMP:-${TMPDIR:-/tmp}}/$name.XXXXXX")
    for file in SHA256SUMS "$name.tar.gz"; do
        curl --fail --silent --show-error --location --retry 3 --output "$folder/$file" \
            "$releases/v$version/$file" ||
            fail "cannot fetch $file from $releases/v$version (curl says why): set the input version to another release"
    done
    (cd "$folder" && grep -F "  $name.tar.gz" SHA256SUMS | sha256sum --check --strict --quiet >&2) ||
        fail "$name.tar.gz is not the file that SHA256SUMS of release $version names"
    tar --extract --gzip --directory "$folder" --file "$folder/$name.tar.gz"
    compare=$folder/$name/bin/compare
}

[ -n "${BASE:-}" ] || fail "input base is empty: give the command that starts the relay to compare with"
[ -n "${HEAD:-}" ] || fail "input head is empty: give the command that starts the relay under test"

# A summary of an earlier run would be taken for this one's.
[ -z "$(ls -A "$out" 2>/dev/null)" ] || fail "the folder $out is not empty: give another as input out"
compare=${COMPARE:-}
[ -n "$compare" ] || fetch
arguments=(run --relay "base=$BASE" --relay "head=$HEAD" --out "$out" --junit "$junit")
[ -z "${SCENARIO:-}" ] || arguments+=(--scenario "$SCENARIO")
[ -z "${ROUNDS:-}" ] || arguments+=(--rounds "$ROUNDS")
[ -z "${BLOCK_SECONDS:-}" ] || arguments+=(--seconds "$BLOCK_SECONDS")
while IFS= read -r bound; do
    [ -z "$bound" ] || arguments+=(--fail-on "$bound")
done <<<"${FAIL_ON:-}"

mkdir -p "$out"
code=0
"$compare" "${arguments[@]}" || code=$?

summary=$(find "$out" -maxdepth 2 -name summary.md | head -n 1)
{
    if [ -n "$summary" ]; then
        cat "$summary"
    else
        echo "\`compare run\` ended with exit code $code before it had a summary; the step's log says why."
    fi
} >>"${GITHUB_STEP_SUMMARY:-/dev/stdout}"
{
    echo "exit-code=$code"
    [ ! -e "$junit" ] || echo "junit=$junit"
} >>"${GITHUB_OUTPUT:-/dev/null}"

case $code in
    0) ;;
    100) echo "::error::relay head is worse than base" >&2 ;;
    *) echo "::error::compare run ended with exit code $code; compare run --help says what that means" >&2 ;;
esac
exit $code

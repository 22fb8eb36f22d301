# Nova's side of the comparisons, and what they share; sourced by compare-* in the project's root.
#
# Environment: SERVER_CPU (0), LOAD_CPU (1), SECONDS_EACH (4), ROUNDS (3), WORK_DIR (the build's target directory; must lie
# on the disk to be measured), NOVAD_FLAGS (more flags for novad).
# shellcheck shell=bash

server_cpu=${SERVER_CPU:-0}
load_cpu=${LOAD_CPU:-1}
seconds=${SECONDS_EACH:-4}
rounds=${ROUNDS:-3}
record_bytes=256

cargo build --release --package cli --bins
bin=$(cd "${CARGO_TARGET_DIR:-target}/release" && pwd)
work=$(mktemp -d "${WORK_DIR:-$bin/..}/nova-compare.XXXXXX")
server=

stop_server() {
    [ -z "$server" ] || kill "$server" 2>/dev/null || true
    [ -z "$server" ] || wait "$server" 2>/dev/null || true
    server=
}
trap 'stop_server; rm -rf "$work"' EXIT

# A port below the range that the system gives to clients.
free_port() {
    local port
    while port=$((20000 + RANDOM % 10000)); (exec 3<>"/dev/tcp/127.0.0.1/$port") 2>/dev/null; do :; done
    echo "$port"
}

# Appends through so many connections with such a window; prints acks a second, p50 and p99 in microseconds.
run_nova() {
    local addr report
    rm -rf "$work/data" "$work/novad.out"
    # shellcheck disable=SC2086 # flags are words
    taskset -c "$server_cpu" "$bin/novad" --data "$work/data" --listen 127.0.0.1:0 --http off --shards 1 ${NOVAD_FLAGS:-} \
        >"$work/novad.out" 2>"$work/novad.log" &
    server=$!
    addr=
    for _ in $(seq 100); do
        addr=$(sed -n 's/^listening on //p' "$work/novad.out" 2>/dev/null) || true
        [ -z "$addr" ] || break
        kill -0 "$server" 2>/dev/null || { cat "$work/novad.log" >&2; return 1; }
        sleep 0.1
    done
    report=$("$bin/nova" --addr "$addr" --output json bench append --streams "$1" --connections "$1" --window "$2" \
        --record-bytes "$record_bytes" --warm-up 1s --duration "${seconds}s" --cpus "$load_cpu")
    stop_server
    sed -n 's/.*"acks_per_s":\([0-9.e+]*\).*"latency_us":{"samples":[0-9]*,"p50":\([0-9.]*\),"p90":[0-9.]*,"p99":\([0-9.]*\).*/\1 \2 \3/p' \
        <<<"$report"
}

# The median of each of the three columns of a file of rounds.
median() {
    local column
    for column in 1 2 3; do
        cut -d ' ' -f "$column" "$1" | sort -g | sed -n "$(((rounds + 1) / 2))p"
    done | paste -s -d ' '
}

# Runs the other one and nova in turn at each shape, and prints a table: `compare NAME FUNCTION 'CONNECTIONS WINDOW'…`.
compare() {
    local name=$1 run_other=$2 shape connections window
    shift 2
    printf '%s, kernel %s; servers on CPU %s, load on CPU %s; medians of %s rounds of %s s; latencies in µs\n\n' \
        "$(sed -n 's/^model name[^:]*: //p' /proc/cpuinfo | head -1)" "$(uname -r)" \
        "$server_cpu" "$load_cpu" "$rounds" "$seconds"
    printf '%-8s %12s %9s %9s   %12s %9s %9s   %8s %8s\n' 'conn x w' "$name acks/s" p50 p99 'nova acks/s' p50 p99 acks p50
    for shape in "$@"; do
        read -r connections window <<<"$shape"
        rm -f "$work/other.rounds" "$work/nova.rounds"
        # Not in a subshell, so that the trap finds the server that runs.
        for _ in $(seq "$rounds"); do
            "$run_other" "$connections" "$window" >>"$work/other.rounds"
            run_nova "$connections" "$window" >>"$work/nova.rounds"
        done
        awk -v shape="$connections x $window" -v other="$(median "$work/other.rounds")" \
            -v nova="$(median "$work/nova.rounds")" 'BEGIN {
            split(other, o, " "); split(nova, n, " ");
            if (!o[1] || !o[2] || !n[1] || !n[2]) { print shape ": a run gave no numbers" > "/dev/stderr"; exit 1 }
            printf "%-8s %12.0f %9.1f %9.1f   %12.0f %9.1f %9.1f   %7.2fx %7.2fx\n",
                shape, o[1], o[2], o[3], n[1], n[2], n[3], n[1] / o[1], n[2] / o[2];
        }'
    done
}

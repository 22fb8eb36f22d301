//! Is the dashboard of `tuning` the one that is made of this table?
//!
//! Whether a star serves what it shows is tried by the tests of HTTP, on a star that runs.

use serde_json::{Value, json};

use crate::check_generated;

/// A panel: its title, the unit as Grafana calls it, and its lines, each a legend and what it shows.
type Panel = (&'static str, &'static str, &'static [(&'static str, &'static str)]);

/// Rows of panels. `$I` stands for the instances that were chosen, `$R` for the span of a rate.
const ROWS: &[(&str, &[Panel])] = &[
    (
        "Serving",
        &[
            ("Stars that serve", "short", &[("{{instance}} {{version}}", "nova_star{$I}")]),
            (
                "Recovery at the last start",
                "ms",
                &[
                    ("{{instance}} took", "nova_tenure_recovery_ms{$I}"),
                    ("{{instance}} serves for", "nova_tenure_ms{$I}"),
                ],
            ),
            ("Entries that the last start recovered", "short", &[("{{instance}}", "nova_tenure_recovery_entries{$I}")]),
        ],
    ),
    (
        "Appends",
        &[
            ("Batches a second", "ops", &[("{{instance}} shard {{shard}}", "rate(nova_batches_total{$I}[$R])")]),
            ("Records a second", "ops", &[("{{instance}} shard {{shard}}", "rate(nova_records_total{$I}[$R])")]),
            ("Content a second", "Bps", &[("{{instance}} shard {{shard}}", "rate(nova_content_bytes_total{$I}[$R])")]),
            (
                "Ack latency: p99 of each phase",
                "s",
                &[(
                    "{{phase}}",
                    "histogram_quantile(0.99, sum by (phase, le) (rate(nova_operation_seconds_bucket{$I,verb=\"append\"}[$R])))",
                )],
            ),
            (
                "Ack latency: mean of each phase",
                "s",
                &[(
                    "{{phase}}",
                    "sum by (phase) (rate(nova_operation_seconds_sum{$I,verb=\"append\"}[$R])) / sum by (phase) (rate(nova_operation_seconds_count{$I,verb=\"append\"}[$R]))",
                )],
            ),
            (
                "Refusals and resends a second",
                "ops",
                &[
                    ("{{instance}} shard {{shard}} refused", "rate(nova_batches_refused_total{$I}[$R])"),
                    ("{{instance}} shard {{shard}} sent again", "rate(nova_batches_deduped_total{$I}[$R])"),
                    (
                        "{{instance}} shard {{shard}} connections turned away",
                        "rate(nova_connections_turned_away_total{$I}[$R])",
                    ),
                ],
            ),
        ],
    ),
    (
        "Shards",
        &[
            (
                "Where a shard's time goes",
                "percentunit",
                &[
                    ("{{instance}} {{shard}} append", "rate(nova_work_append_us_total{$I}[$R]) / 1e6"),
                    ("{{instance}} {{shard}} read", "rate(nova_work_read_us_total{$I}[$R]) / 1e6"),
                    ("{{instance}} {{shard}} catch up", "rate(nova_work_catch_up_us_total{$I}[$R]) / 1e6"),
                    ("{{instance}} {{shard}} settle", "rate(nova_work_settle_us_total{$I}[$R]) / 1e6"),
                    ("{{instance}} {{shard}} admin", "rate(nova_work_admin_us_total{$I}[$R]) / 1e6"),
                ],
            ),
            (
                "CPU: busy, ready while others ran, taken by the hypervisor",
                "percentunit",
                &[
                    ("{{instance}} {{shard}} busy", "rate(nova_cpu_busy_us_total{$I}[$R]) / 1e6"),
                    ("{{instance}} {{shard}} ready", "rate(nova_cpu_waited_us_total{$I}[$R]) / 1e6"),
                    ("{{instance}} {{shard}} steal", "rate(nova_cpu_steal_us_total{$I}[$R]) / 1e6"),
                ],
            ),
            (
                "Work that was put off for others, a second",
                "ops",
                &[
                    ("{{instance}} {{shard}} read", "rate(nova_put_off_read_total{$I}[$R])"),
                    ("{{instance}} {{shard}} catch up", "rate(nova_put_off_catch_up_total{$I}[$R])"),
                    ("{{instance}} {{shard}} settle", "rate(nova_put_off_settle_total{$I}[$R])"),
                    ("{{instance}} {{shard}} admin", "rate(nova_put_off_admin_total{$I}[$R])"),
                ],
            ),
            (
                "Stalls of a second, and turns of 25 ms",
                "short",
                &[
                    ("{{instance}} {{shard}} stalls", "delta(nova_stalls{$I}[$R])"),
                    ("{{instance}} {{shard}} long turns", "increase(nova_turns_long_total{$I}[$R])"),
                ],
            ),
            ("Latest beat", "ms", &[("{{instance}} {{shard}}", "nova_beat_late_max_ms{$I}")]),
            (
                "What waits",
                "short",
                &[
                    ("{{instance}} {{shard}} answers", "nova_pending_answers{$I}"),
                    ("{{instance}} {{shard}} answers, standard", "nova_pending_standard_answers{$I}"),
                    ("{{instance}} {{shard}} reads of the disk", "nova_fetches_waiting{$I}"),
                ],
            ),
        ],
    ),
    (
        "Head logs and disks",
        &[
            ("Commits a second", "ops", &[("{{instance}} shard {{shard}}", "rate(nova_log_commits_total{$I}[$R])")]),
            (
                "A commit's write and its wait",
                "µs",
                &[
                    ("{{instance}} {{shard}} flush", "nova_log_flush_us{$I}"),
                    ("{{instance}} {{shard}} wait", "nova_log_wait_us{$I}"),
                ],
            ),
            ("Size of head logs", "bytes", &[("{{instance}} shard {{shard}}", "nova_log_used_bytes{$I}")]),
            (
                "Backlog: entries that the store does not have",
                "short",
                &[("{{instance}} shard {{shard}}", "nova_log_unsettled_entries{$I}")],
            ),
            (
                "Disk room: free, and kept back",
                "bytes",
                &[
                    ("{{instance}} data free", "nova_disk_data_free_bytes{$I}"),
                    ("{{instance}} data kept back", "nova_disk_data_kept_back_bytes{$I}"),
                    ("{{instance}} store free", "nova_disk_store_free_bytes{$I}"),
                ],
            ),
            (
                "Disks that are low",
                "short",
                &[
                    ("{{instance}} data", "nova_disk_data_is_low{$I}"),
                    ("{{instance}} store", "nova_disk_store_is_low{$I}"),
                ],
            ),
        ],
    ),
    (
        "Standard store and settling",
        &[
            ("Store takes nothing", "short", &[("{{instance}}", "nova_store_is_stalled{$I}")]),
            (
                "Puts of chunks a second, and those that failed",
                "ops",
                &[
                    ("{{instance}} puts", "rate(nova_store_put_if_absent_chunks_total{$I}[$R])"),
                    ("{{instance}} failed", "rate(nova_store_put_if_absent_chunks_failures_total{$I}[$R])"),
                    ("{{instance}} failed gets", "delta(nova_history_get_failures{$I}[$R])"),
                ],
            ),
            (
                "A put of a chunk",
                "µs",
                &[
                    ("{{instance}} p50", "nova_store_put_if_absent_chunks_p50_us{$I}"),
                    ("{{instance}} p99", "nova_store_put_if_absent_chunks_p99_us{$I}"),
                ],
            ),
            (
                "Chunks that wait: to be applied, to be bundled",
                "short",
                &[
                    ("{{instance}} unapplied", "nova_index_unapplied_chunks{$I}"),
                    ("{{instance}} unbundled", "nova_unbundled_chunks{$I}"),
                ],
            ),
            ("Age of the oldest unbundled chunk", "ms", &[("{{instance}}", "nova_unbundled_age_ms{$I}")]),
            (
                "What needs somebody",
                "short",
                &[
                    ("{{instance}} objects unreadable", "nova_objects_unreadable{$I}"),
                    ("{{instance}} retention stopped", "nova_retention_is_stopped{$I}"),
                ],
            ),
            ("Kept in the store", "bytes", &[("{{instance}}", "nova_store_kept_bytes{$I}")]),
            (
                "Cost at S3's list prices, a month",
                "currencyUSD",
                &[("{{instance}}", "nova_cost_micro_dollars_a_month{$I} / 1e6")],
            ),
            (
                "Memory of the background",
                "bytes",
                &[
                    ("{{instance}} blocks", "nova_memory_blocks_bytes{$I}"),
                    ("{{instance}} chunks", "nova_memory_chunks_bytes{$I}"),
                    ("{{instance}} rows", "nova_memory_rows_bytes{$I}"),
                    ("{{instance}} reads", "nova_memory_reads_bytes{$I}"),
                ],
            ),
        ],
    ),
    (
        "Reads and connections",
        &[
            (
                "Pieces that readers took a second",
                "ops",
                &[
                    ("{{instance}} memory", "sum by (instance) (rate(nova_reads_from_memory_total{$I}[$R]))"),
                    ("{{instance}} disk", "sum by (instance) (rate(nova_reads_from_disk_total{$I}[$R]))"),
                    ("{{instance}} store", "sum by (instance) (rate(nova_reads_from_store_total{$I}[$R]))"),
                ],
            ),
            (
                "Streams, connections, subscriptions",
                "short",
                &[
                    ("{{instance}} streams in memory", "sum by (instance) (nova_streams{$I})"),
                    ("{{instance}} connections", "sum by (instance) (nova_connections{$I})"),
                    ("{{instance}} subscriptions", "sum by (instance) (nova_subscriptions{$I})"),
                ],
            ),
            (
                "Requests that hopped, a second",
                "ops",
                &[("{{instance}} shard {{shard}}", "rate(nova_hops_total{$I}[$R])")],
            ),
            (
                "HTTP answers a second",
                "ops",
                &[("{{route}} {{status}}", "sum by (route, status) (rate(nova_http_answers_total{$I}[$R])) > 0")],
            ),
            (
                "HTTP: p99",
                "s",
                &[(
                    "{{route}}",
                    "histogram_quantile(0.99, sum by (route, le) (rate(nova_http_seconds_bucket{$I}[$R])))",
                )],
            ),
            (
                "HTTP: who follows",
                "short",
                &[
                    ("{{instance}} subscribers", "nova_http_subscribers{$I}"),
                    ("{{instance}} streams", "nova_http_followed_streams{$I}"),
                ],
            ),
        ],
    ),
];

const WIDTH: usize = 8;
const HEIGHT: usize = 8;
const ACROSS: usize = 3;

fn line(at: usize, (legend, expr): (&str, &str)) -> Value {
    let expr = expr.replace("$I", "instance=~\"$instance\"").replace("$R", "$__rate_interval");
    let letter = char::from(b'A' + u8::try_from(at).expect("few lines"));
    json!({"refId": letter.to_string(), "expr": expr, "legendFormat": legend})
}

fn panel(id: usize, (x, y): (usize, usize), (title, unit, lines): &Panel) -> Value {
    json!({
        "id": id,
        "type": "timeseries",
        "title": title,
        "datasource": {"type": "prometheus", "uid": "${datasource}"},
        "gridPos": {"x": x, "y": y, "w": WIDTH, "h": HEIGHT},
        "fieldConfig": {"defaults": {"unit": unit, "min": 0}, "overrides": []},
        "options": {"legend": {"displayMode": "list", "placement": "bottom"}, "tooltip": {"mode": "multi", "sort": "desc"}},
        "targets": lines.iter().enumerate().map(|(at, of)| line(at, *of)).collect::<Vec<_>>(),
    })
}

fn dashboard() -> String {
    let (mut panels, mut y) = (Vec::new(), 0);
    for (title, row) in ROWS {
        let grid = json!({"x": 0, "y": y, "w": WIDTH * ACROSS, "h": 1});
        panels.push(json!({"id": panels.len() + 1, "type": "row", "title": title, "collapsed": false, "gridPos": grid, "panels": []}));
        y += 1;
        for (at, of) in row.iter().enumerate() {
            panels.push(panel(panels.len() + 1, (at % ACROSS * WIDTH, y + at / ACROSS * HEIGHT), of));
        }
        y += row.len().div_ceil(ACROSS) * HEIGHT;
    }
    let source = json!({"name": "datasource", "type": "datasource", "query": "prometheus", "label": "Prometheus"});
    let instance = json!({
        "name": "instance",
        "type": "query",
        "label": "instance",
        "datasource": {"type": "prometheus", "uid": "${datasource}"},
        "query": {"query": "label_values(nova_http_connections_total, instance)", "refId": "instances"},
        "refresh": 2,
        "includeAll": true,
        "multi": true,
        "current": {"text": "All", "value": "$__all"},
    });
    let dashboard = json!({
        "title": "nova",
        "uid": "nova",
        "tags": ["nova"],
        "schemaVersion": 39,
        "editable": true,
        "refresh": "30s",
        "time": {"from": "now-3h", "to": "now"},
        "templating": {"list": [source, instance]},
        "panels": panels,
    });
    serde_json::to_string_pretty(&dashboard).expect("JSON") + "\n"
}

#[test]
fn the_dashboard_is_the_one_in_the_table() {
    check_generated("tuning/grafana/nova.json", &dashboard());
}

//! What operators see: every figure is there, and follows what happens.

use crate::rig::{Rig, receive, send};

/// Every metric that the blueprint or the wire's description names.
const METRICS: [&str; 21] = [
    "oap_frames_total",
    "queue_depth",
    "inflight",
    "saturation",
    "rejected_total",
    "dlq_total",
    "dlq_depth",
    "enqueue_latency_seconds",
    "dequeue_latency_seconds",
    "ack_latency_seconds",
    "reorder_depth_max",
    "redelivered_total",
    "visibility_timeout_total",
    "http_requests_total",
    "auth_failures_total",
    "cap_cache_entries",
    "journal_fsync_seconds",
    "journal_bytes",
    "retention_dropped_total",
    "dedup_entries",
    "build",
];

/// The value of the first series of a metric that has all of these labels.
fn value(text: &str, metric: &str, labels: &[&str]) -> Option<f64> {
    let mut lines = text.lines().filter(|line| !line.starts_with('#'));
    let is_it = |line: &&str| {
        line.strip_prefix(metric).is_some_and(|rest| rest.starts_with(['{', ' ']))
            && labels.iter().all(|label| line.contains(label))
    };
    lines.find(is_it)?.rsplit(' ').next()?.parse().ok()
}

#[tokio::test]
async fn every_figure_is_there_and_follows_what_happens() {
    let dir = tempfile::tempdir().unwrap();
    let config = mailbox::backends::journal::JournalConfig::default();
    let store = crate::rig::journal(&dir.path().join("j"), config).await;
    let served = Rig::on(store).start().await;
    let mut client = served.client().await;
    for number in 0..4 {
        client.send("jobs", number.to_string()).await;
    }
    let held = client.receive("jobs", 3, 30_000).await;
    assert_eq!(client.ack_it(&held[0]).await.status, 200);
    assert_eq!(client.nack(&held[1], true).await.status, 200);
    client.try_send(&send("jobs", vec![7; (1 << 20) + 1])).await.bad(413, "E_FRAME_TOO_LARGE");
    client.try_receive(&receive("no spaces", 1, 30_000)).await.bad(400, "E_SCHEMA");
    served.connection().await.call("GET", "/v1/topics", &[], b"").await.refused(401, "missing");
    let mut seen = String::new();
    crate::rig::until("the figures follow", async || {
        let reply = client.get("/metrics").await;
        assert_eq!(reply.status, 200);
        seen = reply.text();
        value(&seen, "queue_depth", &["topic=\"jobs\""]) == Some(1.0)
            && value(&seen, "inflight", &["topic=\"jobs\""]) == Some(1.0)
            && value(&seen, "dlq_total", &["topic=\"jobs\"", "reason=\"rejected\""]) == Some(1.0)
    })
    .await;
    let typed =
        |name: &&&str| seen.contains(&format!("# TYPE {} ", name.trim_end_matches("_total")));
    let missing: Vec<_> = METRICS.iter().filter(|name| !typed(name)).collect();
    assert!(missing.is_empty(), "{missing:?} in\n{seen}");
    assert_eq!(value(&seen, "rejected_total", &["reason=\"oversize\""]), Some(1.0));
    assert!(value(&seen, "rejected_total", &["reason=\"schema\""]) >= Some(1.0));
    assert!(value(&seen, "rejected_total", &["reason=\"unauth\""]) >= Some(1.0));
    assert!(value(&seen, "enqueue_latency_seconds_count", &[]) >= Some(4.0));
    assert!(value(&seen, "dequeue_latency_seconds_count", &[]) >= Some(1.0));
    assert!(value(&seen, "ack_latency_seconds_count", &[]) >= Some(1.0));
    let saturation = value(&seen, "saturation", &["topic=\"jobs\""]).expect("saturation");
    assert!((0.0..=1.0).contains(&saturation), "{saturation}");
    assert_eq!(client.get("/healthz").await.status, 200);
    assert_eq!(client.get("/readyz").await.status, 200);
}

#[tokio::test]
async fn dead_letters_in_memory_are_marked_as_ephemeral() {
    let served = Rig::new().start().await;
    let mut client = served.client().await;
    client.send("jobs", "dies").await;
    let held = client.receive_one("jobs", 30_000).await;
    assert_eq!(client.nack(&held, true).await.status, 200);
    let seen = client.get("/metrics").await.text();
    let labels = ["topic=\"jobs\"", "dlq_profile=\"ephemeral\""];
    assert_eq!(value(&seen, "dlq_depth", &labels), Some(1.0), "{seen}");
}

#[tokio::test]
async fn mailboxes_with_series_of_their_own_are_few_and_the_rest_are_one() {
    let served = Rig::new().start().await;
    let mut client = served.client().await;
    for number in 0..140 {
        client.send(&format!("topic-{number}"), "one").await;
    }
    let seen = client.get("/metrics").await.text();
    let series = seen.lines().filter(|line| line.starts_with("queue_depth{")).count();
    assert_eq!(series, 129, "{seen}");
    assert_eq!(value(&seen, "queue_depth", &["topic=\"other\""]), Some(12.0));
}

#[test]
fn dashboard_and_alerts_name_figures_that_there_are() {
    let root = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../../packaging");
    let known = |word: &str| {
        let word = ["_bucket", "_count", "_sum"]
            .iter()
            .find_map(|end| word.strip_suffix(end))
            .unwrap_or(word);
        METRICS.contains(&word) || ["up", "connections", "handed_out"].contains(&word)
    };
    let functions = [
        "by",
        "delta",
        "histogram_quantile",
        "increase",
        "max",
        "rate",
        "sum",
        "le",
        "topic",
        "reason",
        "shard",
        "route",
        "status",
        "op",
        "dlq_profile",
        "job",
        "instance",
    ];
    let mut seen = 0;
    for file in ["grafana/mailbox.json", "prometheus/alerts.yml"] {
        let text = std::fs::read_to_string(root.join(file)).unwrap();
        let exprs = text.lines().filter_map(|line| line.split_once("expr"));
        for (_, expr) in exprs {
            // Without what is in quotes, and without times such as 5m.
            let bare: String = expr
                .replace("\\\"", "'")
                .split('\'')
                .enumerate()
                .filter_map(|(at, part)| (at % 2 == 0).then_some(part))
                .collect();
            let words = bare.split(|sign: char| !sign.is_ascii_alphanumeric() && sign != '_');
            for word in words.filter(|word| word.starts_with(|it: char| it.is_ascii_lowercase())) {
                let is_value = expr.contains(&format!("\"{word}\""));
                assert!(is_value || functions.contains(&word) || known(word), "{file}: {word}");
                seen += usize::from(known(word));
            }
        }
    }
    assert!(seen > 25, "{seen}");
}

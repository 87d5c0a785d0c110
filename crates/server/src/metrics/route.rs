//! Which call a path is of: one of a few words, whatever a client asks for.

/// The calls of gRPC, and what each needs to be allowed.
const GRPC: [(&str, &str); 24] = [
    ("/mailbox.v1.Mailbox/Send", "send"),
    ("/mailbox.v1.Mailbox/SendBatch", "send"),
    ("/mailbox.v1.Mailbox/Recv", "recv"),
    ("/mailbox.v1.Mailbox/RecvWhileOpen", "recv"),
    ("/mailbox.v1.Mailbox/RecvStream", "recv"),
    ("/mailbox.v1.Mailbox/Ack", "ack"),
    ("/mailbox.v1.Mailbox/Nack", "nack"),
    ("/mailbox.v1.Mailbox/Extend", "ack"),
    ("/mailbox.v1.Mailbox/SettleBatch", "ack"),
    ("/mailbox.v1.Mailbox/ListTopics", "admin"),
    ("/mailbox.v1.Mailbox/GetTopic", "admin"),
    ("/mailbox.v1.Mailbox/ConfigureTopic", "admin"),
    ("/mailbox.v1.Mailbox/RemoveTopic", "admin"),
    ("/mailbox.v1.Mailbox/PurgeTopic", "admin"),
    ("/mailbox.v1.Mailbox/Peek", "admin"),
    ("/mailbox.v1.Mailbox/LookUp", "admin"),
    ("/mailbox.v1.Mailbox/GetMessage", "admin"),
    ("/mailbox.v1.Mailbox/ListDead", "admin"),
    ("/mailbox.v1.Mailbox/Reprocess", "admin"),
    ("/mailbox.v1.Mailbox/DeleteDead", "admin"),
    ("/mailbox.v1.Mailbox/GetAbilities", "admin"),
    ("/mailbox.v1.Mailbox/MintCapability", "admin"),
    ("/mailbox.v1.Mailbox/RevokeCapability", "admin"),
    ("/mailbox.v1.Mailbox/RotateKey", "admin"),
];

/// Whether there is such a call of gRPC.
pub(crate) fn is_known(path: &str) -> bool {
    GRPC.into_iter().any(|(route, _)| route == path)
}

/// The call, with its variable parts named.
pub(crate) fn route_of(path: &str) -> &'static str {
    const EXACT: [&str; 14] = [
        "/v1/send",
        "/v1/send/batch",
        "/v1/recv",
        "/v1/recv/stream",
        "/v1/settle/batch",
        "/v1/topics",
        "/v1/dlq/reprocess",
        "/v1/dlq/delete",
        "/v1/caps/mint",
        "/v1/caps/revoke",
        "/v1/caps/rotate",
        "/v1/abilities",
        "/metrics",
        "/openapi.json",
    ];
    if let Some(route) = EXACT.into_iter().find(|route| *route == path) {
        return route;
    }
    if let Some((route, _)) = GRPC.into_iter().find(|(route, _)| *route == path) {
        return route;
    }
    let Some(rest) = path.strip_prefix("/v1/") else {
        return match path {
            "/healthz" => "/healthz",
            "/readyz" => "/readyz",
            _ => "other",
        };
    };
    let (first, rest) = rest.split_once('/').unwrap_or((rest, ""));
    match (first, rest.split_once('/').map(|(_, last)| last)) {
        ("ack", None) => "/v1/ack/{msg_id}",
        ("nack", None) => "/v1/nack/{msg_id}",
        ("extend", None) => "/v1/extend/{msg_id}",
        ("messages", None) => "/v1/messages/{msg_id}",
        ("dlq", None) => "/v1/dlq/{topic}",
        ("topics", None) => "/v1/topics/{topic}",
        ("topics", Some("purge")) => "/v1/topics/{topic}/purge",
        ("topics", Some("peek")) => "/v1/topics/{topic}/peek",
        ("topics", Some("lookup")) => "/v1/topics/{topic}/lookup",
        _ => "other",
    }
}

/// What a call needs to be allowed.
pub(crate) fn op_of(route: &str) -> &'static str {
    if let Some((_, op)) = GRPC.into_iter().find(|(it, _)| *it == route) {
        return op;
    }
    match route {
        "/v1/send" | "/v1/send/batch" => "send",
        "/v1/recv" | "/v1/recv/stream" => "recv",
        "/v1/ack/{msg_id}" | "/v1/extend/{msg_id}" | "/v1/settle/batch" => "ack",
        "/v1/nack/{msg_id}" => "nack",
        _ => "admin",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_is_one_of_a_few_calls() {
        for (path, route) in [
            ("/v1/send", "/v1/send"),
            ("/v1/ack/01ABC", "/v1/ack/{msg_id}"),
            ("/v1/topics/a:b/purge", "/v1/topics/{topic}/purge"),
            ("/v1/topics/a/b/c", "other"),
            ("/v1/dlq/jobs", "/v1/dlq/{topic}"),
            ("/v1/dlq/reprocess", "/v1/dlq/reprocess"),
            ("/anything", "other"),
            ("/v1/", "other"),
        ] {
            assert_eq!(route_of(path), route, "{path}");
        }
        assert_eq!(op_of(route_of("/v1/nack/x")), "nack");
        assert_eq!(op_of(route_of("/mailbox.v1.Mailbox/Send")), "send");
        assert_eq!(route_of("/mailbox.v1.Mailbox/Other"), "other");
        let described = String::from_utf8_lossy(mailbox_wire::proto::DESCRIPTORS);
        for (route, _) in GRPC {
            let method = route.strip_prefix("/mailbox.v1.Mailbox/").unwrap();
            assert!(described.contains(method), "{method}");
        }
    }
}

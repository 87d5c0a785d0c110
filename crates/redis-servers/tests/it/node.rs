use std::net::{TcpListener, TcpStream};
use std::time::{Duration, Instant};

use mailbox_redis_servers::Node;

use crate::watch::{runs, wait_until};

fn set(node: &Node, value: &str) {
    let mut connection = node.connect().expect("a connection");
    redis::cmd("SET").arg("key").arg(value).exec(&mut connection).expect("SET");
}

fn get(node: &Node) -> Option<String> {
    let mut connection = node.connect().expect("a connection");
    redis::cmd("GET").arg("key").query(&mut connection).expect("GET")
}

fn config(node: &Node, name: &str) -> String {
    let mut connection = node.connect().expect("a connection");
    let (_, value): (String, String) =
        redis::cmd("CONFIG").arg("GET").arg(name).query(&mut connection).expect("CONFIG GET");
    value
}

#[test]
fn a_server_answers_and_its_pid_is_that_of_redis_itself() {
    let node = Node::start(&[]).expect("a server");
    set(&node, "value");
    assert_eq!(get(&node).as_deref(), Some("value"));
    assert_eq!(node.address(), format!("127.0.0.1:{}", node.port()));
    let name = std::fs::read_to_string(format!("/proc/{}/comm", node.pid())).expect("it runs");
    // The Debian package links redis-server to redis-check-rdb, which is the same program.
    assert!(name.starts_with("redis-"), "{name}");
    assert!(node.log().contains("Ready to accept connections"), "{}", node.log());
}

#[test]
fn nothing_is_persisted_unless_asked_for() {
    let node = Node::start(&[]).expect("a server");
    assert_eq!(config(&node, "save"), "");
    assert_eq!(config(&node, "appendonly"), "no");
    assert_eq!(config(&node, "bind"), "127.0.0.1");
}

#[test]
fn the_callers_options_win() {
    let node = Node::start(&[
        ("bind", "127.0.0.9"),
        ("appendonly", "yes"),
        ("save", "900 7"),
        ("maxmemory", "7000000"),
        ("requirepass", "sesame/@?"),
    ])
    .expect("a server");
    assert_eq!(node.host(), "127.0.0.9");
    assert_eq!(config(&node, "appendonly"), "yes");
    assert_eq!(config(&node, "save"), "900 7");
    assert_eq!(config(&node, "maxmemory"), "7000000");
}

#[test]
fn an_option_that_redis_refuses_shows_its_log() {
    let error = Node::start(&[("no-such-directive", "7")]).expect_err("refused");
    assert!(error.to_string().contains("no-such-directive"), "{error}");
}

#[test]
fn a_port_in_use_is_reported_for_a_chosen_port() {
    let taken = TcpListener::bind("127.0.0.1:0").expect("a listener");
    let port = taken.local_addr().expect("its address").port().to_string();
    let error = Node::start(&[("port", &port)]).expect_err("taken");
    assert_eq!(error.kind(), std::io::ErrorKind::AddrInUse, "{error}");
}

#[test]
fn a_killed_server_is_gone_and_comes_back_on_its_port_with_what_it_had_on_disk() {
    let mut node =
        Node::start(&[("appendonly", "yes"), ("appendfsync", "always")]).expect("a server");
    set(&node, "kept");
    let (port, first) = (node.port(), node.pid());
    node.kill();
    assert!(!runs(first));
    assert!(TcpStream::connect(node.address()).is_err(), "somebody still listens");
    assert!(node.connect().is_err());
    node.kill();

    node.restart().expect("a restart");
    assert_eq!(node.port(), port);
    assert_ne!(node.pid(), first);
    assert_eq!(get(&node).as_deref(), Some("kept"));

    let second = node.pid();
    node.restart().expect("a restart of a server that runs");
    assert!(!runs(second));
    assert_eq!(get(&node).as_deref(), Some("kept"));
}

#[test]
fn a_paused_server_does_not_answer_until_it_is_resumed() {
    let node = Node::start(&[]).expect("a server");
    set(&node, "value");
    let mut connection = node.connect().expect("a connection");
    connection.set_read_timeout(Some(Duration::from_millis(100))).expect("a timeout");
    node.pause();
    let silent = redis::cmd("PING").query::<String>(&mut connection).expect_err("no answer");
    assert!(silent.is_timeout(), "{silent}");
    node.resume();
    assert_eq!(get(&node).as_deref(), Some("value"));
}

#[test]
fn a_dropped_server_is_gone_even_if_it_was_paused() {
    let node = Node::start(&[]).expect("a server");
    let pid = node.pid();
    let folder = config(&node, "dir");
    node.pause();
    drop(node);
    assert!(!runs(pid));
    assert!(!std::fs::exists(&folder).expect("a look"), "{folder} was left behind");
}

#[test]
fn processor_time_grows_with_work_and_not_with_idling() {
    let node = Node::start(&[]).expect("a server");
    let before = node.cpu_time();
    let start = Instant::now();
    let mut connection = node.connect().expect("a connection");
    wait_until("100 ms of processor time", || {
        let script = "local n = 0; for i = 1, 1000000 do n = n + i end; return n";
        let sum: i64 = redis::cmd("EVAL").arg(script).arg(0).query(&mut connection).expect("EVAL");
        assert_eq!(sum, 500_000_500_000);
        node.cpu_time() - before >= Duration::from_millis(100)
    });
    let used = node.cpu_time() - before;
    // Redis has helper threads, but they have nothing to do here; one tick for rounding.
    let most = start.elapsed() + Duration::from_millis(50);
    assert!(used <= most, "{used:?} of processor time in {most:?}");
}

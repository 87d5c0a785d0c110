use std::time::Duration;

use mailbox_redis_servers::{Cluster, Node};

use crate::watch::wait_until;

const LONG: Duration = Duration::from_secs(30);

fn ask<T: redis::FromRedisValue>(node: &Node, command: &[&str]) -> redis::RedisResult<T> {
    let mut cmd = redis::cmd(command[0]);
    cmd.arg(&command[1..]);
    cmd.query(&mut node.connect()?)
}

#[test]
fn a_cluster_serves_every_slot_and_replicates_from_the_start() {
    let cluster = Cluster::start().expect("a cluster");
    assert_eq!(cluster.nodes().len(), 6);
    assert_eq!(cluster.seeds().split(',').count(), 6);
    for (slot, master) in [(0, 0), (5461, 1), (16_383, 2)] {
        assert_eq!(cluster.master_of(slot), Some(master), "slot {slot}");
    }
    for key in ["a", "b", "c", "d", "e"] {
        let slot: u16 = ask(&cluster.nodes()[0], &["CLUSTER", "KEYSLOT", key]).expect("a slot");
        let master = &cluster.nodes()[cluster.master_of(slot).expect("a master")];
        let mut connection = master.connect().expect("a connection");
        let (replicas,): (u32,) = redis::pipe()
            .cmd("SET")
            .arg(key)
            .arg("value")
            .ignore()
            .cmd("WAIT")
            .arg(1)
            .arg(5000)
            .query(&mut connection)
            .expect("a write to the master of the slot");
        assert_eq!(replicas, 1, "{key}");
    }
}

#[test]
fn after_the_death_of_a_master_its_replica_takes_over_and_it_comes_back_as_a_replica() {
    let mut cluster = Cluster::start_with(500, 1, None).expect("a cluster");
    cluster.nodes_mut()[0].kill();
    let early = cluster.wait_until_healthy(Duration::ZERO).expect_err("a node is down");
    assert!(early.to_string().contains("node 0"), "{early}");
    wait_until("node 3 is master of slot 0", || cluster.master_of(0) == Some(3));
    cluster.nodes_mut()[0].restart().expect("a restart");
    cluster.wait_until_healthy(LONG).expect("a healthy cluster");
    assert_eq!(cluster.master_of(0), Some(3));
    let text: String = ask(&cluster.nodes()[0], &["INFO", "replication"]).expect("INFO");
    assert!(text.contains("role:slave"), "{text}");
}

#[test]
fn the_nodes_of_a_cluster_can_have_addresses_of_their_own() {
    let addresses = [11, 12, 13, 14, 15, 16].map(|last| format!("127.0.0.{last}"));
    let addresses: Vec<&str> = addresses.iter().map(String::as_str).collect();
    let cluster = Cluster::start_with(1000, 1, Some(&addresses)).expect("a cluster");
    let hosts: Vec<&str> = cluster.nodes().iter().map(Node::host).collect();
    assert_eq!(hosts, addresses);
    let text: String = ask(&cluster.nodes()[0], &["CLUSTER", "NODES"]).expect("CLUSTER NODES");
    for node in cluster.nodes() {
        assert!(text.contains(&node.address()), "{} is not in {text}", node.address());
    }
    // A connection between nodes is known by the address it comes from.
    let text: String = ask(&cluster.nodes()[0], &["INFO", "replication"]).expect("INFO");
    assert!(text.contains("slave0:ip=127.0.0.14,"), "{text}");
}

#[test]
fn a_cluster_needs_one_address_for_each_node() {
    let error = Cluster::start_with(1000, 1, Some(&["127.0.0.11"])).expect_err("one for six");
    assert_eq!(error.kind(), std::io::ErrorKind::InvalidInput);
}

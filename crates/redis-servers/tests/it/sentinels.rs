use std::time::Duration;

use mailbox_redis_servers::Sentinels;

use crate::watch::wait_until;

const LONG: Duration = Duration::from_secs(30);

#[test]
fn sentinels_replace_a_dead_master_which_comes_back_as_a_replica() {
    let mut redis = Sentinels::start().expect("servers");
    assert_eq!((redis.data_nodes().len(), redis.sentinels().len()), (3, 3));
    assert_eq!(redis.seeds().split(',').count(), 3);
    assert_eq!(redis.master(), Some(0));
    let mut connection = redis.sentinels()[2].connect().expect("a connection");
    let (_, port): (String, u16) = redis::cmd("SENTINEL")
        .arg("GET-MASTER-ADDR-BY-NAME")
        .arg(redis.master_name())
        .query(&mut connection)
        .expect("the master's address");
    assert_eq!(port, redis.data_nodes()[0].port());

    redis.data_nodes_mut()[0].kill();
    redis.wait_until_healthy(Duration::ZERO).expect_err("the master is down");
    wait_until("another one is master", || redis.master().is_some_and(|master| master != 0));
    redis.data_nodes_mut()[0].restart().expect("a restart");
    redis.wait_until_healthy(LONG).expect("healthy servers");
    let master = redis.master().expect("a master");
    assert_ne!(master, 0);
    let mut connection = redis.data_nodes()[master].connect().expect("a connection");
    let (replicas,): (u32,) = redis::pipe()
        .cmd("SET")
        .arg("key")
        .arg("value")
        .ignore()
        .cmd("WAIT")
        .arg(2)
        .arg(5000)
        .query(&mut connection)
        .expect("a write to the new master");
    assert_eq!(replicas, 2);
}

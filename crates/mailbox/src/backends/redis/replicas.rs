//! Which replicas have to confirm what a master was told. Invariant: what counts as confirmed is
//! had by everybody who may become master.
//!
//! A number is not enough where sentinels elect: one that comes back may confirm instead of the one
//! that has just been elected, and of which the old master does not know yet.

use std::net::IpAddr;
use std::sync::atomic::{AtomicU32, Ordering};

use parking_lot::Mutex;
use redis::Value;

use crate::backends::redis::survey::text;

/// Those of one master.
#[derive(Debug)]
pub(crate) struct Replicas {
    count: AtomicU32,
    /// Host and port of those that must be among them, if that is known; each has one or more.
    named: Mutex<Vec<Vec<String>>>,
}

impl Replicas {
    pub(crate) fn new(count: u32) -> Self {
        Self { count: AtomicU32::new(count), named: Mutex::default() }
    }

    pub(crate) fn set(&self, count: u32, named: &[Vec<String>]) {
        self.count.store(count, Ordering::Relaxed);
        *self.named.lock() = named.to_vec();
    }

    /// How many there are.
    pub(crate) fn count(&self) -> u32 {
        self.count.load(Ordering::Relaxed)
    }

    /// There are more of them.
    pub(crate) fn raise(&self, count: u32) {
        self.count.fetch_max(count, Ordering::Relaxed);
    }

    /// One that has to confirm and does not follow the master.
    pub(crate) fn missing(&self, following: &[String]) -> Option<String> {
        let named = self.named.lock();
        // Those with names may be known by another one to whoever told: then the number decides.
        let is_plain = |name: &String| {
            name.rsplit_once(':').is_some_and(|(host, _)| host.parse::<IpAddr>().is_ok())
        };
        if !named.iter().flatten().chain(following).all(is_plain) {
            return None;
        }
        let follows = |names: &&Vec<String>| names.iter().any(|name| following.contains(name));
        named.iter().find(|names| !follows(names)).map(|names| names.join(" or "))
    }
}

/// Replicas that follow a master closely, by what it says of itself. One that it has not heard of
/// for longer may be dead: whether it counts is for all servers to say, not for one.
pub(crate) fn following(said: Option<Value>) -> Vec<String> {
    let said = said.and_then(text).unwrap_or_default();
    let follows = |line: &str| {
        let (slave, facts) = line.trim_end().split_once(':')?;
        let fact = |name: &str| {
            facts.split(',').find_map(|fact| fact.strip_prefix(name)?.strip_prefix('='))
        };
        // Two of the server's clocks: what it has just heard may have been in a second to come.
        let is_heard = matches!(fact("lag"), Some("-1" | "0" | "1"));
        let is_close = is_heard && fact("state") == Some("online");
        let (ip, port) = (fact("ip").unwrap_or("?"), fact("port").unwrap_or("?"));
        // Tools that copy a server once have no port: they never become master.
        let is_one = slave.starts_with("slave") && is_close && port != "0";
        is_one.then(|| format!("{ip}:{port}"))
    };
    said.lines().filter_map(follows).collect()
}

/// How many replicas a master has, following closely or not.
pub(crate) fn connected(said: &str) -> u32 {
    let is_one = |line: &&str| {
        let Some((slave, facts)) = line.trim_end().split_once(':') else { return false };
        let number = slave.strip_prefix("slave").unwrap_or_default();
        number.parse::<u32>().is_ok() && !facts.split(',').any(|fact| fact == "port=0")
    };
    u32::try_from(said.lines().filter(is_one).count()).unwrap_or(u32::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn replicas_that_are_online_and_heard_of_follow() {
        let said = "# Replication\r\nrole:master\r\nconnected_slaves:5\r\n\
                    slave0:ip=127.0.0.1,port=1,state=online,offset=14,lag=0\r\n\
                    slave1:ip=127.0.0.1,port=2,state=online,offset=14,lag=1\r\n\
                    slave2:ip=127.0.0.1,port=3,state=online,offset=14,lag=11\r\n\
                    slave9:ip=127.0.0.1,port=9,state=online,offset=14,lag=-1\r\n\
                    slave3:ip=127.0.0.1,port=4,state=wait_bgsave,offset=0,lag=0\r\n";
        let ports = ["127.0.0.1:1", "127.0.0.1:2", "127.0.0.1:9"];
        assert_eq!(following(Some(Value::BulkString(said.into()))), ports);
        assert_eq!(following(Some(Value::Nil)), Vec::<String>::new());
        assert_eq!(connected(said), 5);
        let tool = "role:master\r\nslave0:ip=127.0.0.1,port=0,state=online,offset=0,lag=1\r\n";
        assert_eq!(following(Some(Value::BulkString(tool.into()))), Vec::<String>::new());
        assert_eq!(connected(tool), 0);
    }

    #[test]
    fn whoever_is_named_must_be_among_those_who_follow() {
        let texts = |texts: &[&str]| texts.iter().map(|&text| text.to_owned()).collect::<Vec<_>>();
        let replicas = Replicas::new(0);
        assert_eq!(replicas.missing(&texts(&["10.0.0.1:1"])), None);
        replicas.set(1, &[texts(&["10.0.0.2:1"])]);
        assert_eq!(replicas.missing(&texts(&["10.0.0.1:1", "10.0.0.2:1"])), None);
        assert_eq!(replicas.missing(&texts(&["10.0.0.1:1"])).as_deref(), Some("10.0.0.2:1"));
        assert_eq!(replicas.missing(&[]).as_deref(), Some("10.0.0.2:1"));
        replicas.set(1, &[texts(&["10.0.0.2:1", "127.0.0.1:1"])]);
        assert_eq!(replicas.missing(&texts(&["127.0.0.1:1"])), None);
        // It may be the same one.
        assert_eq!(replicas.missing(&texts(&["redis-2:1"])), None);
    }

    #[test]
    fn there_are_as_many_as_were_ever_seen_until_servers_are_asked_again() {
        let replicas = Replicas::new(1);
        replicas.raise(2);
        replicas.raise(1);
        assert_eq!(replicas.count(), 2);
        replicas.set(1, &[]);
        assert_eq!(replicas.count(), 1);
    }
}

//! Reading what a server says about itself, within a time limit: a paused server accepts
//! connections and then never answers.

use std::collections::HashMap;
use std::time::Duration;

use redis::{Connection, ConnectionInfo, RedisResult};

/// What INFO, CLUSTER INFO and SENTINEL MASTER tell: names and values.
pub(crate) type Fields = HashMap<String, String>;

/// One `name:value` a line.
pub(crate) fn fields(text: &str) -> Fields {
    text.lines()
        .filter_map(|line| line.split_once(':'))
        .map(|(name, value)| (name.to_owned(), value.trim_end().to_owned()))
        .collect()
}

/// A connection that gives up on a silent server.
pub(crate) fn connect(to: ConnectionInfo, limit: Duration) -> RedisResult<Connection> {
    let connection = redis::Client::open(to)?.get_connection_with_timeout(limit)?;
    connection.set_read_timeout(Some(limit))?;
    connection.set_write_timeout(Some(limit))?;
    Ok(connection)
}

/// Sends a command whose words are separated by spaces.
pub(crate) fn ask<T: redis::FromRedisValue>(
    connection: &mut Connection,
    command: &str,
) -> Result<T, String> {
    let mut words = command.split(' ');
    let mut cmd = redis::cmd(words.next().unwrap_or_default());
    for word in words {
        cmd.arg(word);
    }
    cmd.query(connection).map_err(|error| format!("{command}: {error}"))
}

/// INFO of one section.
pub(crate) fn info(connection: &mut Connection, section: &str) -> Result<Fields, String> {
    ask::<String>(connection, &format!("INFO {section}")).map(|text| fields(&text))
}

/// Whether a field has the value it must have.
pub(crate) fn expect(fields: &Fields, name: &str, wanted: &str) -> Result<(), String> {
    match fields.get(name) {
        Some(value) if value == wanted => Ok(()),
        Some(value) => Err(format!("{name} is {value}, not {wanted}")),
        None => Err(format!("{name} is missing, not {wanted}")),
    }
}

/// How many replicas a master feeds, by INFO replication.
pub(crate) fn online_replicas(replication: &Fields) -> usize {
    let is_replica = |name: &str| {
        name.strip_prefix("slave").is_some_and(|number| number.parse::<usize>().is_ok())
    };
    replication
        .iter()
        .filter(|(name, value)| is_replica(name) && value.contains("state=online"))
        .count()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_replicas_that_are_online_count() {
        let replication = fields(
            "# Replication\r\nrole:master\r\nconnected_slaves:2\r\n\
             slave0:ip=127.0.0.1,port=1,state=online,offset=14,lag=0\r\n\
             slave1:ip=127.0.0.1,port=2,state=wait_bgsave,offset=0,lag=0\r\n\
             slave_read_only:1,state=online\r\n",
        );
        assert_eq!(online_replicas(&replication), 1);
        expect(&replication, "role", "master").expect("it is");
        expect(&replication, "role", "slave").expect_err("it is not");
        expect(&replication, "absent", "x").expect_err("it is not there");
    }
}

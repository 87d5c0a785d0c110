//! Which server has which mailbox. Invariant: of two servers that say different things the one with
//! the later election is right.

use std::collections::HashMap;

use crate::backends::redis::keys::SLOTS;
use crate::backends::redis::target::Node;

/// Slots, and the servers that have them.
#[derive(Debug, Default, Clone, PartialEq, Eq)]
pub(crate) struct Map {
    /// Sorted, without overlap; there may be gaps.
    ranges: Vec<Range>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
struct Range {
    from: u16,
    to: u16,
    owner: Owner,
}

/// A server that keeps messages, and how many copy it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Owner {
    pub(crate) node: Node,
    pub(crate) replicas: u32,
    /// Names of those that have to be among them, where sentinels say so: host and port, or several
    /// of them for one server.
    pub(crate) named: Vec<Vec<String>>,
}

impl Map {
    /// One server has everything.
    pub(crate) fn whole(owner: Owner) -> Self {
        Self { ranges: vec![Range { from: 0, to: SLOTS - 1, owner }] }
    }

    /// Who has a slot.
    pub(crate) fn owner(&self, slot: u16) -> Option<&Owner> {
        let index = self.ranges.partition_point(|range| range.to < slot);
        self.ranges.get(index).filter(|range| range.from <= slot).map(|range| &range.owner)
    }

    /// Everybody who has slots.
    pub(crate) fn owners(&self) -> Vec<&Owner> {
        let mut owners: Vec<&Owner> = self.ranges.iter().map(|range| &range.owner).collect();
        owners.sort_by(|a, b| a.node.cmp(&b.node));
        owners.dedup_by(|a, b| a.node == b.node);
        owners
    }

    /// From what nodes of a cluster say (`CLUSTER NODES`), each with who said it.
    pub(crate) fn of_cluster(views: &[(Node, String)]) -> Self {
        let mut slots: Vec<Option<(u64, &Owner)>> = vec![None; usize::from(SLOTS)];
        let views: Vec<Vec<Claim>> =
            views.iter().map(|(node, text)| read_view(node, text)).collect();
        for claim in views.iter().flatten() {
            for (from, to) in &claim.slots {
                for slot in &mut slots[usize::from(*from)..=usize::from(*to)] {
                    // Of those who agree, the one who knows of more replicas.
                    let is_better = |(epoch, owner): (u64, &Owner)| {
                        (epoch, owner.replicas) < (claim.epoch, claim.owner.replicas)
                    };
                    if slot.is_none_or(is_better) {
                        *slot = Some((claim.epoch, &claim.owner));
                    }
                }
            }
        }
        let mut ranges: Vec<Range> = Vec::new();
        for (slot, owner) in (0..SLOTS).zip(slots) {
            let Some((_, owner)) = owner else { continue };
            match ranges.last_mut() {
                Some(last) if last.to + 1 == slot && last.owner == *owner => last.to = slot,
                _ => ranges.push(Range { from: slot, to: slot, owner: owner.clone() }),
            }
        }
        Self { ranges }
    }
}

/// What a node says of a master.
struct Claim {
    epoch: u64,
    owner: Owner,
    slots: Vec<(u16, u16)>,
}

/// Reads lines of `id host:port@bus[,name] flags master ping pong epoch link slot slot-slot ...`.
/// What cannot be read is left out: others may say it better.
fn read_view(said_by: &Node, text: &str) -> Vec<Claim> {
    let lines: Vec<Vec<&str>> = text.lines().map(|line| line.split(' ').collect()).collect();
    let replicas = count_replicas(&lines);
    let claim = |line: &Vec<&str>| {
        if line.len() < 9 || !line[2].split(',').any(|flag| flag == "master") {
            return None;
        }
        let slots: Vec<(u16, u16)> = line[8..].iter().filter_map(|text| read_slots(text)).collect();
        let node = read_node(said_by, line[1])?;
        let replicas = replicas.get(line[0]).copied().unwrap_or(0);
        let owner = Owner { node, replicas, named: Vec::new() };
        Some(Claim { epoch: line[6].parse().ok()?, owner, slots })
    };
    lines.iter().filter_map(claim).collect()
}

/// How many replicas each master has, by id, but dead ones: `fail` is what the majority agreed on,
/// `fail?` is one node's opinion.
fn count_replicas<'a>(lines: &[Vec<&'a str>]) -> HashMap<&'a str, u32> {
    let has =
        |line: &[&str], wanted: &[&str]| line[2].split(',').any(|flag| wanted.contains(&flag));
    let whole = || lines.iter().filter(|line| line.len() >= 8);
    // Right after an election the others still follow the old master. They will follow whoever was
    // elected last, unless that one has become a replica itself, and says of whom.
    let elected = whole().filter(|line| line.len() > 8 && has(line, &["master"]));
    let elected = elected.max_by_key(|line| line[6].parse::<u64>().unwrap_or(0));
    let mut replicas: HashMap<&str, u32> = HashMap::new();
    for line in whole().filter(|line| line[3] != "-") {
        if has(line, &["fail", "noaddr", "handshake"]) {
            continue;
        }
        let master = whole().find(|other| other[0] == line[3]);
        let follows = match master {
            Some(master) if has(master, &["slave"]) => Some(master[3]),
            Some(master) if has(master, &["fail"]) && master.len() == 8 => elected.map(|e| e[0]),
            _ => Some(line[3]),
        };
        if let Some(follows) = follows {
            *replicas.entry(follows).or_default() += 1;
        }
    }
    replicas
}

/// Reads `7`, or `7-9`. Slots on the move, `[7->-id]`, are where they were.
fn read_slots(text: &str) -> Option<(u16, u16)> {
    let (from, to) = text.split_once('-').unwrap_or((text, text));
    let (from, to) = (from.parse().ok()?, to.parse().ok()?);
    (from <= to && to < SLOTS).then_some((from, to))
}

/// Reads `host:port@bus` and `host:port@bus,name`.
fn read_node(said_by: &Node, text: &str) -> Option<Node> {
    let place = text.split('@').next()?;
    let (host, port) = place.rsplit_once(':')?;
    let port: u16 = port.parse().ok().filter(|port| *port != 0)?;
    // A node that nobody has met yet does not know its own address.
    let host = if host.is_empty() { &said_by.host } else { host };
    Some(Node { host: host.to_owned(), port })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn owner(port: u16, replicas: u32) -> Owner {
        Owner { node: node(port), replicas, named: Vec::new() }
    }

    fn node(port: u16) -> Node {
        Node { host: "10.0.0.1".into(), port }
    }

    const BEFORE: &str = "\
a 10.0.0.1:1@11 myself,master - 0 0 1 connected 0-99 [7->-b]
b 10.0.0.1:2@12 master - 0 0 2 connected 100-16383
c 10.0.0.1:3@13 slave a 0 0 1 connected
d 10.0.0.1:4@14 slave,fail b 0 0 2 connected
";
    const AFTER: &str = "\
a 10.0.0.1:1@11 master,fail - 0 0 1 disconnected
b 10.0.0.1:2@12 myself,master - 0 0 2 connected 100-16383
c :3@13 master - 0 0 3 connected 0-98 99
";

    #[test]
    fn a_slot_is_where_the_last_election_put_it() {
        for views in [
            [(node(1), BEFORE.to_owned()), (node(2), AFTER.to_owned())],
            [(node(2), AFTER.to_owned()), (node(1), BEFORE.to_owned())],
        ] {
            let map = Map::of_cluster(&views);
            assert_eq!(map.owner(7).unwrap().node, node(3));
            assert_eq!(map.owner(99).unwrap().node, node(3));
            assert_eq!(map.owner(100).unwrap(), &owner(2, 0));
            assert_eq!(map.owners().len(), 2);
        }
        let map = Map::of_cluster(&[(node(1), BEFORE.to_owned())]);
        assert_eq!(map.owner(0).unwrap(), &owner(1, 1));
    }

    #[test]
    fn whoever_follows_an_old_master_counts_for_the_one_that_was_elected() {
        let replicas = |more: &str| {
            let map = Map::of_cluster(&[(node(2), format!("{AFTER}{more}"))]);
            (map.owner(0).unwrap().replicas, map.owner(100).unwrap().replicas)
        };
        assert_eq!(replicas(""), (0, 0));
        assert_eq!(replicas("e 10.0.0.1:5@15 slave a 0 0 1 connected\n"), (1, 0));
        assert_eq!(replicas("e 10.0.0.1:5@15 slave,fail a 0 0 1 connected\n"), (0, 0));
        // The old one follows already, and somebody follows it.
        let chain = AFTER.replace("master,fail -", "slave c").replace("disconnected", "connected");
        let chain = format!("{chain}e 10.0.0.1:5@15 slave a 0 0 1 connected\n");
        let map = Map::of_cluster(&[(node(2), chain)]);
        assert_eq!(map.owner(0).unwrap().replicas, 2);
        // One who follows a master without slots, which lives, is none of others.
        let idle = AFTER.replace("master,fail -", "master -");
        let map = Map::of_cluster(&[(node(2), format!("{idle}e 10.0.0.1:5@15 slave a 0 0 1 c\n"))]);
        assert_eq!(map.owner(0).unwrap().replicas, 0);
    }

    #[test]
    fn what_cannot_be_read_is_left_out() {
        for text in ["", "\n\n", "a b c", "a x master - 0 0 1 connected 0-99", "a 1:1@1 master - 0"]
        {
            assert_eq!(Map::of_cluster(&[(node(1), text.to_owned())]), Map::default(), "{text}");
        }
        let wide = "a 10.0.0.1:1@1 master - 0 0 1 connected 5-2 0-99999 16384 -1 3";
        let map = Map::of_cluster(&[(node(1), wide.to_owned())]);
        assert_eq!((map.owner(3).is_some(), map.owner(2), map.owner(4)), (true, None, None));
    }
}

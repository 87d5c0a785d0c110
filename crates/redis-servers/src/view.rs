//! What one node of a cluster thinks of the cluster: the lines of CLUSTER NODES.

/// One line: one node, as another one (or itself) sees it.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Seen {
    pub(crate) id: String,
    pub(crate) flags: Vec<String>,
    pub(crate) epoch: u64,
    pub(crate) linked: bool,
    /// First and last slot of each range it serves.
    pub(crate) slots: Vec<(u16, u16)>,
}

impl Seen {
    /// ID IP:PORT@BUS FLAGS MASTER PING PONG EPOCH LINK SLOT...
    fn parse(line: &str) -> Option<Self> {
        let words: Vec<&str> = line.split(' ').collect();
        let [id, _address, flags, _master, _ping, _pong, epoch, link, slots @ ..] =
            words.as_slice()
        else {
            return None;
        };
        // Slots on their way to another node are in brackets; they are among the ranges as well.
        let ranges = slots.iter().filter(|slots| !slots.starts_with('['));
        Some(Self {
            id: (*id).to_owned(),
            flags: flags.split(',').map(str::to_owned).collect(),
            epoch: epoch.parse().ok()?,
            linked: *link == "connected",
            slots: ranges.map(|range| parse_range(range)).collect::<Option<_>>()?,
        })
    }

    pub(crate) fn is(&self, flag: &str) -> bool {
        self.flags.iter().any(|one| one == flag)
    }

    pub(crate) fn serves(&self, slot: u16) -> bool {
        self.slots.iter().any(|(first, last)| (*first..=*last).contains(&slot))
    }
}

fn parse_range(range: &str) -> Option<(u16, u16)> {
    let (first, last) = range.split_once('-').unwrap_or((range, range));
    Some((first.parse().ok()?, last.parse().ok()?))
}

/// The whole view of one node.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct View(Vec<Seen>);

impl View {
    pub(crate) fn parse(text: &str) -> Result<Self, String> {
        let seen = |line: &str| {
            Seen::parse(line).ok_or_else(|| format!("CLUSTER NODES has the line {line:?}"))
        };
        text.lines().map(seen).collect::<Result<_, _>>().map(Self)
    }

    /// The node whose view it is.
    pub(crate) fn myself(&self) -> Result<&Seen, String> {
        let myself = self.0.iter().find(|seen| seen.is("myself"));
        myself.ok_or_else(|| "CLUSTER NODES does not show the node itself".to_owned())
    }

    /// Whether all nodes are there, connected, and none is new or suspected.
    pub(crate) fn check_all_well(&self, nodes: usize) -> Result<(), String> {
        if self.0.len() != nodes {
            return Err(format!("knows {} nodes, not {nodes}", self.0.len()));
        }
        let is_well = |seen: &Seen| {
            let bad = ["handshake", "noaddr", "fail", "fail?"];
            !bad.iter().any(|flag| seen.is(flag)) && (seen.linked || seen.is("myself"))
        };
        match self.0.iter().find(|seen| !is_well(seen)) {
            Some(seen) => Err(format!("sees {} as {}", seen.id, seen.flags.join(","))),
            None => Ok(()),
        }
    }

    /// Who serves what, in a fixed order, to be compared between nodes.
    pub(crate) fn owners(&self) -> Vec<(u16, u16, &str)> {
        let mut owners = Vec::new();
        for seen in &self.0 {
            owners.extend(seen.slots.iter().map(|(first, last)| (*first, *last, seen.id.as_str())));
        }
        owners.sort_unstable();
        owners
    }
}

/// The node that says in its own view that it is the master of the slot; of several the one with
/// the latest epoch, that is the one elected last.
pub(crate) fn master_of(slot: u16, views: impl Iterator<Item = (usize, View)>) -> Option<usize> {
    let claim = |view: &View| {
        let myself = view.myself().ok()?;
        (myself.is("master") && myself.serves(slot)).then_some(myself.epoch)
    };
    views.filter_map(|(n, view)| Some((claim(&view)?, n))).max().map(|(_, n)| n)
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &str = "\
aa 127.0.0.1:1@2 myself,master - 0 0 3 connected 0-100 200 [7->-bb]
bb 127.0.0.1:3@4 slave aa 0 1 3 connected
cc 127.0.0.1:5@6,name master,fail? - 0 1 2 disconnected 101-199
";

    #[test]
    fn a_view_tells_who_serves_what() {
        let view = View::parse(TEXT).expect("a view");
        let myself = view.myself().expect("one of them");
        assert_eq!((myself.id.as_str(), myself.epoch), ("aa", 3));
        assert!(myself.serves(0) && myself.serves(100) && myself.serves(200));
        assert!(!myself.serves(101) && !myself.serves(201));
        assert_eq!(view.owners(), [(0, 100, "aa"), (101, 199, "cc"), (200, 200, "aa")]);
    }

    #[test]
    fn a_view_with_a_suspect_or_a_stranger_is_not_well() {
        let view = View::parse(TEXT).expect("a view");
        let missing = view.check_all_well(3).expect_err("cc is suspected");
        assert!(missing.contains("cc"), "{missing}");
        let fine = View::parse(&TEXT.replace(",fail?", "").replace("disc", "c")).expect("a view");
        fine.check_all_well(3).expect("all well");
        fine.check_all_well(6).expect_err("three are missing");
        View::parse("aa 127.0.0.1:1@2").expect_err("not a line");
    }

    #[test]
    fn of_two_masters_of_a_slot_the_one_elected_last_counts() {
        let view = |role: &str, epoch: u64, slots: &str| {
            let line = format!("aa 127.0.0.1:1@2 myself,{role} - 0 0 {epoch} connected {slots}");
            View::parse(&line).expect("a view")
        };
        let views = [
            view("master", 2, "0-9"),
            view("master", 7, "0-9"),
            view("slave", 9, "0-9"),
            view("master", 8, "10-19"),
        ];
        assert_eq!(master_of(5, views.clone().into_iter().enumerate()), Some(1));
        assert_eq!(master_of(15, views.clone().into_iter().enumerate()), Some(3));
        assert_eq!(master_of(25, views.into_iter().enumerate()), None);
    }
}

//! A network of our own, in which servers can be cut off from each other while everybody else still
//! reaches them.
//!
//! A new network namespace has nothing but a loopback device. Each server has an address of its own
//! there and connects from it. Rules of policy routing, looked at before the table of local
//! addresses, send what goes from one to another into a device that nobody listens at: it vanishes,
//! as when a cable is pulled, also on connections that are already there. That needs no firewall.
//! (A route that refuses would not do: Redis then connects from another address.)

use std::ffi::OsStr;
use std::fmt;
use std::io;
use std::path::Path;
use std::process::{Command, Stdio};

use crate::report::NotRun;

/// What the program is told when it is inside.
pub(crate) const INSIDE: &str = "in-namespace";

/// The servers' addresses. Everybody else on this machine is 127.0.0.1.
pub(crate) const ADDRESSES: [&str; 6] =
    ["127.0.1.1", "127.0.1.2", "127.0.1.3", "127.0.1.4", "127.0.1.5", "127.0.1.6"];
/// All of them.
const SERVERS: &str = "127.0.1.0/24";
/// Where the rule for local addresses goes: behind those of a cut.
const LOCAL: &str = "100";
/// Where the rules of a cut go, and the table they lead to.
const CUT: &str = "10";
/// Lets packets between loopback addresses leave through the device.
const LET_IN: &str = "/proc/sys/net/ipv4/conf/hole/route_localnet";

/// The command that runs `program` inside.
pub(crate) fn enter(program: &Path) -> Result<Command, NotRun> {
    let tools =
        [("ip", "iproute2"), ("redis-server", "redis-server"), ("redis-cli", "redis-tools")];
    for (tool, package) in tools {
        if !runs(tool, &["--version"]) && !runs(tool, &["-V"]) {
            return Err(NotRun(format!("{tool} is missing (Debian package {package})")));
        }
    }
    // Whoever is not root may be root of a namespace of users, where the system allows that.
    let ways: [&[&str]; 2] = [&["--net"], &["--net", "--map-root-user"]];
    let way = ways.into_iter().find(|way| runs("unshare", &[way, &["true"][..]].concat()));
    let Some(way) = way else {
        let why = "a network namespace of its own cannot be made: that needs `unshare` \
                   (util-linux) and root or user namespaces";
        return Err(NotRun(why.to_owned()));
    };
    let mut command = Command::new("unshare");
    command.args(way).arg(program).arg(INSIDE);
    Ok(command)
}

/// Sets the network up. Only inside.
pub(crate) fn set_up() -> Result<(), NotRun> {
    let steps: [&[&str]; 6] = [
        &["link", "set", "lo", "up"],
        &["rule", "add", "pref", LOCAL, "lookup", "local"],
        &["rule", "del", "pref", "0"],
        &["link", "add", "hole", "type", "veth", "peer", "name", "hole-end"],
        &["link", "set", "hole", "arp", "off", "up"],
        &["route", "add", SERVERS, "dev", "hole", "table", CUT],
    ];
    let done = steps.into_iter().try_for_each(ip).and_then(|()| std::fs::write(LET_IN, "1"));
    done.map_err(|error| NotRun(format!("a network to cut in two: {error}")))
}

/// A server that is cut off from the other servers, in both directions, until this is dropped.
#[derive(Debug)]
pub(crate) struct Cut {
    address: String,
}

impl Cut {
    /// Cuts the server with this address off.
    pub(crate) fn off(address: &str) -> io::Result<Self> {
        // First the guard: a cut that was made by half must be undone as well.
        let cut = Self { address: address.to_owned() };
        for (from, to) in cut.directions() {
            ip(&["rule", "add", "pref", CUT, "from", from, "to", to, "lookup", CUT])?;
        }
        Ok(cut)
    }

    fn directions(&self) -> [(&str, &str); 2] {
        [(&self.address, SERVERS), (SERVERS, &self.address)]
    }
}

impl Drop for Cut {
    fn drop(&mut self) {
        for (from, to) in self.directions() {
            // If it does not heal, the cluster does not become whole, which is noticed.
            let _ = ip(&["rule", "del", "pref", CUT, "from", from, "to", to, "lookup", CUT]);
        }
    }
}

fn runs<S: AsRef<OsStr>>(tool: &str, arguments: &[S]) -> bool {
    let mut command = Command::new(tool);
    command.args(arguments).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    command.status().is_ok_and(|status| status.success())
}

fn ip(arguments: &[&str]) -> io::Result<()> {
    output(Command::new("ip").args(arguments)).map(drop)
}

/// Runs a command, and gives what it said.
pub(crate) fn output(command: &mut Command) -> io::Result<String> {
    let shown = Shown(command).to_string();
    let output = command.stdin(Stdio::null()).output()?;
    if output.status.success() {
        return Ok(String::from_utf8_lossy(&output.stdout).into_owned());
    }
    let said = [output.stdout, output.stderr].concat();
    let said = String::from_utf8_lossy(&said);
    Err(io::Error::other(format!("{shown}: {}: {}", output.status, said.trim())))
}

struct Shown<'a>(&'a Command);

impl fmt::Display for Shown<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.0.get_program().display())?;
        self.0.get_args().try_for_each(|argument| write!(f, " {}", argument.display()))
    }
}

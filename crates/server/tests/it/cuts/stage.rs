//! The service that connections are cut from, and those who help to look what has become of it.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use mailbox_wire::call::{Reply, Request, TopicsRequest};
use mailbox_wire::json::TopicEntry;
use parking_lot::Mutex;
use rustls::ClientConfig;

use super::EPSILON;
use super::books::Books;
use crate::rig::{Line, OapClient, Pulse, Served};

/// Everything that a cut is about.
pub(super) struct Stage {
    /// For those whose connections are cut.
    address: (SocketAddr, Option<Arc<ClientConfig>>),
    /// For those who help.
    oap: SocketAddr,
    pub(super) operator: String,
    pub(super) books: Books,
    pub(super) pulse: Pulse,
    /// What everything may take longer: there is a disk.
    grace: Duration,
    /// Connections that are never cut, and not used at the moment.
    helpers: Mutex<Vec<OapClient>>,
}

impl Stage {
    pub(super) fn new(served: &Served, grace: Duration) -> Arc<Self> {
        let address = match &served.oaps {
            Some((address, config)) => (*address, Some(Arc::clone(config))),
            None => (served.tight, None),
        };
        let (oap, operator) = (served.oap, served.operator.clone());
        let (books, pulse, helpers) = (Books::new(), Pulse::start(), Mutex::default());
        Arc::new(Self { address, oap, operator, books, pulse, grace, helpers })
    }

    /// The beat by which something is over that begins now and takes so long.
    pub(super) fn by(&self, time: Duration) -> u64 {
        self.pulse.now() + Pulse::beats(time + EPSILON + self.grace)
    }

    /// Connects to be cut.
    pub(super) async fn line(&self, room: Option<u32>) -> Line {
        let (address, tls) = self.address.clone();
        Line::open(address, tls, room).await
    }

    pub(super) fn is_tls(&self) -> bool {
        self.address.1.is_some()
    }

    /// A connection that is not cut.
    pub(super) async fn helper(&self) -> OapClient {
        let known = self.helpers.lock().pop();
        match known {
            Some(helper) => helper,
            None => {
                let mut helper = OapClient::open(self.oap).await;
                helper.start(&self.operator).await;
                helper
            }
        }
    }

    /// It is not used any more.
    pub(super) fn helped(&self, helper: OapClient) {
        self.helpers.lock().push(helper);
    }

    /// How many are not used.
    pub(super) fn idle(&self) -> usize {
        self.helpers.lock().len()
    }

    /// All mailboxes, and what is in them.
    pub(super) async fn topics(&self) -> Vec<TopicEntry> {
        let mut helper = self.helper().await;
        let (mut all, mut after) = (Vec::new(), None);
        loop {
            let limit = Some(1000);
            let question = TopicsRequest { after, limit, stats: Some(true) };
            let asked = helper.ask(Request::Topics(question)).await;
            let Ok(Reply::Topics(found)) = asked else { panic!("{asked:?}") };
            let Some(last) = found.topics.last() else { break };
            after = Some(last.topic.clone());
            all.extend(found.topics);
        }
        self.helped(helper);
        all
    }
}

//! Makes calls, wherever the mailbox is by now: follows redirections, asks who is master, tries
//! again what is safe to try again. Invariant: a call that may have taken effect is repeated only
//! if a second effect cannot be told from the first.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::{Mutex, RwLock};
use redis::Value;
use tokio::sync::Notify;
use tokio::task::JoinSet;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use crate::backends::redis::config::RedisConfig;
use crate::backends::redis::link::{Confirm, HELD_UP, Link, Once};
use crate::backends::redis::scripts::Order;
use crate::backends::redis::target::{Kind, Node, Target};
use crate::backends::redis::topology::{Map, Owner};
use crate::backends::redis::trouble::{Trouble, connection};
use crate::backends::redis::{sentinels, survey};
use crate::error::{Error, ErrorKind, Result};

/// After so long without an answer somebody else may have become master.
const SUSPICIOUS: Duration = Duration::from_millis(100);
/// Servers are not asked who is master more often than this.
const SURVEY_EVERY: Duration = Duration::from_millis(50);
/// First pause before trying again.
const FIRST_PAUSE: Duration = Duration::from_millis(5);
/// Longest pause before trying again.
const LONGEST_PAUSE: Duration = Duration::from_millis(100);
/// Most servers that are remembered.
const MOST_LINKS: usize = 1024;

/// Everything that is known of the servers.
pub(crate) struct Client {
    pub(crate) target: Arc<Target>,
    pub(crate) config: Arc<RedisConfig>,
    /// It is a cluster, as the address says or as was found out.
    is_cluster: Once,
    map: RwLock<Arc<Map>>,
    links: Mutex<HashMap<Node, Arc<Link>>>,
    /// When servers were last asked who is master.
    surveyed: tokio::sync::Mutex<Option<Instant>>,
    /// What sentinels have said.
    pub(crate) elected: sentinels::Elections,
    lonely: Once,
    /// Something is elsewhere by now.
    pub(crate) moved: Notify,
    pub(crate) closed: CancellationToken,
}

/// What to do to which mailbox.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Call {
    pub(crate) slot: u16,
    pub(crate) confirm: Confirm,
    /// A second effect cannot be told from the first.
    pub(crate) is_repeatable: bool,
    /// How long to go on trying.
    pub(crate) patience: Duration,
}

impl Client {
    pub(crate) fn new(target: Target, config: Arc<RedisConfig>) -> Self {
        Self {
            target: Arc::new(target),
            config,
            is_cluster: Once::default(),
            map: RwLock::default(),
            links: Mutex::default(),
            surveyed: tokio::sync::Mutex::default(),
            elected: sentinels::Elections::default(),
            lonely: Once::default(),
            moved: Notify::new(),
            closed: CancellationToken::new(),
        }
    }

    /// The server that has a slot, by what is known.
    pub(crate) fn owner(&self, slot: u16) -> Option<Owner> {
        self.map.read().owner(slot).cloned()
    }

    /// All servers that have slots.
    pub(crate) fn owners(&self) -> Vec<Node> {
        self.map.read().owners().into_iter().map(|owner| owner.node.clone()).collect()
    }

    pub(crate) fn link(&self, node: &Node) -> Arc<Link> {
        let mut links = self.links.lock();
        if let Some(link) = links.get(node) {
            return Arc::clone(link);
        }
        if links.len() >= MOST_LINKS {
            let map = self.map.read();
            let owners = map.owners();
            links.retain(|known, _| owners.iter().any(|owner| owner.node == *known));
        }
        let (target, config) = (Arc::clone(&self.target), Arc::clone(&self.config));
        let link = Arc::new(Link::new(node.clone(), target, config));
        links.insert(node.clone(), Arc::clone(&link));
        link
    }

    /// Makes a call. `order` gives what to say; it is told how long ago an earlier try of the same
    /// call, which may have taken effect, was made.
    ///
    /// # Errors
    /// `Closed`; `Connection` if patience is over, or if the outcome is in doubt and must not be
    /// tried again; what the server refused.
    pub(crate) async fn call(
        &self,
        call: Call,
        order: impl Fn(Option<Duration>) -> Order + Send,
    ) -> Result<Value> {
        tokio::select! {
            biased;
            () = self.closed.cancelled() => Err(self.is_closed()),
            answer = self.try_until_done(call, order) => answer,
        }
    }

    pub(crate) fn is_closed(&self) -> Error {
        let message = "the redis backend is closed; a call that was under way may have been done";
        Error::new(ErrorKind::Closed, message)
    }

    async fn try_until_done(
        &self,
        call: Call,
        order: impl Fn(Option<Duration>) -> Order + Send,
    ) -> Result<Value> {
        let started = Instant::now();
        let (mut doubtful_since, mut redirected, mut pause) = (None, None, FIRST_PAUSE);
        let mut redirections = 0_u32;
        let mut made = Arc::new(order(None));
        loop {
            let tried = Instant::now();
            let trouble = match self.try_once(call, &made, redirected.take()).await {
                Ok(answer) => return Ok(answer),
                Err(trouble) => trouble,
            };
            tracing::debug!(?trouble, slot = call.slot, "redis");
            match &trouble {
                Trouble::Elsewhere(node, asking) => {
                    redirected = Some((node.clone(), *asking));
                    redirections += 1;
                }
                Trouble::NotNow(_) => redirections = 0,
                Trouble::InDoubt(_) if call.is_repeatable => {
                    (doubtful_since, redirections) = (doubtful_since.or(Some(tried)), 0);
                }
                Trouble::InDoubt(_) | Trouble::Refused(_) | Trouble::UnknownScript => {
                    return Err(trouble.into_error());
                }
            }
            if started.elapsed() + pause > call.patience {
                return Err(trouble.into_error());
            }
            if redirections != 1 {
                // A pause, for everybody who is in the same trouble not to come back at once.
                let jitter = u32::from(crate::home::random::<1>()[0] % 64);
                tokio::time::sleep(pause + pause * jitter / 128).await;
                pause = (pause * 2).min(LONGEST_PAUSE);
            }
            if !matches!(redirected, Some((_, true))) {
                self.survey(tried).await;
            }
            if let Some(since) = doubtful_since {
                let since: Instant = since;
                made = Arc::new(order(Some(since.elapsed())));
            }
        }
    }

    async fn try_once(
        &self,
        call: Call,
        order: &Arc<Order>,
        redirected: Option<(Node, bool)>,
    ) -> Result<Value, Trouble> {
        let asking = redirected.as_ref().is_some_and(|(_, asking)| *asking);
        // Whoever was sent there knows better than what is known here.
        let is_sent = redirected.is_some();
        let link = match redirected {
            Some((node, _)) => self.link(&node),
            None => match self.owner(call.slot) {
                Some(owner) => self.link(&owner.node),
                None => {
                    let message = "redis: no server is known to have this mailbox".to_owned();
                    return Err(Trouble::NotNow(connection(message)));
                }
            },
        };
        let answer = link.call(order, asking, call.confirm);
        tokio::pin!(answer);
        let started = Instant::now();
        loop {
            let waiting_since = Instant::now();
            let look_around = async {
                tokio::time::sleep(SUSPICIOUS).await;
                self.survey(waiting_since).await;
            };
            tokio::select! {
                answer = &mut answer => return answer,
                () = look_around => {}
            }
            let owner = self.owner(call.slot);
            let is_replaced = !is_sent && owner.is_none_or(|owner| owner.node != *link.node());
            if is_replaced || started.elapsed() >= self.config.response_timeout {
                link.hang_up();
                return Err(Trouble::silent(link.node()));
            }
        }
    }

    /// Asks servers who has what, unless somebody has since `evidence`. What nobody answers stays
    /// as it was.
    pub(crate) async fn survey(&self, evidence: Instant) {
        // Whoever has it may be a call that nobody polls any more.
        let mut surveyed = tokio::time::timeout(HELD_UP, self.surveyed.lock()).await.ok();
        let is_recent = |at: Instant| at >= evidence || at.elapsed() < SURVEY_EVERY;
        if surveyed.as_ref().is_some_and(|last| last.is_some_and(is_recent)) {
            return;
        }
        let started = Instant::now();
        if let Err(trouble) = self.look_around().await {
            tracing::debug!(?trouble, "redis: nobody says who is master");
        }
        if let Some(last) = &mut surveyed {
            **last = Some(started);
        }
    }

    /// Finds out who has what.
    ///
    /// # Errors
    /// What the last of those who were asked said.
    pub(crate) async fn look_around(&self) -> Result<(), Trouble> {
        let map = match &self.target.kind {
            Kind::Sentinel(master) => sentinels::ask_sentinels(self, master).await?,
            Kind::Cluster => self.ask_cluster().await?,
            Kind::Single if self.is_cluster.is_set() => self.ask_cluster().await?,
            Kind::Single => match survey::ask_single(self, &self.target.nodes[0]).await? {
                Some(owner) => Map::whole(owner),
                None => {
                    self.is_cluster.first();
                    self.ask_cluster().await?
                }
            },
        };
        self.adopt(map);
        Ok(())
    }

    fn adopt(&self, map: Map) {
        for owner in map.owners() {
            let replicas = self.config.replicas.unwrap_or(owner.replicas);
            if replicas == 0 && self.confirms_by_replicas() && self.lonely.first() {
                tracing::warn!(node = %owner.node, "redis: a master has no replica: a send waits \
                                                    for none there");
            }
            self.link(&owner.node).replicas().set(replicas, &owner.named);
        }
        let known = std::mem::replace(&mut *self.map.write(), Arc::new(map.clone()));
        let is_changed = *known != Map::default() && *known != map;
        if is_changed {
            self.moved.notify_one();
        }
    }

    fn confirms_by_replicas(&self) -> bool {
        self.config.durability == crate::durability::Durability::Replicated
    }

    async fn ask_cluster(&self) -> Result<Map, Trouble> {
        let mut nodes = self.owners();
        nodes.extend(self.target.nodes.iter().cloned());
        let mut asked = JoinSet::new();
        for link in survey::some_of(nodes).iter().map(|node| self.link(node)) {
            asked.spawn(async move { survey::ask_node(&link).await });
        }
        let views = survey::gather(asked).await?;
        let map = Map::of_cluster(&views);
        if map.owners().is_empty() {
            let message = "redis: the cluster has no slots".to_owned();
            return Err(Trouble::NotNow(connection(message)));
        }
        Ok(map)
    }
}

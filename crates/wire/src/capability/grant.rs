//! What a verified capability allows. A caveat can only take away: adding one to a capability never
//! allows what was not allowed before.

use std::net::IpAddr;

use super::caveat::Caveat;
use super::ids::Tenant;
use super::networks::{LOOPBACK, Networks};
use super::ops::{Op, Ops};
use super::rate::Rate;
use super::refused::Refused;
use super::timestamp::Timestamp;
use super::topics::Topics;

/// How far ahead the clock of who set a beginning may be.
pub const NBF_SKEW_MS: i64 = 30_000;

/// What a capability allows: all its caveats together.
#[derive(Clone, Debug)]
pub struct Grant {
    ops: Ops,
    // Of these four, each one has to hold.
    topics: Vec<Topics>,
    networks: Vec<Networks>,
    tenants: Vec<Tenant>,
    rates: Vec<Rate>,
    expires: Option<Timestamp>,
    last_expiry: Option<Timestamp>,
    not_before: Option<Timestamp>,
    max_bytes: Option<u64>,
    quotas: Quotas,
}

/// How much may be done with a token id in all. Who counts is the service.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Quotas {
    /// Operations.
    pub ops: Option<u64>,
    /// Bytes.
    pub bytes: Option<u64>,
}

/// Something somebody wants to do.
#[derive(Clone, Copy, Debug)]
pub struct Use<'a> {
    /// What.
    pub op: Op,
    /// To which topic; nothing if it concerns all of them, or those to be.
    pub topic: Option<&'a str>,
    /// When, in milliseconds of Unix time.
    pub now_ms: i64,
    /// From where; nothing if over a Unix socket of this machine.
    pub ip: Option<IpAddr>,
    /// How large the request is.
    pub bytes: u64,
    /// Whose topic it is, if tenants are told apart.
    pub tenant: Option<&'a str>,
}

impl Grant {
    /// Puts caveats together; one that could not be read is given as nothing.
    pub(super) fn of(caveats: impl IntoIterator<Item = Option<Caveat>>) -> Result<Self, Refused> {
        let mut grant = Self {
            ops: Ops::all(),
            topics: Vec::new(),
            networks: Vec::new(),
            tenants: Vec::new(),
            rates: Vec::new(),
            expires: None,
            last_expiry: None,
            not_before: None,
            max_bytes: None,
            quotas: Quotas::default(),
        };
        for caveat in caveats {
            grant.narrow(caveat.ok_or(Refused::Caveat)?);
        }
        // No caveats at all is a case of this.
        let stays_here = grant.networks.iter().any(Networks::is_loopback);
        if grant.expires.is_some() || stays_here { Ok(grant) } else { Err(Refused::Caveat) }
    }

    /// Whether it may be done.
    ///
    /// # Errors
    /// The first caveat that does not hold; those about the capability itself come first.
    pub fn check(&self, wanted: &Use<'_>) -> Result<(), Refused> {
        if self.is_expired(wanted.now_ms) {
            return Err(Refused::Expired);
        }
        self.check_but_expiry(wanted)
    }

    /// Whether it may be done, if it does not matter that the capability has expired: what was
    /// received before can still be settled.
    ///
    /// # Errors
    /// The first caveat that does not hold.
    pub fn check_but_expiry(&self, wanted: &Use<'_>) -> Result<(), Refused> {
        let latest = wanted.now_ms.saturating_add(NBF_SKEW_MS);
        if self.not_before.is_some_and(|begin| latest < begin.unix_ms()) {
            return Err(Refused::NotYet);
        }
        if !self.tenants.iter().all(|tenant| Some(tenant.as_str()) == wanted.tenant) {
            return Err(Refused::Tenant);
        }
        if !self.allows_peer(wanted.ip) {
            return Err(Refused::Ip);
        }
        if !self.ops.contains(wanted.op) {
            return Err(Refused::Op);
        }
        let allows_topic = self.topics.iter().all(|topics| match wanted.topic {
            Some(topic) => topics.contains(topic),
            None => topics.is_all(),
        });
        if !allows_topic {
            return Err(Refused::Topic);
        }
        if self.max_bytes.is_some_and(|most| wanted.bytes > most) {
            return Err(Refused::Bytes);
        }
        Ok(())
    }

    /// Whether its time is over.
    #[must_use]
    pub fn is_expired(&self, now_ms: i64) -> bool {
        self.expires.is_some_and(|end| now_ms >= end.unix_ms())
    }

    /// When its time is over; never, if nothing.
    #[must_use]
    pub fn expires_at(&self) -> Option<Timestamp> {
        self.expires
    }

    /// The latest of its expiries: that of what it was narrowed from.
    #[must_use]
    pub fn last_expiry(&self) -> Option<Timestamp> {
        self.last_expiry
    }

    /// When its time begins.
    #[must_use]
    pub fn begins_at(&self) -> Option<Timestamp> {
        self.not_before
    }

    /// Which operations it allows; none is possible.
    #[must_use]
    pub fn ops(&self) -> Ops {
        self.ops
    }

    /// The lists of topics of which each has to contain the topic; every topic, if there is none.
    #[must_use]
    pub fn topics(&self) -> &[Topics] {
        &self.topics
    }

    /// The lists of networks of which each has to contain the peer; everywhere, if there is none.
    #[must_use]
    pub fn networks(&self) -> &[Networks] {
        &self.networks
    }

    /// Whose it is. If its caveats name several, nothing is allowed.
    #[must_use]
    pub fn tenant(&self) -> Option<&Tenant> {
        self.tenants.first()
    }

    /// The rates it has to keep, each of them.
    #[must_use]
    pub fn rates(&self) -> &[Rate] {
        &self.rates
    }

    /// How much may be done with it in all.
    #[must_use]
    pub fn quotas(&self) -> Quotas {
        self.quotas
    }

    /// How large a request may be.
    #[must_use]
    pub fn max_bytes(&self) -> Option<u64> {
        self.max_bytes
    }

    fn narrow(&mut self, caveat: Caveat) {
        match caveat {
            Caveat::Ops(ops) => self.ops = self.ops.intersection(ops),
            Caveat::Topics(topics) => keep(&mut self.topics, topics),
            Caveat::Expires(end) => {
                lower(&mut self.expires, end);
                self.last_expiry = self.last_expiry.max(Some(end));
            }
            // Nothing is less than any moment, so the later one stays.
            Caveat::NotBefore(begin) => self.not_before = self.not_before.max(Some(begin)),
            Caveat::MaxBytes(most) => lower(&mut self.max_bytes, most),
            Caveat::Rate(rate) => keep(&mut self.rates, rate),
            Caveat::QuotaOps(most) => lower(&mut self.quotas.ops, most),
            Caveat::QuotaBytes(most) => lower(&mut self.quotas.bytes, most),
            Caveat::Networks(networks) => keep(&mut self.networks, networks),
            Caveat::Tenant(tenant) => keep(&mut self.tenants, tenant),
        }
    }

    fn allows_peer(&self, ip: Option<IpAddr>) -> bool {
        let is_in_each = |ip| self.networks.iter().all(|networks| networks.contains(ip));
        match ip {
            Some(ip) => is_in_each(ip),
            None => LOOPBACK.into_iter().any(is_in_each),
        }
    }
}

fn lower<T: Ord>(bound: &mut Option<T>, other: T) {
    if bound.as_ref().is_none_or(|bound| other < *bound) {
        *bound = Some(other);
    }
}

/// At most as many as there are caveats.
fn keep<T: PartialEq>(all: &mut Vec<T>, one: T) {
    if !all.contains(&one) {
        all.push(one);
    }
}

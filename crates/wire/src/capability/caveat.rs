//! One caveat, and the text it is written as. Reading what was written gives the same caveat;
//! anything outside the grammar of the [module](super) is refused.

use std::fmt;
use std::str::FromStr;

use super::ids::Tenant;
use super::networks::Networks;
use super::number::number;
use super::ops::Ops;
use super::rate::Rate;
use super::timestamp::Timestamp;
use super::topics::Topics;

/// One thing that has to hold.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Caveat {
    /// `op`: only these operations.
    Ops(Ops),
    /// `topic`: only these topics.
    Topics(Topics),
    /// `exp`: only earlier than this.
    Expires(Timestamp),
    /// `nbf`: not before this.
    NotBefore(Timestamp),
    /// `max_bytes`: no request larger than this.
    MaxBytes(u64),
    /// `rate`: no more often than this.
    Rate(Rate),
    /// `quota_ops`: no more operations than this, ever.
    QuotaOps(u64),
    /// `quota_bytes`: no more bytes than this, ever.
    QuotaBytes(u64),
    /// `ip`: only from these addresses.
    Networks(Networks),
    /// `tenant`: only this tenant.
    Tenant(Tenant),
}

/// What is wrong with a text that should be a caveat.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum BadCaveat {
    /// It is not `key = value`.
    Shape,
    /// There is no such key.
    Key,
    /// No list of operations.
    Ops,
    /// No list of topics.
    Topics,
    /// No moment.
    Timestamp,
    /// No number.
    Number,
    /// No rate.
    Rate,
    /// No list of networks.
    Networks,
    /// No tenant.
    Tenant,
}

impl FromStr for Caveat {
    type Err = BadCaveat;

    fn from_str(text: &str) -> Result<Self, BadCaveat> {
        if !text.is_ascii() {
            return Err(BadCaveat::Shape);
        }
        let (key, value) = text.split_once(" = ").ok_or(BadCaveat::Shape)?;
        let whole = || number(value).ok_or(BadCaveat::Number);
        Ok(match key {
            "op" => Self::Ops(value.parse()?),
            "topic" => Self::Topics(value.parse()?),
            "exp" => Self::Expires(value.parse()?),
            "nbf" => Self::NotBefore(value.parse()?),
            "max_bytes" => Self::MaxBytes(whole()?),
            "rate" => Self::Rate(value.parse()?),
            "quota_ops" => Self::QuotaOps(whole()?),
            "quota_bytes" => Self::QuotaBytes(whole()?),
            "ip" => Self::Networks(value.parse()?),
            "tenant" => Self::Tenant(value.parse().map_err(|_| BadCaveat::Tenant)?),
            _ => return Err(BadCaveat::Key),
        })
    }
}

impl fmt::Display for Caveat {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Ops(ops) => write!(f, "op = {ops}"),
            Self::Topics(topics) => write!(f, "topic = {topics}"),
            Self::Expires(moment) => write!(f, "exp = {moment}"),
            Self::NotBefore(moment) => write!(f, "nbf = {moment}"),
            Self::MaxBytes(bytes) => write!(f, "max_bytes = {bytes}"),
            Self::Rate(rate) => write!(f, "rate = {rate}"),
            Self::QuotaOps(ops) => write!(f, "quota_ops = {ops}"),
            Self::QuotaBytes(bytes) => write!(f, "quota_bytes = {bytes}"),
            Self::Networks(networks) => write!(f, "ip = {networks}"),
            Self::Tenant(tenant) => write!(f, "tenant = {tenant}"),
        }
    }
}

impl fmt::Display for BadCaveat {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Shape => "a caveat is written `key = value`, in ASCII",
            Self::Key => {
                "a caveat is one of op, topic, exp, nbf, max_bytes, rate, quota_ops, quota_bytes, \
                 ip, tenant"
            }
            Self::Ops => "operations are send, recv, ack, nack, admin, separated by commas",
            Self::Topics => "topics are names or prefixes like `jobs.*`, separated by commas",
            Self::Timestamp => "a moment is written like 2030-01-01T00:00:00Z",
            Self::Number => "a number is decimal, without sign or leading zeros",
            Self::Rate => "a rate is written like 100/s, 100/m or 100/h",
            Self::Networks => "networks are written like 10.0.0.0/8 or ::1, separated by commas",
            Self::Tenant => "a tenant is 1 to 64 of A-Z, a-z, 0-9, _ and -",
        })
    }
}

impl std::error::Error for BadCaveat {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_kind_is_read_and_written_the_same() {
        for text in [
            "op = send,recv,ack,nack,admin",
            "topic = jobs,tenant-a:*",
            "topic = *",
            "exp = 2030-01-01T00:00:00Z",
            "nbf = 2029-12-31T23:59:59.500Z",
            "max_bytes = 65536",
            "rate = 100/s",
            "quota_ops = 0",
            "quota_bytes = 18446744073709551615",
            "ip = 10.0.0.0/8,::1/128",
            "tenant = a",
        ] {
            assert_eq!(text.parse::<Caveat>().unwrap().to_string(), text);
        }
    }

    #[test]
    fn what_is_not_in_the_grammar_is_refused() {
        for (text, why) in [
            ("", BadCaveat::Shape),
            ("op", BadCaveat::Shape),
            ("op=send", BadCaveat::Shape),
            ("op =send", BadCaveat::Shape),
            ("op= send", BadCaveat::Shape),
            ("op = ", BadCaveat::Ops),
            ("op =  send", BadCaveat::Ops),
            ("op  = send", BadCaveat::Key),
            (" op = send", BadCaveat::Key),
            ("op = send ", BadCaveat::Ops),
            ("op = send\n", BadCaveat::Ops),
            ("op = send = recv", BadCaveat::Ops),
            ("OP = send", BadCaveat::Key),
            ("ops = send", BadCaveat::Key),
            ("method = POST", BadCaveat::Key),
            (" = ", BadCaveat::Key),
            ("topic = jöbs", BadCaveat::Shape),
            ("topic\u{a0}= jobs", BadCaveat::Shape),
            ("max_bytes = 1k", BadCaveat::Number),
            ("quota_ops = -1", BadCaveat::Number),
            ("quota_bytes = 007", BadCaveat::Number),
            ("exp = tomorrow", BadCaveat::Timestamp),
            ("rate = 1/d", BadCaveat::Rate),
            ("ip = 10.0.0.1/8", BadCaveat::Networks),
            ("tenant = a,b", BadCaveat::Tenant),
            ("tenant = *", BadCaveat::Tenant),
        ] {
            assert_eq!(text.parse::<Caveat>(), Err(why), "{text:?}");
        }
    }
}

//! `mailbox cap`: capabilities, made, narrowed, looked at and taken back. Invariant: one is printed
//! only where it was asked for, and never part of an error.

use std::io::{self, Read};
use std::str::FromStr;

use mailbox::{Error, ErrorKind, Result, Timestamp};
use mailbox_wire::capability::{self, Capability, Caveat, TokenId};
use mailbox_wire::json::{MintRequest, RevokeRequest, RotateRequest};
use serde::Serialize;
use zeroize::Zeroizing;

use crate::args::{Attenuate, Cap, CapCommand, Caveats, Inspect, Mint, Revoke, Rotate};
use crate::exit::Outcome;
use crate::{local, output};

/// Longest text that is read as a capability.
const MOST: u64 = 16 * 1024;

pub(super) async fn run(args: &Cap) -> Result<Outcome> {
    match &args.command {
        CapCommand::Mint(args) => mint(args).await?,
        CapCommand::Attenuate(args) => attenuate(args)?,
        CapCommand::Inspect(args) => inspect(args)?,
        CapCommand::Revoke(args) => revoke(args).await?,
        CapCommand::Rotate(args) => rotate(args).await?,
    }
    Ok(Outcome::Done)
}

async fn mint(args: &Mint) -> Result<()> {
    // Read here first: what is wrong is said in words that fit the flags.
    read_caveat("--op", &format!("op = {}", args.ops.join(",")))?;
    let caveats = caveats(&args.caveats)?;
    let mut request = MintRequest::default();
    request.ops.clone_from(&args.ops);
    request.topics.clone_from(&args.caveats.topics);
    let is_other = |caveat: &&Caveat| !matches!(caveat, Caveat::Topics(_));
    request.caveats = caveats.iter().filter(is_other).map(ToString::to_string).collect();
    request.ttl_s = args.ttl.map(|ttl| ttl.as_secs());
    if args.ttl.is_some_and(|ttl| ttl.subsec_nanos() > 0) {
        return Err(invalid("--ttl: whole seconds"));
    }
    let service = local::service().await?;
    let minted = service.mint(&request).await?;
    if args.json {
        return output::print_json(&minted);
    }
    print_token(&minted.capability)
}

fn attenuate(args: &Attenuate) -> Result<()> {
    let mut caveats = caveats(&args.caveats)?;
    if !args.ops.is_empty() {
        caveats.insert(0, read_caveat("--op", &format!("op = {}", args.ops.join(",")))?);
    }
    if let Some(exp) = &args.exp {
        caveats.push(read_caveat("--exp", &format!("exp = {exp}"))?);
    }
    if let Some(ttl) = args.ttl {
        let ms = Timestamp::now().after(ttl).as_unix_millis();
        let until = capability::Timestamp::from_unix_ms(ms);
        caveats.push(Caveat::Expires(until.ok_or_else(|| invalid("--ttl: too long"))?));
    }
    if caveats.is_empty() {
        return Err(invalid("say what it is to be narrowed to: --op, --topic, --ttl, ..."));
    }
    let mut narrowed = capability_of(args.token.as_deref())?;
    for caveat in &caveats {
        let next = narrowed.attenuate(caveat);
        narrowed = next.map_err(|error| invalid(&error.to_string()))?;
    }
    print_token(&Zeroizing::new(narrowed.encode()))
}

/// What `inspect --json` prints.
#[derive(Serialize)]
struct Inspected {
    token_id: String,
    kid: String,
    caveats: Vec<String>,
    expires_at: Option<String>,
    expired: bool,
    /// A caveat that no service understands: it is refused everywhere.
    unknown: Vec<String>,
}

fn inspect(args: &Inspect) -> Result<()> {
    let capability = capability_of(args.token.as_deref())?;
    let caveats: Vec<String> = capability.caveat_texts().collect();
    let read: Vec<Result<Caveat, _>> = caveats.iter().map(|text| Caveat::from_str(text)).collect();
    let expiry = read.iter().filter_map(|caveat| match caveat {
        Ok(Caveat::Expires(at)) => Some(*at),
        _ => None,
    });
    let expiry = expiry.min();
    let unknown = caveats.iter().zip(&read).filter(|(_, read)| read.is_err());
    let unknown: Vec<String> = unknown.map(|(text, _)| text.clone()).collect();
    let now = Timestamp::now().as_unix_millis();
    let inspected = Inspected {
        token_id: capability.token_id().to_string(),
        kid: capability.kid().to_string(),
        expires_at: expiry.map(|at| at.to_string()),
        expired: expiry.is_some_and(|at| at.unix_ms() <= now),
        caveats,
        unknown,
    };
    if args.json {
        return output::print_json(&inspected);
    }
    output::print(&described(&inspected))
}

fn described(it: &Inspected) -> String {
    let mut text = format!("token id  {}\nroot key  {}\n", it.token_id, it.kid);
    for caveat in &it.caveats {
        let note =
            if it.unknown.contains(caveat) { "   (unknown: refused everywhere)" } else { "" };
        text.push_str(&format!("caveat    {caveat}{note}\n"));
    }
    text.push_str(match (&it.expires_at, it.expired) {
        (Some(_), true) => "expired\n",
        (Some(_), false) => "not expired\n",
        (None, _) => "never expires\n",
    });
    text
}

async fn revoke(args: &Revoke) -> Result<()> {
    let given = match args.token_id.as_str() {
        "-" => stdin()?,
        text => Zeroizing::new(text.to_owned()),
    };
    let mut request = RevokeRequest::default();
    // A capability is longer than any id.
    match TokenId::from_str(&given) {
        Ok(id) => request.token_id = Some(id.to_string()),
        Err(_) => request.capability = Some(decoded(&given)?.encode()),
    }
    let revoked = local::service().await?.revoke(&request).await?;
    if args.json {
        return output::print_json(&revoked);
    }
    // One that was never made is refused just as well: so a misspelt id looks like a success.
    let id = revoked.token_id;
    output::say(&format!("revoked: {id} is refused from now on, if there is such a capability"));
    Ok(())
}

async fn rotate(args: &Rotate) -> Result<()> {
    let request = RotateRequest { grace_s: args.grace.map(|grace| grace.as_secs()) };
    let rotated = local::service().await?.rotate(&request).await?;
    if args.json {
        return output::print_json(&rotated);
    }
    let until = rotated.previous_until.map(|until| format!("; the old one is good until {until}"));
    let until = until.unwrap_or_else(|| "; the old one is worthless".to_owned());
    output::say(&format!("the root key is {} now{until}", rotated.kid));
    if let Some(capability) = rotated.operator_capability {
        output::say(&format!("  try    export MAILBOX_CAP={capability}"));
    }
    Ok(())
}

/// All but operations and expiry, which are said in more ways than one.
fn caveats(args: &Caveats) -> Result<Vec<Caveat>> {
    let topics = (!args.topics.is_empty()).then(|| args.topics.join(","));
    let said = [
        ("--topic", "topic", topics),
        ("--rate", "rate", args.rate.clone()),
        ("--max-bytes", "max_bytes", args.max_bytes.map(|it| it.to_string())),
        ("--quota-ops", "quota_ops", args.quota_ops.map(|it| it.to_string())),
        ("--quota-bytes", "quota_bytes", args.quota_bytes.map(|it| it.to_string())),
        ("--ip", "ip", args.ip.clone()),
        ("--tenant", "tenant", args.tenant.clone()),
        ("--nbf", "nbf", args.nbf.clone()),
    ];
    let mut caveats = Vec::new();
    for (flag, key, value) in said {
        if let Some(value) = value {
            caveats.push(read_caveat(flag, &format!("{key} = {value}"))?);
        }
    }
    for text in &args.others {
        caveats.push(read_caveat("--caveat", text)?);
    }
    Ok(caveats)
}

fn read_caveat(flag: &str, text: &str) -> Result<Caveat> {
    text.parse().map_err(|error| invalid(&format!("{flag}: {error}")))
}

fn capability_of(given: Option<&str>) -> Result<Capability> {
    match given {
        None | Some("-") => decoded(&stdin()?),
        Some(text) => decoded(text),
    }
}

fn decoded(text: &str) -> Result<Capability> {
    Capability::decode(text.trim()).map_err(|_| invalid("that is no capability"))
}

fn stdin() -> Result<Zeroizing<String>> {
    let mut text = Zeroizing::new(String::with_capacity(MOST as usize));
    io::stdin().take(MOST).read_to_string(&mut text).map_err(|error| {
        Error::new(ErrorKind::InvalidParameter, "cannot read stdin").with_source(error)
    })?;
    Ok(Zeroizing::new(text.trim().to_owned()))
}

fn print_token(token: &str) -> Result<()> {
    output::write(format!("{token}\n").as_bytes()).map(|_| ())
}

fn invalid(message: &str) -> Error {
    Error::new(ErrorKind::InvalidParameter, message)
}

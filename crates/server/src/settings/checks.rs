//! Whether settings fit together.

use std::net::{IpAddr, SocketAddr};

use mailbox::{Error, ErrorKind, Result};

use super::{Key, Settings};

pub(super) fn check(settings: &Settings) -> Result<()> {
    profile(settings)?;
    order(settings, Key::VisibilityMin, Key::VisibilityDefault)?;
    order(settings, Key::BackoffBase, Key::BackoffMax)?;
    // A stream is a connection that is idle between signs of life.
    order(settings, Key::Heartbeat, Key::IdleTimeout)?;
    order(settings, Key::MaxBody, Key::MaxBodies)?;
    retention(settings)?;
    tls(settings)?;
    traces(settings)?;
    let listen = settings.listen().map(|address| (Key::Listen, address));
    let oap = settings.oap().map(|address| (Key::Oap, address));
    for (key, address) in listen.chain(oap) {
        // Names are looked up when the service starts, and checked then.
        if let Ok(address) = address.parse::<SocketAddr>() {
            settings.check_exposure(key, address)?;
        }
    }
    ports(settings)
}

/// Each protocol needs a port of its own; but of 0, which is another one each time, there are many.
fn ports(settings: &Settings) -> Result<()> {
    if !settings.is_oap_said() {
        return Ok(());
    }
    let mut both = settings.oap().filter(|oap| settings.listen().any(|listen| listen == *oap));
    match both.find(|address| !address.ends_with(":0")) {
        None => Ok(()),
        Some(address) => {
            let why =
                format!("{address} is named by --listen as well; OAP/1 and HTTP need a port each");
            Err(refuse(settings, Key::Oap, &why))
        }
    }
}

impl Settings {
    /// Whether the service may listen there, as this setting says: where others can connect, only
    /// with TLS.
    ///
    /// # Errors
    /// `InvalidParameter`.
    pub fn check_exposure(&self, key: Key, address: SocketAddr) -> Result<()> {
        let ip: IpAddr = address.ip().to_canonical();
        if ip.is_loopback() || self.tls().is_some() || self.allows_plaintext() {
            return Ok(());
        }
        let why = format!(
            "others can connect to {address}, and without TLS they can read capabilities and \
             messages; give --tls-cert and --tls-key, or --insecure-plaintext if TLS is done \
             elsewhere"
        );
        Err(refuse(self, key, &why))
    }
}

fn traces(settings: &Settings) -> Result<()> {
    let Some((endpoint, _)) = settings.traces() else { return Ok(()) };
    let uri = endpoint.parse::<http::Uri>().ok();
    let is_good = uri.is_some_and(|uri| {
        matches!(uri.scheme_str(), Some("http" | "https")) && uri.authority().is_some()
    });
    if is_good {
        return Ok(());
    }
    Err(refuse(settings, Key::OtlpEndpoint, "write http://HOST:PORT or https://HOST:PORT"))
}

fn profile(settings: &Settings) -> Result<()> {
    let store = settings.store();
    let is_memory = store.starts_with("memory:");
    if settings.is_micronode() && !is_memory {
        let why = "the profile micronode keeps nothing anywhere: it has no store but memory:";
        return Err(refuse(settings, Key::Store, why));
    }
    if let Some(data) = settings.data()
        && settings.text(Key::Store).is_empty()
        && data.display().to_string().contains('?')
    {
        let why = "a path with a ? cannot be written as the address of a journal";
        return Err(refuse(settings, Key::Data, why));
    }
    Ok(())
}

fn order(settings: &Settings, small: Key, large: Key) -> Result<()> {
    if settings.get(small).number() <= settings.get(large).number() {
        return Ok(());
    }
    let (small_name, large_name) = (small.setting().name, large.setting().name);
    let (least, most) = (settings.get(small), settings.get(large));
    // Whoever said one of them has to change that one.
    let said = if *settings.source(small) == super::Source::Default { large } else { small };
    let why = format!("{small_name} {least} is more than {large_name} {most}");
    Err(refuse(settings, said, &why))
}

fn retention(settings: &Settings) -> Result<()> {
    if settings.is_on(Key::AllowUnboundedRetention) {
        return Ok(());
    }
    for key in [Key::RetentionAge, Key::RetentionDead] {
        if settings.time(key).is_zero() {
            let why = "to keep messages for ever, allow_unbounded_retention has to be true";
            return Err(refuse(settings, key, why));
        }
    }
    Ok(())
}

fn tls(settings: &Settings) -> Result<()> {
    let is_set = |key| !settings.text(key).is_empty();
    for (key, other) in [(Key::TlsCert, Key::TlsKey), (Key::TlsKey, Key::TlsCert)] {
        if is_set(key) && !is_set(other) {
            let why = format!("for TLS, {} has to be set as well", other.setting().name);
            return Err(refuse(settings, key, &why));
        }
    }
    Ok(())
}

fn refuse(settings: &Settings, key: Key, why: &str) -> Error {
    let (name, source) = (key.setting().name, settings.source(key));
    let message = match source {
        super::Source::Flag(flag) => format!("{flag}: {why}"),
        source => format!("{source}: {name}: {why}"),
    };
    Error::new(ErrorKind::InvalidParameter, message)
}

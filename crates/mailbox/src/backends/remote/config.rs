//! How a service is used.

use std::fmt;
use std::path::PathBuf;
use std::time::Duration;

/// How a service is used.
#[derive(Clone)]
#[non_exhaustive]
pub struct RemoteConfig {
    /// What allows it; without one every call is refused.
    pub capability: Option<String>,
    /// A file that it is in instead, which may be replaced before that one ends: it is read again
    /// when the service says that what it has is not good any more.
    pub capability_file: Option<PathBuf>,
    /// Certificates to trust, in PEM, instead of the system's.
    pub ca: Option<PathBuf>,
    /// For how long a service is tried again that cannot be reached, or says that it is stopping.
    pub patience: Duration,
    /// How long an answer may take, beside what a receive waits.
    pub timeout: Duration,
    /// Most connections that are kept for the next call, where a connection has one at a time.
    pub max_idle: usize,
    /// Connections that calls share, where one has many at a time. Receives that wait, and streams,
    /// have others beside them.
    pub connections: usize,
}

impl Default for RemoteConfig {
    fn default() -> Self {
        Self {
            capability: None,
            capability_file: None,
            ca: None,
            patience: Duration::from_secs(3),
            timeout: Duration::from_secs(30),
            max_idle: 64,
            connections: 2,
        }
    }
}

impl RemoteConfig {
    /// Uses this capability.
    #[must_use]
    pub fn with_capability(mut self, capability: impl Into<String>) -> Self {
        self.capability = Some(capability.into());
        self
    }

    /// Uses the capability in this file, whichever that is.
    #[must_use]
    pub fn with_capability_file(mut self, path: impl Into<PathBuf>) -> Self {
        self.capability_file = Some(path.into());
        self
    }

    /// Trusts the certificates in this file, and no others.
    #[must_use]
    pub fn with_ca(mut self, ca: impl Into<PathBuf>) -> Self {
        self.ca = Some(ca.into());
        self
    }

    /// Tries for this long to reach the service.
    #[must_use]
    pub fn with_patience(mut self, patience: Duration) -> Self {
        self.patience = patience;
        self
    }

    /// Lets calls share so many connections, where one has many at a time.
    #[must_use]
    pub fn with_connections(mut self, connections: usize) -> Self {
        self.connections = connections;
        self
    }

    /// Waits for an answer for this long.
    #[must_use]
    pub fn with_timeout(mut self, timeout: Duration) -> Self {
        self.timeout = timeout;
        self
    }
}

impl fmt::Debug for RemoteConfig {
    /// Whoever has the capability may use it: it does not go into logs.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RemoteConfig")
            .field("capability", &self.capability.as_ref().map(|_| "***"))
            .field("capability_file", &self.capability_file)
            .field("ca", &self.ca)
            .field("patience", &self.patience)
            .field("timeout", &self.timeout)
            .finish_non_exhaustive()
    }
}

//! For tests: one backend on two runtimes, of which only one is driven at a time.

use std::time::Duration;

use bytes::Bytes;
use futures_util::future::poll_immediate;
use tokio::runtime::{Builder, Runtime};

use super::{RemoteBackend, RemoteConfig};
use crate::backend::{Backend, Outgoing};
use crate::name::Name;
use crate::options::ReceiveOptions;

/// Longer than anything here takes; shorter than others wait for a receive that does not end.
const SOON: Duration = Duration::from_millis(1500);

fn runtime() -> Runtime {
    Builder::new_current_thread().enable_all().build().unwrap()
}

/// Messages of one thread went out together with those of another, over its connections, and were
/// in doubt after a minute because that one had nothing to do.
pub(super) fn holds_up_nobody(url: &str) {
    let (idle, own) = (runtime(), runtime());
    let config = RemoteConfig::default().with_capability("some-capability").with_connections(1);
    let (name, options) = (Name::parse("a").unwrap(), ReceiveOptions::default());
    let waiting = options.clone().with_wait(Duration::from_secs(60));
    let message = || vec![Outgoing::new(Bytes::from_static(b"x"))];
    let backend = idle.block_on(async {
        let backend = RemoteBackend::open_with(url, config).await.unwrap();
        assert_eq!(backend.purge(&name).await.unwrap(), 7);
        backend
    });
    let mut sending = [(); 3].map(|()| Box::pin(backend.send(&name, message())));
    let mut receiving = Box::pin(backend.receive(&name, &waiting));
    idle.block_on(async {
        for send in &mut sending {
            assert!(poll_immediate(send).await.is_none());
        }
        assert!(poll_immediate(&mut receiving).await.is_none());
    });
    drop(receiving);
    own.block_on(async {
        for _ in 0..2 {
            let both = async { tokio::join!(backend.purge(&name), backend.send(&name, message())) };
            let (purged, sent) =
                tokio::time::timeout(SOON, both).await.expect("nobody is waited for");
            assert_eq!(purged.unwrap(), 7);
            assert!(sent.unwrap().remove(0).is_ok());
        }
    });
    // What was begun there goes on there.
    idle.block_on(async {
        for send in sending {
            assert!(send.await.unwrap().remove(0).is_ok());
        }
    });
}

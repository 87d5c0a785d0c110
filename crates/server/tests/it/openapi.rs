//! The OpenAPI document that is checked in is the one that the service gives.

use std::path::Path;

#[test]
fn the_document_that_is_checked_in_is_what_can_be_called() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/openapi.json");
    let made = mailbox_server::openapi();
    if std::env::var_os("UPDATE").is_some() {
        std::fs::write(&path, &made).unwrap();
    }
    let kept = std::fs::read_to_string(&path).unwrap_or_default();
    assert!(
        kept == made,
        "docs/openapi.json is not what can be called; \
         `UPDATE=1 cargo test -p mailbox-server openapi` writes it anew"
    );
}

//! The contract, on every subject: `cargo test -p mailbox-conformance --test conformance`.

use std::process::ExitCode;

fn main() -> ExitCode {
    mailbox_conformance::run::main(
        &mailbox_conformance::subjects::all(),
        &mailbox_conformance::cases::all(),
    )
}

//! Takes and acknowledges messages as fast as it goes, while others do the same, until none is
//! left; tells what it took.

use std::io::{Read, Write};
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use mailbox::{Backend, ReceiveOptions, Settlement, Verdict};

use super::{Orders, end_with_parent};
use crate::letters::mailbox_of;
use crate::race::{LEASE, Report, number_of};

/// Most messages of one receive.
const BATCH: u32 = 10;

/// Opens, waits for the start, and races.
pub(super) async fn run(orders: &Orders) -> ExitCode {
    match race(orders).await {
        Ok(()) => ExitCode::SUCCESS,
        Err(why) => {
            tell(&[Report::Failed(why)]);
            ExitCode::FAILURE
        }
    }
}

async fn race(orders: &Orders) -> Result<(), String> {
    let failed = |error: mailbox::Error| format!("{error:#}");
    let backend = orders.setup.open(&orders.dir).await.map_err(failed)?;
    backend.stats(&mailbox_of(0)).await.map_err(failed)?;
    tell(&[Report::Ready]);
    // The start is one byte; without it the parent has gone.
    let mut start = [0];
    std::io::stdin().lock().read_exact(&mut start).map_err(|error| error.to_string())?;
    end_with_parent();
    take_all(&backend).await.map_err(failed)?;
    backend.close().await.map_err(failed)
}

async fn take_all(backend: &Arc<dyn Backend>) -> mailbox::Result<()> {
    let mailbox = mailbox_of(0);
    let mut options = ReceiveOptions::default();
    options.max_messages = BATCH;
    options.visibility_timeout = LEASE;
    options.wait = Duration::from_millis(50);
    loop {
        let deliveries = backend.receive(&mailbox, &options).await?;
        if deliveries.is_empty() && backend.stats(&mailbox).await?.live() == 0 {
            return Ok(());
        }
        let (mut numbers, mut settlements) = (Vec::new(), Vec::new());
        let mut reports = Vec::new();
        for delivery in deliveries {
            let number = number_of(&delivery.letter.payload);
            let handle = delivery.receipt_handle.to_string();
            numbers.push(number);
            reports.push(match number {
                Some(number) => Report::Took { number, handle },
                None => Report::Failed(format!("message {} is not what was sent", delivery.id)),
            });
            let (receipt_handle, verdict) = (delivery.receipt_handle, Verdict::Acknowledge);
            settlements.push(Settlement { receipt_handle, verdict });
        }
        tell(&reports);
        if settlements.is_empty() {
            continue;
        }
        let results = backend.settle(&mailbox, settlements).await?;
        let reports = numbers.into_iter().zip(results).map(|(number, result)| match result {
            Ok(()) => number.map_or(Report::Ready, Report::Acked),
            Err(error) => Report::Failed(format!("acknowledging: {error:#}")),
        });
        tell(&reports.collect::<Vec<_>>());
    }
}

fn tell(reports: &[Report]) {
    let lines: String = reports.iter().map(|report| format!("{report}\n")).collect();
    let mut output = std::io::stdout().lock();
    if output.write_all(lines.as_bytes()).and_then(|()| output.flush()).is_err() {
        // Nobody listens: whatever happens from here on would be unknown.
        std::process::exit(1);
    }
}

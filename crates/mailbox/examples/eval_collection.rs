//! An evaluation run: many samples go to a worker, all results come to one mailbox of the run.
#![expect(clippy::print_stdout, reason = "an example shows what happens")]
#![expect(clippy::clone_on_ref_ptr, reason = "`Arc::clone` does not give an `Arc<dyn ..>`")]

use std::collections::BTreeMap;
use std::error::Error;
use std::sync::Arc;
use std::time::Duration;

use mailbox::main_loop::{Context, LoopOptions, MainLoop};
use mailbox::resolver::{LruResolver, MemoryFactory};
use mailbox::{Mailbox, MainLoopRequest, ReceiveOptions, Resolver, SendOptions};

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    // The worker finds reply mailboxes by name; the factory makes those that nobody has named yet.
    let resolver = Arc::new(LruResolver::new(MemoryFactory::new()));
    let requests = Mailbox::memory("requests")?.with_resolver(resolver.clone());
    let worker = MainLoop::new(requests.clone(), |text: String, _: Context| async move {
        text.parse::<u64>().map(|number| number * number)
    })
    .with_options(LoopOptions::new().with_concurrency(8))?;
    let running = tokio::spawn(worker.run());

    // What is asked, and what is expected. The last sample is a bad one.
    let mut dataset: Vec<(String, u64)> = (1..=20).map(|n: u64| (n.to_string(), n * n)).collect();
    dataset.push(("twenty-one".to_owned(), 441));

    let run = "eval-run-7";
    println!("sending {} samples, results go to {run}", dataset.len());
    let mut expected = BTreeMap::new();
    for (sample, answer) in &dataset {
        let request = MainLoopRequest::new(sample.clone());
        expected.insert(request.request_id, (sample, *answer));
        requests.send_with(request, SendOptions::new().with_reply_to(run)).await?;
    }

    // Delivery is at least once: a result may come twice, so they are kept by request.
    let results = resolver.resolve(run).await?;
    let patient = ReceiveOptions::new().with_max_messages(10).with_wait(Duration::from_secs(20));
    let mut collected = BTreeMap::new();
    while collected.len() < dataset.len() {
        let received = results.receive_with(patient.clone()).await?;
        assert!(!received.is_empty(), "no result for 20 s");
        for message in received {
            message.acknowledge().await?;
            let result = message.into_body()?;
            collected.insert(result.request_id, result.outcome);
        }
    }

    let (mut right, mut failed) = (0, 0);
    for (request_id, (sample, answer)) in &expected {
        match &collected[request_id] {
            Ok(output) if output == answer => right += 1,
            Ok(output) => println!("sample {sample}: {output} is wrong"),
            Err(failure) => {
                println!("sample {sample}: {failure}");
                failed += 1;
            }
        }
    }
    println!("{right} right, {failed} failed, {} samples", dataset.len());
    assert_eq!((right, failed), (20, 1));
    assert_eq!(resolver.stats().creations, 1);

    worker.stop_handle().stop();
    running.await?;
    Ok(())
}

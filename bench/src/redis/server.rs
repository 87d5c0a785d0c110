//! What a message costs the server, which is what all users of it share: processor time from
//! sending to acknowledging.

use mailbox_redis_servers::Node;

use crate::journal::load::Bodies;
use crate::redis::layout::Layout;
use crate::redis::ours::Ours;
use crate::redis::{BATCH, two_threads};
use crate::report::Row;

const ROUNDS: usize = 7;
/// So many that a round takes many ticks of the clock that counts processor time.
const MESSAGES: usize = 10_000;
const SHARE_OF_LAYOUT: f64 = 0.5;

/// Ten messages to each of our calls, one to each of theirs.
pub(crate) fn against_layout(node: &Node) -> Vec<Row> {
    let runtime = two_threads();
    let (ours, mut layout) = runtime.block_on(async {
        (Ours::open(node, "server").await, Layout::connect(node, "layout").await)
    });
    let (mut bodies, mut its_bodies) = (Bodies::new(), Bodies::new());
    let micros = |run: &mut dyn FnMut()| {
        let before = node.cpu_time();
        run();
        (node.cpu_time() - before).as_secs_f64() * 1e6 / MESSAGES as f64
    };
    let (mut ten, mut one, mut its) = (f64::INFINITY, f64::INFINITY, f64::INFINITY);
    for _ in 0..ROUNDS {
        for (best, batch) in [(&mut ten, BATCH), (&mut one, 1)] {
            *best = best.min(micros(&mut || {
                runtime.block_on(async {
                    for _ in 0..MESSAGES / batch {
                        ours.cycle(&mut bodies, batch).await;
                    }
                });
            }));
        }
        its = its.min(micros(&mut || {
            runtime.block_on(async {
                for _ in 0..MESSAGES / BATCH {
                    layout.cycle(|| its_bodies.next(), BATCH).await;
                }
            });
        }));
    }
    runtime.block_on(ours.close());
    let name = |batch: usize| {
        format!("redis server's processor time, {batch} to a call : layout, one to a call")
    };
    vec![
        Row::compared(name(BATCH), ten, its).in_unit("us").at_most(SHARE_OF_LAYOUT),
        Row::compared(name(1), one, its).in_unit("us"),
    ]
}

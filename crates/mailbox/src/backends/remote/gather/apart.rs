//! A request that was refused because of something in it: asked for again in smaller ones. Of the
//! first few tells each whose it was; so one that is bad costs the others a few round trips, not
//! one for each of them.

use std::collections::VecDeque;
use std::sync::Arc;

use tokio::task::JoinSet;

use super::super::Inner;
use super::{Asked, Gatherer, Lane, Together, ask, is_saturated, not_tried};
use crate::error::Error;

/// In how many requests one is asked for that was refused.
const PARTS: usize = 16;
/// How many of them are in flight at a time.
const AT_ONCE: usize = 8;

/// Asks for these, which were refused together.
pub(super) async fn ask_apart<T: Together>(
    inner: &Arc<Inner>,
    lane: &Lane,
    refused: Vec<Gatherer<T>>,
    why: &Error,
) {
    let mut parts = parts(refused);
    let mut at_once = at_once(why);
    let mut over: Option<Error> = None;
    let mut going = JoinSet::new();
    loop {
        while going.len() < at_once
            && let Some(part) = parts.pop_front()
        {
            match &over {
                // It would be the same for those who come after it.
                Some(error) => part.into_iter().for_each(|it| it.asker.tell(Err(not_tried(error)))),
                None => {
                    let (inner, lane) = (Arc::clone(inner), lane.clone());
                    going.spawn(async move { ask(&inner, &lane, part).await });
                }
            }
        }
        match going.join_next().await {
            None => return,
            // If it was cut off, those who wait learn it.
            Some(Ok(Asked::Told) | Err(_)) => {}
            Some(Ok(Asked::OfAll { error, .. })) => over = Some(error),
            Some(Ok(Asked::Refused(rest, why))) => {
                at_once = at_once.min(self::at_once(&why));
                // They are in front of the others.
                for part in self::parts(rest).into_iter().rev() {
                    parts.push_front(part);
                }
            }
        }
    }
}

/// Where there is too much already, one after the other: whoever comes after one that is too much
/// need not be tried.
fn at_once(why: &Error) -> usize {
    if is_saturated(why) { 1 } else { AT_ONCE }
}

fn parts<T: Together>(mut all: Vec<Gatherer<T>>) -> VecDeque<Vec<Gatherer<T>>> {
    let size = all.len().div_ceil(PARTS).max(1);
    let mut parts = VecDeque::with_capacity(PARTS);
    while all.len() > size {
        let rest = all.split_off(size);
        parts.push_back(std::mem::replace(&mut all, rest));
    }
    parts.push_back(all);
    parts
}

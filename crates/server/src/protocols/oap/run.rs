//! Requests that came one behind the other and are alike: they are done together. What a request
//! costs beside its message is paid once for all of them. Invariant: a run has ended before
//! anything else is begun, and before anything is waited for, so nobody waits for a run to grow.

use std::sync::Arc;
use std::task::Context;

use mailbox_wire::call::Request;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio_util::sync::CancellationToken;

use super::connection::Connection;
use super::session::Known;
use super::work::{One, ask, ask_alike, may_wait};
use crate::auth::Caller;
use crate::calls::likeness;
use crate::traces::{Call, Parent, Trace};

/// Most bytes of requests that are done together: what is behind them waits for them.
const MOST_BYTES: usize = 256 * 1024;

/// Requests that are alike, by one client; at least one.
pub(super) struct Run {
    known: Known,
    alike: Vec<Request>,
    each: Vec<One>,
    bytes: usize,
}

impl Run {
    fn takes(&self, known: &Known, request: &Request, bytes: usize, most: usize) -> bool {
        self.each.len() < most
            && self.bytes + bytes <= MOST_BYTES
            && self.known.is(known)
            && self.alike.first().and_then(likeness) == likeness(request)
    }
}

impl<S: AsyncRead + AsyncWrite + Unpin> Connection<S> {
    /// A request begins: with those before it, if it is like them.
    pub(super) fn begin(&mut self, one: One, request: Request, context: &mut Context<'_>) {
        let known = self.session.known().expect("whoever asks was just found out");
        let most = self.service.store.abilities().max_messages as usize;
        if let Some(run) = &mut self.run
            && run.takes(known, &request, one.len, most)
        {
            run.bytes += one.len;
            run.each.push(one);
            return run.alike.push(request);
        }
        let known = known.clone();
        self.end_run(context);
        // Calls that are traced have spans of their own, which say what happened in each; and where
        // each counts, what comes of one decides about the next.
        let has_its_own = self.service.traces.is_some() || known.is_metered();
        if has_its_own || likeness(&request).is_none() {
            return self.ask_one(&known, one, request, context);
        }
        let bytes = one.len;
        self.run = Some(Run { known, alike: vec![request], each: vec![one], bytes });
    }

    /// Does what has come together so far.
    pub(super) fn end_run(&mut self, context: &mut Context<'_>) {
        let Some(Run { known, mut alike, mut each, .. }) = self.run.take() else { return };
        let Some(one) = each.first() else { return };
        let Some((purpose, _)) = alike.first().and_then(likeness) else { return };
        if each.len() > 1 {
            let caller = self.session.caller(&known, one.to.corr_id());
            let service = Arc::clone(&self.service);
            self.work(ask_alike(service, each, caller, known.epoch, purpose, alike), context);
        } else if let Some((one, request)) = each.pop().zip(alike.pop()) {
            self.ask_one(&known, one, request, context);
        }
    }

    fn ask_one(&mut self, known: &Known, one: One, request: Request, context: &mut Context<'_>) {
        let corr_id = one.to.corr_id();
        let mut caller = self.session.caller(known, corr_id);
        caller.trace = self.trace(request.name(), &caller);
        let stop = may_wait(&request).then(CancellationToken::new);
        if let Some(stop) = &stop {
            self.stops.insert(corr_id, stop.clone());
        }
        let is_receive = matches!(request, Request::Receive(_));
        let service = Arc::clone(&self.service);
        let work = ask(service, one, caller, known.epoch, request, stop);
        if !self.work(work, context) && is_receive {
            // It does not wait for messages, but whoever cancels it is answered behind it.
            self.stops.entry(corr_id).or_default();
        }
    }

    /// The span of a call, if calls are traced.
    fn trace(&self, name: &'static str, caller: &Caller) -> Trace {
        let Some(traces) = &self.service.traces else { return Default::default() };
        let parent = Parent { traceparent: None, tracestate: None };
        traces.begin(Call { name: format!("OAP {name}"), corr_id: &caller.corr_id, parent })
    }
}

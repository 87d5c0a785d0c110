//! Bodies that panic when they are written or read: the trouble of one message, not of the loop
//! or the client that meets it.

use std::sync::Arc;

use mailbox::backends::memory::MemoryBackend;
use mailbox::main_loop::{
    Client, Context, FailureKind, LoopEnd, MainLoop, MainLoopRequest, MainLoopResult,
};
use mailbox::{DeadReason, Mailbox, Peek, SendOptions};
use serde::{Deserialize, Deserializer, Serialize, Serializer};

use super::guard::in_time;
use super::{on, seconds, until};

/// A word that panics when it is `unwritable` or `unreadable` and this is tried.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Touchy(String);

impl Serialize for Touchy {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        assert_ne!(self.0, "unwritable", "a defect of the body");
        self.0.serialize(serializer)
    }
}

impl<'de> Deserialize<'de> for Touchy {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let word = String::deserialize(deserializer)?;
        assert_ne!(word, "unreadable", "a defect of the body");
        Ok(Self(word))
    }
}

/// Answers plain words with touchy ones.
type Requests = Mailbox<MainLoopRequest<String>, MainLoopResult<Touchy>>;
type Replies = Mailbox<MainLoopResult<Touchy>>;

async fn touchy(word: String, _: Context) -> Result<Touchy, String> {
    Ok(Touchy(word))
}

fn call_pair(backend: &Arc<MemoryBackend>) -> (Requests, Replies) {
    (on(backend, "requests"), on(backend, "replies"))
}

#[tokio::test(start_paused = true)]
async fn an_output_that_panics_when_it_is_written_is_answered_with_an_error() {
    let (requests, replies) = call_pair(&MemoryBackend::new());
    let main_loop = MainLoop::new(requests.clone(), touchy);
    let task = tokio::spawn(main_loop.run());
    for word in ["unwritable", "calm"] {
        let options = SendOptions::new().with_reply_to(&replies);
        requests.send_with(MainLoopRequest::new(word.to_owned()), options).await.unwrap();
    }
    until(|| main_loop.health().handled + main_loop.health().failed >= 2).await;
    main_loop.stop_handle().stop();
    assert_eq!(in_time(task).await.unwrap(), LoopEnd::Stopped);
    let health = main_loop.health();
    assert_eq!((health.handled + health.failed, health.given_back, health.lease_lost), (2, 0, 0));
    assert_eq!(requests.approximate_count().await.unwrap(), 0, "neither comes again");

    let mut outcomes = Vec::new();
    while let Some(message) = replies.receive().await.unwrap().pop() {
        message.acknowledge().await.unwrap();
        outcomes.push(message.into_body().unwrap().outcome.map_err(|failure| failure.kind));
    }
    outcomes.sort_by_key(Result::is_ok);
    assert_eq!(outcomes, [Err(FailureKind::Unsendable), Ok(Touchy("calm".to_owned()))]);
}

#[tokio::test(start_paused = true)]
async fn a_request_that_panics_when_it_is_read_is_put_aside_and_the_others_are_handled() {
    let backend = MemoryBackend::new();
    let requests: Mailbox<MainLoopRequest<Touchy>, MainLoopResult<String>> =
        on(&backend, "requests");
    let replies: Mailbox<MainLoopResult<String>> = on(&backend, "replies");
    for word in ["first", "unreadable", "third"] {
        let options = SendOptions::new().with_reply_to(&replies);
        let request = MainLoopRequest::new(Touchy(word.to_owned()));
        requests.send_with(request, options).await.unwrap();
    }
    let main_loop = MainLoop::new(requests.clone(), |Touchy(word): Touchy, _: Context| async {
        Ok::<_, String>(word)
    });
    let task = tokio::spawn(main_loop.run());
    until(|| main_loop.health().handled == 2 && main_loop.health().undecodable == 1).await;
    main_loop.stop_handle().stop();
    assert_eq!(in_time(task).await.unwrap(), LoopEnd::Stopped);

    let mut words = Vec::new();
    while let Some(message) = replies.receive().await.unwrap().pop() {
        message.acknowledge().await.unwrap();
        words.push(message.into_body().unwrap().outcome.unwrap());
    }
    words.sort_unstable();
    assert_eq!(words, ["first", "third"]);
    let dead = requests.peek(Peek::Dead { after: None, limit: 10 }).await.unwrap();
    assert_eq!(dead.len(), 1);
    assert_eq!(dead[0].death().unwrap().reason, DeadReason::Decode);
}

#[tokio::test(start_paused = true)]
async fn a_reply_that_panics_when_it_is_read_does_not_end_the_client() {
    for make in [Client::private, Client::shared] {
        let (requests, replies) = call_pair(&MemoryBackend::new());
        let main_loop = MainLoop::new(requests.clone(), touchy);
        let task = tokio::spawn(main_loop.run());
        let client: Client<String, Touchy> = make(requests, replies);
        client.call("unreadable".to_owned(), seconds(5)).await.unwrap_err();
        let answer = client.call("calm".to_owned(), seconds(5)).await.unwrap();
        assert_eq!(answer, Touchy("calm".to_owned()));
        assert_eq!(client.stats().undecodable, 1);
        main_loop.stop_handle().stop();
        assert_eq!(in_time(task).await.unwrap(), LoopEnd::Stopped);
    }
}

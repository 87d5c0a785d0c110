//! Public types can go to other threads, and the futures of public methods too: compiling is the
//! test. Bodies are a type that has nothing but what the methods ask for.

use mailbox::testing::{
    Collected, CollectingMailbox, FakeMailbox, FakeResolver, ManualClock, NullMailbox,
};
use mailbox::{
    Abilities, Address, Backend, Clock, Codec, Death, Delivery, Error, Json, Letter, Mailbox,
    Message, MessageId, NackOptions, Name, Outgoing, Peek, Peeked, Raw, ReceiptHandle,
    ReceiveOptions, Record, ReplyTo, Resolver, Selection, SendOptions, Sent, Settlement, Stats,
    Timestamp, Verdict,
};

struct Body;
struct Reply;

fn shared<T: Send + Sync + 'static>() {}
fn sendable<T: Send>(future: T) {
    drop(future);
}

#[test]
fn public_types_are_send_and_sync() {
    shared::<Mailbox<Body, Reply>>();
    shared::<Message<Body, Reply>>();
    shared::<Peeked<Body, Reply>>();
    shared::<SendOptions<Reply>>();
    shared::<ReplyTo<Reply>>();
    shared::<(ReceiveOptions, NackOptions, Sent, Settlement, Stats, Verdict)>();
    shared::<(Abilities, Address, Clock, Error, Name, Timestamp)>();
    shared::<(MessageId, ReceiptHandle, Peek, Selection, Death)>();
    shared::<(Outgoing, Letter, Delivery, Record)>();
    shared::<(Json, Raw)>();
    shared::<Box<dyn Backend>>();
    shared::<Box<dyn Codec<Body>>>();
    shared::<Box<dyn Resolver<Reply>>>();
    shared::<NullMailbox<Body, Reply>>();
    shared::<CollectingMailbox<Body, Reply>>();
    shared::<Collected<Body>>();
    shared::<FakeMailbox<Body, Reply>>();
    shared::<FakeResolver<Reply>>();
    shared::<ManualClock>();
}

#[cfg(feature = "blocking")]
#[test]
fn blocking_types_are_send_and_sync() {
    shared::<mailbox::blocking::Mailbox<Body, Reply>>();
    shared::<mailbox::blocking::Message<Body, Reply>>();
}

#[test]
fn futures_of_a_mailbox_are_send() {
    let mailbox: Mailbox<Body, Reply> = Mailbox::local("futures").unwrap();
    sendable(Mailbox::<String, String>::open("memory://futures"));
    sendable(mailbox.send(Body));
    sendable(mailbox.send_with(Body, SendOptions::new()));
    sendable(mailbox.send_batch(Vec::new()));
    sendable(mailbox.receive());
    sendable(mailbox.receive_with(ReceiveOptions::new()));
    sendable(mailbox.purge());
    sendable(mailbox.approximate_count());
    sendable(mailbox.stats());
    sendable(mailbox.peek(Peek::Live { limit: 1 }));
    sendable(mailbox.redrive(Selection::All));
    sendable(mailbox.delete_dead(Selection::All));
    sendable(mailbox.configure(mailbox::Policy::default()));
    sendable(mailbox.policy());
    sendable(mailbox.settle(&ReceiptHandle::from_text("none"), Verdict::Acknowledge));
    sendable(mailbox.settle_batch(Vec::new()));
    sendable(mailbox.close());
}

#[tokio::test]
async fn futures_of_a_message_are_send() {
    let mailbox: Mailbox<Body, Reply> = Mailbox::local("futures").unwrap();
    mailbox.send(Body).await.unwrap();
    let message = mailbox.receive().await.unwrap().remove(0);
    sendable(message.acknowledge());
    sendable(message.nack());
    sendable(message.nack_in(std::time::Duration::ZERO));
    sendable(message.nack_with(NackOptions::new()));
    sendable(message.extend_visibility(std::time::Duration::ZERO));
    sendable(message.reject("no"));
    sendable(message.undo_delivery());
    sendable(message.reply(Reply));
    sendable(message.reply_mailbox());
}

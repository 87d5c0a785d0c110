//! Bodies that Python writes and JSON does not have. One such message fails alone: its bytes can be
//! had, it can be rejected, and those that came with it are delivered.

use mailbox::{DeadReason, ErrorKind, ReceiveOptions};

use super::Python;
use crate::redis::{Place, seconds};

/// Neither is a JSON text that says a number of 64 bits.
const ODD: [&str; 6] =
    ["NaN", "Infinity", "-Infinity", r#""\ud800""#, "36893488147419103232", "[1, NaN]"];

#[tokio::test]
async fn an_odd_body_is_a_decode_error_of_that_message_alone() {
    let place = Place::new().await;
    let mut python = Python::at(&place.node);
    for odd in ODD {
        for body in ["1", odd, "2"] {
            python.send(body);
        }
        let several = ReceiveOptions::new().with_max_messages(10);
        let numbers = place.jobs::<u64, ()>();
        let mut messages = numbers.receive_with(several).await.unwrap();
        assert_eq!(messages.len(), 3, "{odd}: all of a batch are delivered");
        let message = messages.remove(1);
        assert_eq!(message.body().unwrap_err().kind(), ErrorKind::Serialization, "{odd}");
        assert_eq!(&message.payload().unwrap()[..], odd.as_bytes());
        message.reject("no JSON").await.unwrap();
        for (message, body) in messages.iter().zip([1, 2]) {
            assert_eq!(*message.body().unwrap(), body);
            message.acknowledge().await.unwrap();
        }
    }
    let dead = place.jobs::<u64, ()>().dead_letters(100).await.unwrap();
    let payloads: Vec<&[u8]> = dead.iter().map(|dead| &dead.payload().unwrap()[..]).collect();
    assert_eq!(payloads, ODD.map(str::as_bytes));
    assert!(dead.iter().all(|dead| dead.death().unwrap().reason == DeadReason::Decode));
}

#[tokio::test]
async fn what_is_no_json_at_all_is_none_for_a_reader_of_any_json_either() {
    let place = Place::new().await;
    let mut python = Python::at(&place.node);
    for odd in ["NaN", "-Infinity", r#""\ud800""#, "[1, NaN]", ""] {
        python.send(odd);
        let message = place.jobs::<serde_json::Value, ()>().receive().await.unwrap().remove(0);
        assert_eq!(message.body().unwrap_err().kind(), ErrorKind::Serialization, "{odd:?}");
        message.acknowledge().await.unwrap();
    }
}

#[tokio::test]
async fn an_odd_body_comes_again_to_somebody_who_can_read_it() {
    let place = Place::new().await;
    let mut python = Python::at(&place.node);
    python.send("NaN");
    let message = place.jobs::<f64, ()>().receive().await.unwrap().remove(0);
    assert!(message.body().is_err());
    message.nack().await.unwrap();
    assert_eq!(python.receive(seconds(30)).unwrap().body.as_deref(), Some("NaN"));
}

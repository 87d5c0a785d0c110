//! Files that somebody writes where others look: given time, then set aside.

use std::fs::{self, File};
use std::io::Write;
use std::time::{Duration, Instant, SystemTime};

use super::{PATIENCE, Place, names, text};

#[tokio::test]
async fn whoever_writes_a_file_in_place_is_given_time() {
    let place = Place::new().await;
    let mut file = File::create(place.at("incoming/slow.json")).unwrap();
    file.write_all(b"{\"content\":").unwrap();
    let start = Instant::now();
    while start.elapsed() < Duration::from_millis(700) {
        assert!(place.receive_within(Duration::from_millis(50)).await.is_none());
        assert_eq!(place.stats().await.set_aside, 0);
    }
    file.write_all(b"1}").unwrap();
    let delivery = place.receive().await;
    assert_eq!((text(&delivery), delivery.delivery_count), ("1", 1));
}

#[tokio::test]
async fn a_file_that_is_never_finished_is_set_aside() {
    let place = Place::new().await;
    fs::write(place.at("incoming/half.json"), "{").unwrap();
    assert!(place.receive_now().await.is_none());
    assert_eq!(place.stats().await.set_aside, 0);
    let start = Instant::now();
    while place.stats().await.set_aside == 0 {
        assert!(place.receive_within(Duration::from_millis(100)).await.is_none());
        assert!(start.elapsed() < PATIENCE, "{:?}", names(&place.at("incoming")));
    }
    assert!(start.elapsed() > Duration::from_secs(3), "{:?}", start.elapsed());
}

#[tokio::test]
async fn a_half_of_a_file_from_the_future_is_set_aside_too() {
    let place = Place::new().await;
    let path = place.at("incoming/future.json");
    fs::write(&path, "{").unwrap();
    let file = File::options().append(true).open(&path).unwrap();
    file.set_modified(SystemTime::now() + Duration::from_secs(86_400 * 365)).unwrap();
    let start = Instant::now();
    while place.stats().await.set_aside == 0 {
        assert!(place.receive_within(Duration::from_millis(100)).await.is_none());
        // As long as any other half is given, and a little more.
        assert!(start.elapsed() < Duration::from_secs(8), "{:?}", names(&place.at("incoming")));
    }
}

#[tokio::test]
async fn a_file_that_keeps_another_name_is_set_aside() {
    let place = Place::new().await;
    let outside = place.root.path().join("outside");
    fs::write(&outside, "1").unwrap();
    fs::hard_link(&outside, place.at("incoming/linked.json")).unwrap();
    place.send("good").await;
    assert_eq!(text(&place.receive().await), "good");
    let start = Instant::now();
    while place.stats().await.set_aside == 0 {
        assert!(place.receive_within(Duration::from_millis(100)).await.is_none());
        // As long as any other half is given, and a little more.
        assert!(start.elapsed() < Duration::from_secs(9), "{:?}", names(&place.at("incoming")));
    }
    assert_eq!(fs::read(outside).unwrap(), b"1");
}

#[tokio::test]
async fn a_file_that_is_linked_to_where_it_belongs_is_delivered() {
    let place = Place::new().await;
    fs::write(place.at("incoming/.tmp/x"), "1").unwrap();
    fs::hard_link(place.at("incoming/.tmp/x"), place.at("incoming/linked.json")).unwrap();
    assert!(place.receive_now().await.is_none());
    assert_eq!(place.stats().await.set_aside, 0);
    fs::remove_file(place.at("incoming/.tmp/x")).unwrap();
    let delivery = place.receive().await;
    assert_eq!((text(&delivery), delivery.delivery_count), ("1", 1));
}

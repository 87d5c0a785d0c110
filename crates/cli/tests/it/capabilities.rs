//! Capabilities: made, used, narrowed, taken back, and their root key replaced.

use std::io::Write;
use std::process::{Command, Stdio};

use serde_json::Value;

use super::Ran;
use super::server::Home;

/// Runs a command with something on stdin.
fn feed(command: &mut Command, input: &str) -> Ran {
    let mut child = command
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    child.stdin.take().unwrap().write_all(input.as_bytes()).unwrap();
    child.wait_with_output().unwrap().into()
}

fn inspect(home: &Home, token: &str) -> Value {
    let ran = feed(&mut home.command(&["cap", "inspect", "--json"]), token);
    serde_json::from_str(&ran.stdout).unwrap_or_else(|_| panic!("{ran:?}"))
}

#[test]
fn a_capability_is_good_for_what_it_says_until_it_is_revoked_and_stays_so_after_a_restart() {
    let home = Home::new();
    let service = home.serve(&[]);
    let token = home.done(&["cap", "mint", "--op", "send,recv,ack", "--topic", "jobs*"]);
    assert!(!token.contains(char::is_whitespace), "the token alone: {token}");
    assert_eq!(home.with(&token, &["send", "jobs-a", "x"]).code, Some(0));
    assert_eq!(home.with(&token, &["send", "other", "x"]).code, Some(4));
    assert_eq!(home.with(&token, &["stats", "jobs-a"]).code, Some(4));
    assert_eq!(home.with(&token, &["receive", "jobs-a", "--ack"]).stdout, "x\n");
    let kept = home.done(&["cap", "mint", "--op", "send", "--ttl", "1h"]);
    let revoked = feed(&mut home.command(&["cap", "revoke", "-"]), &token);
    assert_eq!(revoked.code, Some(0), "{revoked:?}");
    let refused = home.with(&token, &["send", "jobs-a", "x"]);
    assert_eq!(refused.code, Some(4), "{refused:?}");
    assert!(refused.stderr.contains("revoked"), "{refused:?}");
    assert!(!service.said().contains(&token), "a token is never logged");
    service.kill();
    let _service = home.serve(&[]);
    assert_eq!(home.with(&token, &["send", "jobs-a", "x"]).code, Some(4));
    assert_eq!(home.with(&kept, &["send", "jobs-a", "x"]).code, Some(0));
    // By its id as well.
    let id = inspect(&home, &kept)["token_id"].as_str().unwrap().to_owned();
    home.done(&["cap", "revoke", &id]);
    assert_eq!(home.with(&kept, &["send", "jobs-a", "x"]).code, Some(4));
}

/// The reply was printed, and then the call failed.
#[test]
fn a_call_that_may_not_remove_its_mailbox_says_so_and_is_done() {
    let home = Home::new();
    let _service = home.serve(&[]);
    let ops = ["cap", "mint", "--op", "send,recv,ack", "--topic", "jobs,reply-*"];
    let token = home.done(&ops);
    let work = ["work", "jobs", "--max-messages", "1", "--", "tr", "a-z", "A-Z"];
    let mut worker = home.command(&work).spawn().unwrap();
    let ran = home.with(&token, &["call", "jobs", "hello", "--timeout", "20s"]);
    assert!(worker.wait().unwrap().success());
    assert_eq!((ran.code, &*ran.stdout), (Some(0), "HELLO\n"), "{ran:?}");
    let reply =
        home.done(&["list"]).lines().find(|it| it.starts_with("reply-")).unwrap().to_owned();
    let expected = format!("/{reply} stays behind: to remove it takes admin for reply-*\n");
    assert!(ran.stderr.ends_with(&expected), "{ran:?}");
}

#[test]
fn a_capability_is_narrowed_and_looked_at_without_a_service() {
    let home = Home::new();
    let service = home.serve(&[]);
    let wide = home.done(&["cap", "mint", "--op", "send,admin", "--ttl", "1h"]);
    let address = format!("{}/jobs", service.url);
    service.end();
    let narrow = &["cap", "attenuate", "-", "--op", "send", "--topic", "jobs", "--ttl", "10m"];
    let narrow = feed(&mut home.command(narrow), &wide);
    assert_eq!(narrow.code, Some(0), "{narrow:?}");
    let narrow = narrow.stdout.trim();
    let (all, less) = (inspect(&home, &wide), inspect(&home, narrow));
    assert_eq!(all["token_id"], less["token_id"]);
    assert_eq!(less["caveats"].as_array().unwrap().len(), 5, "{less}");
    assert_eq!(less["caveats"][3], "topic = jobs", "{less}");
    assert_eq!((&less["expired"], &less["unknown"]), (&false.into(), &Value::Array(vec![])));
    assert!(less["expires_at"].as_str() < all["expires_at"].as_str(), "{less}");
    let gone = &["cap", "attenuate", "--exp", "2001-01-01T00:00:00Z"];
    let gone = feed(&mut home.command(gone), &wide).stdout;
    assert_eq!(inspect(&home, &gone)["expired"], true);
    let listen = address.trim_start_matches("http://").trim_end_matches("/jobs").to_owned();
    let _service = home.serve_by(&mut home.command(&["serve", "--listen", &listen]));
    assert_eq!(home.with(narrow, &["send", "jobs", "x"]).code, Some(0));
    assert_eq!(home.with(narrow, &["send", "other", "x"]).code, Some(4));
    assert_eq!(home.with(narrow, &["count", "jobs"]).code, Some(4));
    assert_eq!(home.with(gone.trim(), &["send", "jobs", "x"]).code, Some(4));
}

#[test]
fn a_new_root_key_makes_old_capabilities_worthless_and_the_operator_gets_a_new_one() {
    let home = Home::new();
    let _service = home.serve(&[]);
    let token = home.done(&["cap", "mint", "--op", "send", "--ttl", "1h"]);
    home.done(&["cap", "rotate"]);
    assert_eq!(home.with(&token, &["send", "jobs", "x"]).code, Some(0), "within the grace");
    let rotated: Value =
        serde_json::from_str(&home.done(&["cap", "rotate", "--grace", "0", "--json"])).unwrap();
    assert!(rotated["kid"].is_string() && rotated["previous_until"].is_null(), "{rotated}");
    assert_eq!(home.with(&token, &["send", "jobs", "x"]).code, Some(4));
    home.done(&["send", "jobs", "the operator"]);
}

#[test]
fn what_is_wrong_is_said_before_anybody_is_asked_and_without_the_token() {
    let home = Home::new();
    for (arguments, words) in [
        (&["cap", "mint", "--op", "fly"][..], "--op: operations are send, recv"),
        (&["cap", "mint", "--op", "send", "--rate", "often"], "--rate: a rate is written"),
        (&["cap", "mint", "--op", "send", "--ip", "10.0.0.1/8"], "--ip: networks are"),
        (&["cap", "mint", "--op", "send", "--ttl", "1.5s"], "--ttl: whole seconds"),
        (&["cap", "mint", "--op", "send", "--caveat", "colour = red"], "--caveat: a caveat is"),
        (&["cap", "attenuate", "hunter2", "--op", "send"], "that is no capability"),
        (&["cap", "attenuate", "hunter2"], "say what it is to be narrowed to"),
        (&["cap", "inspect", "hunter2"], "that is no capability"),
        (&["cap", "revoke", "hunter2 "], "that is no capability"),
        (&["cap", "mint", "--op", "send"], "`mailbox serve` starts one"),
    ] {
        let ran = home.command(arguments).env("MAILBOX_URL", "http://127.0.0.1:1").output();
        let ran: Ran = ran.unwrap().into();
        assert!(ran.code == Some(2) || words.contains("serve"), "{ran:?}");
        assert!(ran.stderr.contains(words), "{arguments:?}: {ran:?}");
        assert!(!ran.stderr.contains("hunter2"), "{ran:?}");
    }
}

#[test]
fn the_operators_capability_goes_to_its_service_and_to_nobody_else_on_this_machine() {
    use std::io::Read;

    let home = Home::new();
    let service = home.serve(&[]);
    let operator = std::fs::read_to_string(home.data().join("operator.cap")).unwrap();
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let other = format!("http://{}", listener.local_addr().unwrap());
    let heard = std::thread::spawn(move || {
        let mut heard = Vec::new();
        // Whether anybody listens, and then the call itself.
        for _ in 0..2 {
            let (mut stream, _) = listener.accept().unwrap();
            let mut head = [0; 4096];
            let len = stream.read(&mut head).unwrap();
            heard.extend_from_slice(&head[..len]);
            let answer = "HTTP/1.1 401 Unauthorized\r\ncontent-length: 0\r\n\r\n";
            let _ = stream.write_all(answer.as_bytes());
        }
        String::from_utf8(heard).unwrap()
    });
    let ran = home.run(&["stats", &format!("{other}/jobs")]);
    assert_eq!(ran.code, Some(4), "{ran:?}");
    let message =
        format!("that of the operator is for {} and {} alone", service.url, service.oap());
    assert!(ran.stderr.contains(&message), "{ran:?}");
    let heard = heard.join().unwrap();
    assert!(heard.contains("GET /v1/abilities"), "{heard}");
    assert!(!heard.contains(operator.trim()) && !heard.contains("authorization"), "{heard}");
    assert_eq!(home.run(&["stats", &format!("{}/jobs", service.url)]).code, Some(0));
}

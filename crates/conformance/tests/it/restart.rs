//! The cases that need a restart run on nothing yet that outlives its process. Here they run on a
//! stand-in, so that they are known to pass where they should and to fail where they should.

use std::sync::Arc;

use mailbox::Backend;
use mailbox::testing::ManualClock;
use mailbox_conformance::{Home, Opened, Restart, Setup, Subject, Time, cases, run, subjects};

/// A memory backend that lives on while its handles go away: as a service does when a client
/// restarts.
fn outliving() -> Subject {
    let abilities = subjects::memory().abilities;
    Subject::new("outliving", abilities, async |setup| {
        let clock = ManualClock::new();
        let backend: Arc<dyn Backend> = subjects::in_memory(setup, &clock)?;
        Ok(opened(&backend, &clock, false))
    })
    .with(|info| (info.virtual_time, info.restart) = (true, true))
}

/// A memory backend that forgets everything at every restart.
fn forgetful() -> Subject {
    let abilities = subjects::memory().abilities;
    Subject::new("forgetful", abilities, async |setup| {
        let clock = ManualClock::new();
        let backend: Arc<dyn Backend> = subjects::in_memory(setup, &clock)?;
        Ok(opened(&backend, &clock, true))
    })
    .with(|info| (info.virtual_time, info.restart) = (true, true))
}

fn opened(backend: &Arc<dyn Backend>, clock: &ManualClock, forgets: bool) -> Opened {
    let (kept, time) = (Arc::clone(backend), clock.clone());
    let restart = Restart(Box::new(move || {
        Box::pin(async move {
            let kept = match forgets {
                true => subjects::in_memory(Setup::default(), &time)? as Arc<dyn Backend>,
                false => kept,
            };
            Ok(opened(&kept, &time, forgets))
        })
    }));
    let home = Home::Backend(Arc::clone(backend));
    let time = Time::Virtual(clock.clone());
    Opened { home, time, restart: Some(restart), keep: None }
}

/// Cases that apply to a subject because it can be restarted.
fn restart_cases(subject: &Subject) -> Vec<mailbox_conformance::Case> {
    let still = subject.clone().with(|info| info.restart = false);
    let needs_restart = |case: &mailbox_conformance::Case| {
        case.applies(&subject.abilities, &subject.info).is_ok()
            && case.applies(&still.abilities, &still.info).is_err()
    };
    cases::all().into_iter().filter(needs_restart).collect()
}

#[test]
fn the_restart_cases_pass_on_what_outlives_a_restart() {
    let subject = outliving();
    let cases = restart_cases(&subject);
    let ids: Vec<&str> = cases.iter().map(|case| case.id).collect();
    for clause in ["V7", "X4"] {
        assert!(ids.contains(&clause), "{clause} has no case");
    }
    for case in cases {
        if let Err(error) = run::run(&subject, &case) {
            panic!("{} {}: {error}", case.id, case.name);
        }
    }
}

#[test]
fn the_restart_cases_fail_on_what_forgets() {
    let subject = forgetful();
    for case in restart_cases(&subject) {
        // Not this one: every backend has a secret of its own, so handles differ all the same.
        if case.name == "a_handle_is_not_given_out_again_after_a_restart" {
            continue;
        }
        assert!(run::notices(&subject, &case), "{} {} passes", case.id, case.name);
    }
}

#[tokio::test]
async fn the_folder_of_a_world_is_there_as_long_as_any_world_of_it() -> mailbox::Result<()> {
    let first = subjects::dir().open(Setup::default()).await?;
    let kept = first.clone();
    let second = first.restart().await?;
    second.mailbox("jobs")?.send(mailbox_conformance::Probe::new(1)).await?;
    drop(second);
    kept.mailbox("others")?.send(mailbox_conformance::Probe::new(2)).await?;
    assert_eq!(kept.mailbox("jobs")?.stats().await?.ready, 1);
    Ok(())
}

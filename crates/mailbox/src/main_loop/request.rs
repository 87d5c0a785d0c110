//! What a client asks of a loop (P3). Plain data that crosses the wire.

use std::time::Duration;

use serde::{Deserialize, Serialize};
use uuid::Uuid;

use crate::timestamp::Timestamp;

/// A request to a [`MainLoop`](super::MainLoop).
///
/// As JSON: `{"request": .., "request_id": "..", "created_at": ".."}`, and `budget` and `deadline`
/// if there are any.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct MainLoopRequest<Q> {
    /// What is asked.
    pub request: Q,
    /// Its identity, which its result carries too. Version 7: in order of creation.
    pub request_id: Uuid,
    /// What it may cost. None: whatever it takes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub budget: Option<Budget>,
    /// When nobody is interested any more, by wall time: it crosses machines, whose clocks differ.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub deadline: Option<Timestamp>,
    /// When it was made.
    pub created_at: Timestamp,
}

impl<Q> MainLoopRequest<Q> {
    /// A new request: a new id, made now, without budget and deadline.
    #[must_use]
    pub fn new(request: Q) -> Self {
        Self {
            request,
            request_id: Uuid::now_v7(),
            budget: None,
            deadline: None,
            created_at: Timestamp::now(),
        }
    }

    /// It has this id.
    #[must_use]
    pub fn with_request_id(mut self, request_id: Uuid) -> Self {
        self.request_id = request_id;
        self
    }

    /// It may cost this much.
    #[must_use]
    pub fn with_budget(mut self, budget: Budget) -> Self {
        self.budget = Some(budget);
        self
    }

    /// It is of no use after this.
    #[must_use]
    pub fn with_deadline(mut self, deadline: Timestamp) -> Self {
        self.deadline = Some(deadline);
        self
    }
}

/// What one delivery of a request may cost. `Default`: no bounds.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[non_exhaustive]
pub struct Budget {
    /// How long its handler may run; the loop cuts it off. `time_ms` on the wire.
    #[serde(
        rename = "time_ms",
        default,
        skip_serializing_if = "Option::is_none",
        with = "milliseconds"
    )]
    pub time: Option<Duration>,
    /// How many units its handler may spend, of whatever it counts: tokens, calls, cents. See
    /// [`Context::spend`](super::Context::spend).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub units: Option<u64>,
}

impl Budget {
    /// No bounds.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// The handler may run this long.
    #[must_use]
    pub fn with_time(mut self, time: Duration) -> Self {
        self.time = Some(time);
        self
    }

    /// The handler may spend this many units.
    #[must_use]
    pub fn with_units(mut self, units: u64) -> Self {
        self.units = Some(units);
        self
    }
}

mod milliseconds {
    use std::time::Duration;

    use serde::{Deserialize, Deserializer, Serialize, Serializer};

    pub(super) fn serialize<S: Serializer>(
        time: &Option<Duration>,
        serializer: S,
    ) -> Result<S::Ok, S::Error> {
        let whole = |time: &Duration| u64::try_from(time.as_millis()).unwrap_or(u64::MAX);
        time.as_ref().map(whole).serialize(serializer)
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(
        deserializer: D,
    ) -> Result<Option<Duration>, D::Error> {
        Ok(Option::<u64>::deserialize(deserializer)?.map(Duration::from_millis))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_request_is_flat_json_and_leaves_out_what_it_does_not_say() {
        let request = MainLoopRequest::new("tidy up".to_owned());
        let json = serde_json::to_value(&request).unwrap();
        let keys: Vec<_> = json.as_object().unwrap().keys().collect();
        assert_eq!(keys, ["created_at", "request", "request_id"]);
        assert_eq!(request.request_id.get_version_num(), 7);

        let budget = Budget::new().with_time(Duration::from_secs(2)).with_units(5);
        let request = request.with_budget(budget);
        let json = serde_json::to_value(&request).unwrap();
        assert_eq!(json["budget"], serde_json::json!({"time_ms": 2000, "units": 5}));
        let read: MainLoopRequest<String> = serde_json::from_value(json).unwrap();
        assert_eq!(read, request);
    }
}

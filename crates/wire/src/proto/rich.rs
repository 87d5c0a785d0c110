//! What went wrong, in the details of a gRPC status: as `google.rpc.Status` with a
//! [`Problem`](v1::Problem) in it, which is where libraries of other languages look.

use bytes::Bytes;
use prost::Message;

use super::fields::{Field, Shape, Shaped};
use super::{Counted, v1};
use crate::json;

/// How a problem is called in there.
const PROBLEM: &str = "type.googleapis.com/mailbox.v1.Problem";

/// `google.rpc.Status`.
#[derive(Clone, PartialEq, Message)]
struct Rich {
    #[prost(int32, tag = "1")]
    code: i32,
    #[prost(string, tag = "2")]
    message: String,
    #[prost(message, repeated, tag = "3")]
    details: Vec<Any>,
}

impl Shaped for Rich {
    const SHAPE: Shape = &[(3, Field::Many(&[]))];
}

/// `google.protobuf.Any`.
#[derive(Clone, PartialEq, Message)]
struct Any {
    #[prost(string, tag = "1")]
    type_url: String,
    #[prost(bytes = "bytes", tag = "2")]
    value: Bytes,
}

/// The details of a status with this code.
#[must_use]
pub fn details(code: i32, problem: json::Problem) -> Bytes {
    let message = problem.message.clone();
    let value = v1::Problem::from(problem).encode_to_vec().into();
    let problem = Any { type_url: PROBLEM.to_owned(), value };
    Rich { code, message, details: vec![problem] }.encode_to_vec().into()
}

/// The problem that is in the details of a status, if there is one.
#[must_use]
pub fn problem(details: &[u8]) -> Option<json::Problem> {
    Rich::check(details).ok()?;
    let rich = Rich::decode(details).ok()?;
    let problem = rich.details.into_iter().find(|it| it.type_url == PROBLEM)?;
    v1::Problem::decode(problem.value).ok().map(json::Problem::from)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::proto::MAX_FIELDS;

    #[test]
    fn details_have_an_end() {
        let count = |count| {
            let details = vec![Any { type_url: String::new(), value: Bytes::new() }; count];
            let rich = Rich { code: 3, message: String::new(), details };
            Rich::check(&rich.encode_to_vec()).is_ok()
        };
        assert!(count(MAX_FIELDS) && !count(MAX_FIELDS + 1));
    }

    #[test]
    fn a_problem_is_found_where_it_was_put() {
        let problem = json::Problem {
            code: "E_SCHEMA".to_owned(),
            message: "no".to_owned(),
            retry_after_ms: Some(5),
            ..json::Problem::default()
        };
        let details = details(3, problem.clone());
        assert_eq!(super::problem(&details), Some(problem));
        for other in [&b""[..], b"{}", b"\xff", &details[..10]] {
            assert_eq!(super::problem(other), None);
        }
    }
}

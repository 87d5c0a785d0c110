//! What every call may answer when it does not work, for the OpenAPI document.

use mailbox_wire::json::Problem;
use utoipa::IntoResponses;

/// Everything that can go wrong.
#[derive(Debug, IntoResponses)]
#[expect(dead_code, reason = "only described, never made")]
pub(crate) enum Problems {
    /// `E_SCHEMA`: the request makes no sense, or an argument is out of bounds.
    #[response(status = 400)]
    Schema(Problem),
    /// `E_CAP_AUTH`: no capability, or one that is good for nothing; `reason` says why.
    #[response(status = 401)]
    Authentication(Problem),
    /// `E_CAP_SCOPE`: the capability does not cover this; `reason` says why.
    #[response(status = 403)]
    Scope(Problem),
    /// `E_NOT_FOUND`, or `E_RECEIPT`: no such thing, or the delivery is over.
    #[response(status = 404)]
    NotFound(Problem),
    /// `E_DUPLICATE`: the idempotency key was used for another payload.
    #[response(status = 409)]
    Duplicate(Problem),
    /// `E_FRAME_TOO_LARGE`: a body, payload or field is larger than allowed.
    #[response(status = 413)]
    TooLarge(Problem),
    /// `E_INTEGRITY`: a payload is not what was sent.
    #[response(status = 422)]
    Integrity(Problem),
    /// `E_SATURATED`: a bound is reached; come back after `Retry-After` seconds.
    #[response(status = 429, headers(("retry-after" = u64)))]
    Saturated(Problem),
    /// `E_INTERNAL`: a defect.
    #[response(status = 500)]
    Internal(Problem),
    /// `E_UNAVAILABLE`: the service stops, or its store cannot be reached.
    #[response(status = 503, headers(("retry-after" = u64)))]
    Unavailable(Problem),
}

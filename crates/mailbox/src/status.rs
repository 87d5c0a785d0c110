//! How each kind of error is written in every protocol: one table, so that no two protocols
//! disagree (contract, E).

use crate::error::ErrorKind;

/// What one kind of error is in each protocol.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct Status {
    /// HTTP status, and the code of an OAP/1 response.
    pub http: u16,
    /// The code in the body of an HTTP answer.
    pub code: &'static str,
    /// Number of the gRPC status.
    pub grpc: u8,
    /// What the SQS API calls it; empty where it has no word of its own.
    pub sqs: &'static str,
    /// Exit code of the command line.
    pub exit: u8,
}

const SCHEMA: Status =
    Status { http: 400, code: "E_SCHEMA", grpc: 3, sqs: "InvalidParameterValue", exit: 2 };
const CAP_AUTH: Status =
    Status { http: 401, code: "E_CAP_AUTH", grpc: 16, sqs: "InvalidSecurity", exit: 4 };
const CAP_SCOPE: Status =
    Status { http: 403, code: "E_CAP_SCOPE", grpc: 7, sqs: "AccessDenied", exit: 4 };
const NOT_FOUND: Status =
    Status { http: 404, code: "E_NOT_FOUND", grpc: 5, sqs: "QueueDoesNotExist", exit: 3 };
const RECEIPT: Status =
    Status { http: 404, code: "E_RECEIPT", grpc: 5, sqs: "ReceiptHandleIsInvalid", exit: 3 };
const DUPLICATE: Status = Status { http: 409, code: "E_DUPLICATE", grpc: 6, sqs: "", exit: 3 };
const TOO_LARGE: Status =
    Status { http: 413, code: "E_FRAME_TOO_LARGE", grpc: 8, sqs: "MessageTooLong", exit: 2 };
const INTEGRITY: Status = Status { http: 422, code: "E_INTEGRITY", grpc: 15, sqs: "", exit: 5 };
const SATURATED: Status =
    Status { http: 429, code: "E_SATURATED", grpc: 8, sqs: "OverLimit", exit: 6 };
const INTERNAL: Status =
    Status { http: 500, code: "E_INTERNAL", grpc: 13, sqs: "InternalFailure", exit: 1 };
const UNAVAILABLE: Status =
    Status { http: 503, code: "E_UNAVAILABLE", grpc: 14, sqs: "ServiceUnavailable", exit: 6 };

impl ErrorKind {
    /// Its row of the table.
    #[must_use]
    pub const fn status(self) -> Status {
        match self {
            Self::InvalidParameter
            | Self::Serialization
            | Self::MailboxResolution
            | Self::ReplyNotAvailable
            | Self::Unsupported => SCHEMA,
            Self::Unauthorized => CAP_AUTH,
            Self::Forbidden => CAP_SCOPE,
            Self::NotFound => NOT_FOUND,
            Self::ReceiptHandleExpired | Self::MessageFinalized => RECEIPT,
            Self::Duplicate => DUPLICATE,
            Self::TooLarge => TOO_LARGE,
            Self::Integrity => INTEGRITY,
            Self::MailboxFull | Self::Saturated => SATURATED,
            Self::Internal => INTERNAL,
            Self::Connection | Self::Closed => UNAVAILABLE,
        }
    }

    /// The contract's name for it, in the form that programs exchange.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::ReceiptHandleExpired => "receipt_handle_expired",
            Self::MailboxFull => "mailbox_full",
            Self::Serialization => "serialization",
            Self::Connection => "connection",
            Self::ReplyNotAvailable => "reply_not_available",
            Self::MessageFinalized => "message_finalized",
            Self::MailboxResolution => "mailbox_resolution",
            Self::InvalidParameter => "invalid_parameter",
            Self::TooLarge => "too_large",
            Self::Duplicate => "duplicate",
            Self::Saturated => "saturated",
            Self::Unauthorized => "unauthorized",
            Self::Forbidden => "forbidden",
            Self::NotFound => "not_found",
            Self::Integrity => "integrity",
            Self::Closed => "closed",
            Self::Unsupported => "unsupported",
            Self::Internal => "internal",
        }
    }

    /// The kind with this name.
    #[must_use]
    pub fn from_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|kind| kind.as_str() == name)
    }

    /// What an HTTP status means where nothing else is known.
    #[must_use]
    pub const fn of_http(status: u16) -> Self {
        match status {
            400 | 405 | 411 | 415 => Self::InvalidParameter,
            401 => Self::Unauthorized,
            403 => Self::Forbidden,
            404 => Self::NotFound,
            409 => Self::Duplicate,
            413 | 414 | 431 => Self::TooLarge,
            422 => Self::Integrity,
            429 => Self::Saturated,
            408 | 502..=504 => Self::Connection,
            _ => Self::Internal,
        }
    }

    /// What the number of a gRPC status means where nothing else is known.
    #[must_use]
    pub const fn of_grpc(code: u8) -> Self {
        match code {
            3 | 9 | 11 => Self::InvalidParameter,
            12 => Self::Unsupported,
            16 => Self::Unauthorized,
            7 => Self::Forbidden,
            5 => Self::NotFound,
            6 => Self::Duplicate,
            8 => Self::Saturated,
            15 => Self::Integrity,
            1 | 4 | 10 | 14 => Self::Connection,
            _ => Self::Internal,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_kind_has_a_name_of_its_own_and_is_found_by_it() {
        for kind in ErrorKind::ALL {
            assert_eq!(ErrorKind::from_name(kind.as_str()), Some(kind));
            let words: String = kind
                .as_str()
                .split('_')
                .map(|word| word[..1].to_uppercase() + &word[1..])
                .collect();
            assert_eq!(words, format!("{kind:?}"));
        }
    }

    #[test]
    fn a_status_leads_back_to_a_kind_of_the_same_row() {
        for kind in ErrorKind::ALL {
            let status = kind.status();
            assert_eq!(ErrorKind::of_http(status.http).status().http, status.http, "{kind:?}");
            assert_eq!(ErrorKind::of_grpc(status.grpc).status().grpc, status.grpc, "{kind:?}");
        }
    }

    #[test]
    fn only_a_defect_is_an_internal_error() {
        let internal = ErrorKind::ALL.into_iter().filter(|kind| kind.status().http == 500);
        assert_eq!(internal.collect::<Vec<_>>(), [ErrorKind::Internal]);
        let exit = ErrorKind::ALL.into_iter().filter(|kind| kind.status().exit == 1);
        assert_eq!(exit.collect::<Vec<_>>(), [ErrorKind::Internal]);
    }
}

//! How the service is reached. A protocol translates; it holds no queue logic.

pub(crate) mod grpc;
pub(crate) mod http;
pub(crate) mod oap;

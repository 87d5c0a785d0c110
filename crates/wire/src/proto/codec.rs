//! How gRPC reads and writes messages: as protobuf, with a bound on the lists that are read, and
//! with room for all that is written.

use std::fmt;
use std::marker::PhantomData;
use std::sync::Arc;

use bytes::Buf;
use prost::Message;
use tonic::Status;
use tonic::codec::{DecodeBuf, Decoder, EncodeBuf, Encoder};

use super::{Counted, Unreadable};

/// Writes `T`, reads `U`. The service and the client that are generated use it.
pub struct Codec<T, U>(PhantomData<(T, U)>);

impl<T, U> fmt::Debug for Codec<T, U> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Codec")
    }
}

impl<T, U> Default for Codec<T, U> {
    fn default() -> Self {
        Self(PhantomData)
    }
}

impl<T, U> tonic::codec::Codec for Codec<T, U>
where
    T: Message + 'static,
    U: Message + Default + Counted + 'static,
{
    type Encode = T;
    type Decode = U;
    type Encoder = Writer<T>;
    type Decoder = Reader<U>;

    fn encoder(&mut self) -> Writer<T> {
        Writer(PhantomData)
    }

    fn decoder(&mut self) -> Reader<U> {
        Reader(PhantomData)
    }
}

/// Writes messages.
pub struct Writer<T>(PhantomData<T>);

impl<T> fmt::Debug for Writer<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Writer")
    }
}

impl<T: Message> Encoder for Writer<T> {
    type Item = T;
    type Error = Status;

    fn encode(&mut self, message: T, out: &mut EncodeBuf<'_>) -> Result<(), Status> {
        // A buffer that grows while a large answer is written would copy it over and over.
        out.reserve(message.encoded_len());
        message.encode_raw(out);
        Ok(())
    }
}

/// Reads messages. Payloads are slices of what was read, see [`Detach`](super::Detach).
pub struct Reader<U>(PhantomData<U>);

impl<U> fmt::Debug for Reader<U> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Reader")
    }
}

impl<U: Message + Default + Counted> Decoder for Reader<U> {
    type Item = U;
    type Error = Status;

    fn decode(&mut self, bytes: &mut DecodeBuf<'_>) -> Result<Option<U>, Status> {
        // All of it is in one piece.
        U::check(bytes.chunk()).map_err(refused)?;
        U::decode(bytes).map(Some).map_err(|error| refused(error.into()))
    }
}

/// Bytes that are no message are the other side's mistake, as they are in JSON. A service says so.
/// A client must not take it for something that was said to it: what lies behind it, which no wire
/// carries, is [`Unreadable`] then.
fn refused(error: Unreadable) -> Status {
    let mut status = Status::invalid_argument(error.to_string());
    status.set_source(Arc::new(error));
    status
}

//! A connection of OAP/1 of which a test says and hears so many bytes and not one more, with TLS or
//! without.

use std::io::{Read, Write};
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use mailbox_wire::oap::{Decoder, Frame};
use rustls::{ClientConfig, ClientConnection};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpSocket, TcpStream};

use super::PATIENCE;
use super::certificate::here;

/// One connection.
pub(crate) struct Line {
    stream: TcpStream,
    tls: Option<Box<ClientConnection>>,
    /// What has come and was not taken, of which only TLS may have some.
    come: BytesMut,
}

/// Length of what stands before a record of TLS.
const RECORD: usize = 5;

impl Line {
    /// Connects. What is not read does not go far, if there is little room for it.
    pub(crate) async fn open(
        address: SocketAddr,
        tls: Option<Arc<ClientConfig>>,
        room: Option<u32>,
    ) -> Self {
        let socket = TcpSocket::new_v4().unwrap();
        if let Some(room) = room {
            socket.set_recv_buffer_size(room).unwrap();
        }
        let stream = socket.connect(address).await.unwrap();
        stream.set_nodelay(true).unwrap();
        let tls = tls.map(|config| Box::new(ClientConnection::new(config, here()).unwrap()));
        let mut line = Self { stream, tls, come: BytesMut::new() };
        line.shake_hands().await;
        line
    }

    async fn shake_hands(&mut self) {
        while let Some(tls) = self.tls.as_mut().filter(|tls| tls.is_handshaking()) {
            if tls.wants_write() {
                let bytes = self.seal(b"");
                self.say(&bytes).await;
            } else {
                assert!(self.record().await, "a handshake");
            }
        }
        let rest = self.seal(b"");
        self.say(&rest).await;
    }

    /// These bytes as they go over the wire.
    pub(crate) fn seal(&mut self, plain: &[u8]) -> Vec<u8> {
        let Some(tls) = &mut self.tls else { return plain.to_vec() };
        tls.set_buffer_limit(None);
        tls.writer().write_all(plain).unwrap();
        let mut sealed = Vec::new();
        while tls.wants_write() {
            tls.write_tls(&mut sealed).unwrap();
        }
        sealed
    }

    /// Says what was sealed, or some of it.
    pub(crate) async fn say(&mut self, sealed: &[u8]) {
        self.stream.write_all(sealed).await.unwrap();
    }

    /// The next so many bytes; fewer if the other end says no more.
    pub(crate) async fn hear(&mut self, len: usize) -> Bytes {
        let hear = async { while self.come.len() < len && self.more(len).await {} };
        tokio::time::timeout(PATIENCE, hear).await.expect("something comes, or the end");
        self.come.split_to(len.min(self.come.len())).freeze()
    }

    /// More of what is to be heard, and nothing beyond; false at the end.
    async fn more(&mut self, len: usize) -> bool {
        if self.tls.is_some() {
            return self.record().await;
        }
        let rest = (len - self.come.len()) as u64;
        let read = (&mut self.stream).take(rest).read_buf(&mut self.come).await;
        // A connection that is reset is over, too.
        read.is_ok_and(|count| count > 0)
    }

    /// The next record of TLS; false at the end.
    async fn record(&mut self) -> bool {
        let mut record = vec![0; RECORD];
        if self.stream.read_exact(&mut record).await.is_err() {
            return false;
        }
        let len = usize::from(u16::from_be_bytes([record[3], record[4]]));
        record.resize(RECORD + len, 0);
        if self.stream.read_exact(&mut record[RECORD..]).await.is_err() {
            return false;
        }
        let tls = self.tls.as_mut().expect("records are those of TLS");
        let mut rest = &record[..];
        while !rest.is_empty() {
            tls.read_tls(&mut rest).unwrap();
            let state = tls.process_new_packets().unwrap();
            let mut plain = vec![0; state.plaintext_bytes_to_read()];
            tls.reader().read_exact(&mut plain).unwrap();
            self.come.extend_from_slice(&plain);
        }
        true
    }

    /// The frame that begins like this; none if the connection ends before it is complete.
    pub(crate) async fn rest_of_frame(&mut self, head: &[u8]) -> Option<Frame> {
        let len = u32::from_be_bytes(*head.first_chunk()?) as usize;
        let mut bytes = BytesMut::from(head);
        bytes.extend_from_slice(&self.hear(len - head.len()).await);
        Decoder::default().decode(&mut bytes).expect("frames of a service are in order")
    }

    /// Says that nothing follows; in TLS too, if that is clean.
    pub(crate) async fn end(&mut self, is_clean: bool) {
        if let Some(tls) = self.tls.as_mut().filter(|_| is_clean) {
            tls.send_close_notify();
            let last = self.seal(b"");
            self.say(&last).await;
        }
        self.stream.shutdown().await.unwrap();
    }

    /// Ends it so that the other end learns it from a reset, as from a machine that was switched
    /// off: what is on the way is lost.
    pub(crate) fn reset(self) {
        socket2::SockRef::from(&self.stream).set_linger(Some(Duration::ZERO)).unwrap();
    }
}

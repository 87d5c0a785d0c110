//! The description of the service, as far as tests look at it.

use std::collections::{BTreeMap, BTreeSet};

use mailbox_wire::proto::DESCRIPTORS;
use prost::Message as _;
use prost::encoding::{DecodeContext, WireType, decode_key, decode_varint, skip_field};

/// Of `google/protobuf/descriptor.proto`.
#[derive(Clone, PartialEq, prost::Message)]
struct Files {
    #[prost(message, repeated, tag = "1")]
    files: Vec<File>,
}

#[derive(Clone, PartialEq, prost::Message)]
struct File {
    #[prost(string, tag = "2")]
    package: String,
    #[prost(message, repeated, tag = "4")]
    messages: Vec<Message>,
    #[prost(message, repeated, tag = "6")]
    services: Vec<Service>,
}

#[derive(Clone, PartialEq, prost::Message)]
pub(crate) struct Message {
    #[prost(string, tag = "1")]
    pub(crate) name: String,
    #[prost(message, repeated, tag = "2")]
    pub(crate) fields: Vec<Field>,
    #[prost(message, repeated, tag = "3")]
    nested: Vec<Self>,
}

#[derive(Clone, PartialEq, prost::Message)]
pub(crate) struct Field {
    #[prost(string, tag = "1")]
    pub(crate) name: String,
    #[prost(uint32, tag = "3")]
    pub(crate) number: u32,
    #[prost(uint32, tag = "4")]
    label: u32,
    #[prost(uint32, tag = "5")]
    kind: u32,
    #[prost(string, tag = "6")]
    pub(crate) type_name: String,
}

#[derive(Clone, PartialEq, prost::Message)]
pub(crate) struct Service {
    #[prost(string, tag = "1")]
    pub(crate) name: String,
    #[prost(message, repeated, tag = "2")]
    pub(crate) calls: Vec<Call>,
}

#[derive(Clone, PartialEq, prost::Message)]
pub(crate) struct Call {
    #[prost(string, tag = "1")]
    pub(crate) name: String,
    #[prost(string, tag = "2")]
    pub(crate) input: String,
    #[prost(string, tag = "3")]
    pub(crate) output: String,
    #[prost(bool, tag = "5")]
    pub(crate) is_client_streaming: bool,
    #[prost(bool, tag = "6")]
    pub(crate) is_server_streaming: bool,
}

/// The number of the kind of fields that are messages.
const MESSAGE: u32 = 11;
/// The number of the label of lists and maps.
const REPEATED: u32 = 3;

/// The fields on the way to a list, from a message to one in it; the last is the list.
pub(crate) type Path<'a> = Vec<&'a Field>;

impl Field {
    /// Whether it can be there many times, each beside the others.
    pub(crate) fn is_list(&self) -> bool {
        self.label == REPEATED
    }
}

/// Package `mailbox.v1`.
pub(crate) struct Described {
    pub(crate) services: Vec<Service>,
    /// By full name, with the dot before it.
    pub(crate) messages: BTreeMap<String, Message>,
}

impl Described {
    pub(crate) fn new() -> Self {
        let files = Files::decode(DESCRIPTORS).unwrap().files;
        let [file] = <[File; 1]>::try_from(files).unwrap();
        assert_eq!(file.package, "mailbox.v1");
        let mut messages = BTreeMap::new();
        for message in file.messages {
            let name = format!(".mailbox.v1.{}", message.name);
            // Entries of maps.
            for nested in message.nested.clone() {
                messages.insert(format!("{name}.{}", nested.name), nested);
            }
            messages.insert(name, message);
        }
        Self { services: file.services, messages }
    }

    pub(crate) fn message(&self, name: &str) -> &Message {
        &self.messages[&format!(".mailbox.v1.{name}")]
    }

    /// All lists and maps that are in a message, or in messages in it.
    pub(crate) fn lists(&self, message: &str) -> Vec<Path<'_>> {
        let mut lists = Vec::new();
        for field in &self.messages[message].fields {
            if field.is_list() {
                lists.push(vec![field]);
            }
            if field.kind == MESSAGE {
                let inside = self.lists(&field.type_name);
                lists.extend(inside.into_iter().map(|rest| [vec![field], rest].concat()));
            }
        }
        lists
    }

    /// Notes every field that is in these bytes, as `message.field`, also in messages in it.
    pub(crate) fn note(&self, message: &str, mut bytes: &[u8], seen: &mut BTreeSet<String>) {
        let fields = &self.messages[message].fields;
        while !bytes.is_empty() {
            let (number, wire_type) = decode_key(&mut bytes).unwrap();
            let field = fields.iter().find(|field| field.number == number).unwrap();
            seen.insert(format!("{message}.{}", field.name));
            if field.kind == MESSAGE {
                assert_eq!(wire_type, WireType::LengthDelimited);
                let len = decode_varint(&mut bytes).unwrap() as usize;
                self.note(&field.type_name, &bytes[..len], seen);
                bytes = &bytes[len..];
            } else {
                skip_field(wire_type, number, &mut bytes, DecodeContext::default()).unwrap();
            }
        }
    }
}

//! A capability as it is carried: its exact bytes, and what they are made of. Nothing but
//! [`Capability::encode`] and [`Capability::as_bytes`] gives its content away, and it is wiped when
//! dropped.

use std::fmt;

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use subtle::Choice;
use zeroize::Zeroizing;

use super::caveat::Caveat;
use super::chain::Tag;
use super::format::{self, Layout};
use super::grant::Grant;
use super::ids::{KeyId, TokenId};
use super::key::RootKey;
use super::refused::Refused;

/// Most bytes of a capability, before base64.
pub const MAX_BYTES: usize = 4096;
/// Most caveats of a capability.
pub const MAX_CAVEATS: usize = 64;

/// Longest text of a capability: nothing longer is one.
pub const MAX_TEXT: usize = (MAX_BYTES * 4).div_ceil(3);
/// A hint for libraries that know more services than one.
const LOCATION: &str = "mailbox";
/// Which kind of identifier follows.
const VERSION: &str = "v1";

/// A macaroon: what its holder may do, and proof that it was minted by who holds the root key.
/// Anybody who reads its text can use it.
#[derive(Clone)]
pub struct Capability {
    bytes: Zeroizing<Vec<u8>>,
    layout: Layout,
    kid: KeyId,
    token_id: TokenId,
}

/// Why a capability cannot be minted, or narrowed further.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum CannotMint {
    /// It would be larger than [`MAX_BYTES`].
    TooLong,
    /// It would have more than [`MAX_CAVEATS`] caveats.
    TooManyCaveats,
    /// It would be refused everywhere: nothing ends it and it does not stay on this machine, or a
    /// caveat allows no operation.
    Useless,
}

impl Capability {
    /// Reads the text of a capability. That it can be read says nothing about whether it is good.
    ///
    /// # Errors
    /// [`Refused::Malformed`] if the text is not strictly one.
    pub fn decode(text: &str) -> Result<Self, Refused> {
        if text.len() > MAX_TEXT {
            return Err(Refused::Malformed);
        }
        // Room for what the decoder asks for, so that no copy is left behind unwiped.
        let mut bytes = Zeroizing::new(Vec::with_capacity(text.len() + 4));
        URL_SAFE_NO_PAD.decode_vec(text, &mut bytes).map_err(|_| Refused::Malformed)?;
        Self::read(bytes).ok_or(Refused::Malformed)
    }

    /// Reads the bytes of a capability, for protocols that carry bytes.
    ///
    /// # Errors
    /// [`Refused::Malformed`] if they are not strictly one.
    pub fn from_bytes(bytes: &[u8]) -> Result<Self, Refused> {
        if bytes.len() > MAX_BYTES {
            return Err(Refused::Malformed);
        }
        Self::read(Zeroizing::new(bytes.to_vec())).ok_or(Refused::Malformed)
    }

    /// Makes a capability.
    ///
    /// # Errors
    /// If it would be too large, or refused everywhere: see [`CannotMint`].
    pub fn mint(
        key: &RootKey,
        kid: &KeyId,
        token_id: &TokenId,
        caveats: &[Caveat],
    ) -> Result<Self, CannotMint> {
        if caveats.len() > MAX_CAVEATS {
            return Err(CannotMint::TooManyCaveats);
        }
        let identifier = format!("{VERSION} {kid} {token_id}");
        let mut tag = Tag::root(key, identifier.as_bytes());
        let mut bytes = Zeroizing::new(Vec::with_capacity(MAX_BYTES));
        format::write_head(&mut bytes, LOCATION, &identifier);
        for text in caveats.iter().map(ToString::to_string) {
            if bytes.len() + text.len() > MAX_BYTES {
                return Err(CannotMint::TooLong);
            }
            tag = tag.over(text.as_bytes());
            format::write_caveat(&mut bytes, &text);
        }
        let minted = Self::finished(bytes, &tag)?;
        // The same reading as at the door: nothing leaves here that is refused there.
        minted.grant().map_err(|_| CannotMint::Useless)?;
        Ok(minted)
    }

    /// The same capability with one more caveat. Needs no key.
    ///
    /// # Errors
    /// If there is no room for it: see [`CannotMint`].
    pub fn attenuate(&self, caveat: &Caveat) -> Result<Self, CannotMint> {
        if self.layout.caveats.len() == MAX_CAVEATS {
            return Err(CannotMint::TooManyCaveats);
        }
        let text = caveat.to_string();
        let tag = self.claimed_tag().over(text.as_bytes());
        // One allocation that is large enough, so that no copy is left behind unwiped.
        let room = self.bytes.len() + format::room_for(&text);
        let mut bytes = Zeroizing::new(Vec::with_capacity(room));
        bytes.extend_from_slice(format::without_trailer(&self.bytes));
        format::write_caveat(&mut bytes, &text);
        Self::finished(bytes, &tag)
    }

    /// Checks that it was minted with `key`, and if so, reads what it allows. No caveat is looked
    /// at before. Give nothing if there is no key of that name: that takes the same time and has
    /// the same answer as a forgery.
    ///
    /// # Errors
    /// [`Refused::BadSignature`], or [`Refused::Caveat`] if it allows nothing at all.
    pub fn verify(&self, key: Option<&RootKey>) -> Result<Grant, Refused> {
        let nobodys = RootKey::from_bytes([0; RootKey::LEN]);
        let is_known = Choice::from(u8::from(key.is_some()));
        let expected = self.tag_under(key.unwrap_or(&nobodys));
        if bool::from(is_known & expected.equals(&self.claimed_tag())) {
            self.grant()
        } else {
            Err(Refused::BadSignature)
        }
    }

    /// The text to carry it as. Whoever reads it can use it.
    #[must_use]
    pub fn encode(&self) -> String {
        URL_SAFE_NO_PAD.encode(self.as_bytes())
    }

    /// The bytes that [`Capability::encode`] writes as text; as secret as that.
    #[must_use]
    pub fn as_bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// Which root key it says it was minted with.
    #[must_use]
    pub fn kid(&self) -> &KeyId {
        &self.kid
    }

    /// Which capability it says it is.
    #[must_use]
    pub fn token_id(&self) -> &TokenId {
        &self.token_id
    }

    /// The caveats as they stand, to show: what is not printable ASCII is escaped, and a third
    /// party's are marked. They are not verified.
    pub fn caveat_texts(&self) -> impl Iterator<Item = String> {
        self.layout.caveats.iter().map(|part| {
            let text = self.bytes[part.text.clone()].escape_ascii();
            if part.verifier.is_some() { format!("(third party) {text}") } else { text.to_string() }
        })
    }

    fn read(bytes: Zeroizing<Vec<u8>>) -> Option<Self> {
        let layout = format::read(&bytes)?;
        let identifier = std::str::from_utf8(&bytes[layout.identifier.clone()]).ok()?;
        let (kid, token_id) =
            identifier.strip_prefix(VERSION)?.strip_prefix(' ')?.split_once(' ')?;
        let (kid, token_id) = (kid.parse().ok()?, token_id.parse().ok()?);
        Some(Self { bytes, layout, kid, token_id })
    }

    fn finished(mut bytes: Zeroizing<Vec<u8>>, tag: &Tag) -> Result<Self, CannotMint> {
        format::write_trailer(&mut bytes, tag.as_bytes());
        if bytes.len() > MAX_BYTES {
            return Err(CannotMint::TooLong);
        }
        Ok(Self::read(bytes).expect("what is written can be read"))
    }

    fn claimed_tag(&self) -> Tag {
        Tag::claimed(*self.bytes.last_chunk().expect("a macaroon ends with its tag"))
    }

    fn tag_under(&self, key: &RootKey) -> Tag {
        let root = Tag::root(key, &self.bytes[self.layout.identifier.clone()]);
        self.layout.caveats.iter().fold(root, |tag, part| {
            let text = &self.bytes[part.text.clone()];
            match &part.verifier {
                Some(verifier) => tag.over_third_party(&self.bytes[verifier.clone()], text),
                None => tag.over(text),
            }
        })
    }

    /// What the caveats allow, whether or not anybody vouches for them.
    fn grant(&self) -> Result<Grant, Refused> {
        Grant::of(self.layout.caveats.iter().map(|part| {
            let text = std::str::from_utf8(&self.bytes[part.text.clone()]).ok()?;
            // Whether a third party's holds cannot be told here.
            if part.verifier.is_some() { None } else { text.parse().ok() }
        }))
    }
}

impl fmt::Debug for Capability {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Capability")
            .field("kid", &self.kid)
            .field("token_id", &self.token_id)
            .finish_non_exhaustive()
    }
}

impl fmt::Display for CannotMint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::TooLong => write!(f, "a capability has at most {MAX_BYTES} bytes"),
            Self::TooManyCaveats => write!(f, "a capability has at most {MAX_CAVEATS} caveats"),
            Self::Useless => f.write_str(
                "a capability allows some operation, and has an `exp` caveat or an `ip` caveat \
                 with loopback addresses only",
            ),
        }
    }
}

impl std::error::Error for CannotMint {}

//! Where connections are cut: at every boundary of a frame and in several places inside of each,
//! of what is said and of what is heard, in every way in which a connection can end.

use mailbox_wire::oap::{Frame, HEADER_LEN};

use super::script::Kind;
use crate::rig::Dice;

/// How a connection ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Way {
    /// The other end learns it from a reset, and what is on the way is lost.
    Hard,
    /// The client says that nothing follows, and is gone.
    Soft,
    /// It says so, and hears what there still is.
    Half,
}

/// Where in a frame.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Inside {
    /// Nothing of it.
    Start,
    /// So much of its header, or all of it.
    Header(usize),
    /// Half of its capability.
    Capability,
    /// So many of as many parts of its payload.
    Payload(usize, usize),
    /// All but a byte.
    Last,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Place {
    /// So many frames were said, and so much of the next. A patient client hears all answers that
    /// it can before it cuts.
    Said { frames: usize, inside: Inside, is_patient: bool },
    /// All was said; so many frames were heard, and so much of the next.
    Heard { frames: usize, inside: Inside },
}

/// One connection that is cut.
#[derive(Debug, Clone, Copy)]
pub(super) struct Cut {
    pub(super) kind: Kind,
    pub(super) place: Place,
    pub(super) way: Way,
}

/// What is said, and how many frames are heard, in a session that is not cut.
pub(super) struct Shape {
    pub(super) kind: Kind,
    pub(super) said: Vec<Frame>,
    pub(super) heard: usize,
}

impl Inside {
    /// How much of a frame that is.
    pub(super) fn offset(self, cap_len: usize, len: usize) -> usize {
        let payload = HEADER_LEN + cap_len;
        let offset = match self {
            Self::Start => return 0,
            Self::Header(count) => count,
            Self::Capability => HEADER_LEN + cap_len / 2,
            Self::Payload(count, of) => payload + (len - payload) * count / of,
            Self::Last => len - 1,
        };
        offset.clamp(1, len - 1)
    }
}

/// In what is said.
const SAID: [Inside; 9] = [
    Inside::Start,
    Inside::Header(3),
    Inside::Header(20),
    Inside::Header(HEADER_LEN),
    Inside::Capability,
    Inside::Payload(0, 1),
    Inside::Payload(1, 4),
    Inside::Payload(3, 4),
    Inside::Last,
];

/// In what is heard.
const HEARD: [Inside; 5] = [
    Inside::Start,
    Inside::Header(4),
    Inside::Header(HEADER_LEN),
    Inside::Payload(1, 2),
    Inside::Last,
];

/// All cuts, in no order.
pub(super) fn plan(shapes: &[Shape]) -> Vec<Cut> {
    let mut cuts = Vec::new();
    for shape in shapes {
        said(shape, &mut cuts);
        heard(shape, &mut cuts);
    }
    let mut dice = Dice(11);
    for at in (1..cuts.len()).rev() {
        cuts.swap(at, dice.below(at + 1));
    }
    cuts
}

fn said(shape: &Shape, cuts: &mut Vec<Cut>) {
    // What is said of these is a short question.
    if matches!(shape.kind, Kind::Large | Kind::InParts | Kind::Several | Kind::Stream) {
        return;
    }
    let mut places = Vec::new();
    for (frames, frame) in shape.said.iter().enumerate() {
        let len = frame.header().unwrap().len as usize;
        let mut offsets = Vec::new();
        for inside in SAID {
            let offset = inside.offset(frame.cap.len(), len);
            if !offsets.contains(&offset) {
                offsets.push(offset);
                places.push((frames, inside));
            }
        }
    }
    places.push((shape.said.len(), Inside::Start));
    for (frames, inside) in places {
        for (way, is_patient) in [(Way::Hard, false), (Way::Hard, true), (Way::Half, false)] {
            let place = Place::Said { frames, inside, is_patient };
            cuts.push(Cut { kind: shape.kind, place, way });
        }
    }
}

fn heard(shape: &Shape, cuts: &mut Vec<Cut>) {
    let mut places = Vec::new();
    match shape.kind {
        Kind::Parts | Kind::Compressed | Kind::Waiting | Kind::Settling => return,
        // One frame, and all that matters is how much of it.
        Kind::Large => {
            places.extend(HEARD.map(|inside| (0, inside)));
            places.extend((1..20).map(|part| (0, Inside::Payload(part, 20))));
        }
        // Many frames that are alike.
        Kind::InParts => {
            places.extend((0..shape.heard).map(|frames| (frames, Inside::Start)));
            places.extend((0..shape.heard).step_by(4).map(|frames| (frames, HEARD[3])));
        }
        _ => {
            let each = |frames| HEARD.map(|inside| (frames, inside));
            places.extend((0..shape.heard).flat_map(each));
        }
    }
    places.push((shape.heard, Inside::Start));
    for (at, (frames, inside)) in places.into_iter().enumerate() {
        for way in [Way::Hard, Way::Soft, Way::Half] {
            // Whoever hears all that there is has cut nothing: a few are enough.
            if way != Way::Half || at % 5 == 0 {
                cuts.push(Cut { kind: shape.kind, place: Place::Heard { frames, inside }, way });
            }
        }
    }
}

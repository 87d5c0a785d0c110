//! Frames of OAP/1 from outside: fixed bytes, any bytes, in whatever pieces.

mod corpus;
mod frames;
mod vectors;

//! The doctor against journals that were damaged at random, and what it does step by step.

mod damage;
mod foreign;
mod losses;
mod scenes;
mod steps;

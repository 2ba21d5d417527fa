//! Tests of `compare` from outside: reports of results made by hand, and runs with a client of a
//! few lines.

#[cfg(test)]
mod action;
#[cfg(test)]
mod agents;
#[cfg(test)]
#[cfg(test)]
mod browser;
#[cfg(test)]
mod common;
#[cfg(test)]
mod diff;
mod documents;
#[cfg(test)]
#[cfg(test)]
mod gate;
#[cfg(test)]
mod help;
#[cfg(test)]
mod html;
#[cfg(test)]
mod loads;
#[cfg(test)]
#[cfg(test)]
mod report;
#[cfg(test)]
mod rounds;
#[cfg(test)]
mod run;
#[cfg(test)]
mod schema;
#[cfg(test)]
mod search;
#[cfg(test)]
mod terminal;
#[cfg(test)]
mod this_machine;
mod throughput;
#[cfg(test)]
mod verdicts;

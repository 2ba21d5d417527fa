//! Clients that closed over their first compressed messages, and get none for an hour.

use std::{
    net::IpAddr,
    sync::{Mutex, PoisonError},
    time::{Duration, Instant},
};

use ahash::HashMap;

/// How long a client gets no compression.
const FOR: Duration = Duration::from_secs(3600);

/// Most addresses that are kept; whoever owns more is compressed to again.
const MOST: usize = 10_000;

/// Addresses, each until its hour is over.
#[derive(Debug, Default)]
pub(crate) struct Shunned(Mutex<HashMap<IpAddr, Instant>>);

impl Shunned {
    pub(crate) fn add(&self, address: IpAddr, now: Instant) {
        let mut all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if all.len() >= MOST {
            all.retain(|_, until| *until > now);
        }
        if all.len() < MOST {
            all.insert(address, now + FOR);
        }
    }

    pub(crate) fn has(&self, address: IpAddr, now: Instant) -> bool {
        let all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        all.get(&address).is_some_and(|until| *until > now)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_hour_is_remembered_and_no_more_than_so_many() {
        let (shunned, now) = (Shunned::default(), Instant::now());
        let address = |n: u32| IpAddr::from(n.to_be_bytes());
        shunned.add(address(0), now);
        assert!(shunned.has(address(0), now + FOR / 2) && !shunned.has(address(0), now + FOR));
        assert!(!shunned.has(address(1), now));
        let most = u32::try_from(MOST).unwrap();
        (1..most + 9).for_each(|n| shunned.add(address(n), now));
        assert!(shunned.has(address(most - 1), now) && !shunned.has(address(most), now));
        shunned.add(address(most), now + FOR);
        assert!(shunned.has(address(most), now + FOR), "those of an hour ago are gone");
    }
}

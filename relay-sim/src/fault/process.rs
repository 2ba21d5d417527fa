//! Faults of the process: time that is slept or burned, and bytes that arrive late.

use std::{
    io::{self, Read, Write},
    net::{Shutdown, TcpListener, TcpStream},
    sync::{
        Arc,
        atomic::{AtomicI64, Ordering},
        mpsc::sync_channel,
    },
    thread,
    time::{Duration, Instant},
};

use nix::time::{ClockId, clock_gettime};

use super::{Faults, Kind, planted::Counted};

/// CPU time is burned in portions: reading the clock costs 0.3 µs, which must not be seen beside
/// what was asked for.
const PORTION_NS: i64 = 100_000;

/// Bytes that a delayed connection reads at once, and reads that may be under way: 32 MiB at most.
const CHUNK_BYTES: usize = 32 << 10;
const CHUNKS: usize = 1 << 10;

/// Spends CPU time by the event.
#[derive(Debug)]
pub(crate) struct Burner {
    each_ns: i64,
    owed_ns: AtomicI64,
    faults: Vec<Counted>,
}

impl Burner {
    /// For the sum of all faults `burn`; `None` when there is none.
    pub(crate) fn from_faults(faults: &Faults) -> Option<Burner> {
        let faults = faults.of_kind(Kind::Burn);
        let each_ns = faults.iter().map(|counted| counted.fault.value).sum();
        (each_ns > 0).then(|| Burner { each_ns, owed_ns: AtomicI64::new(0), faults })
    }

    /// One event was sent. What is spent too much or too little now is made up for later.
    pub(crate) fn event(&self) {
        self.faults.iter().for_each(Counted::hit);
        if self.owed_ns.fetch_add(self.each_ns, Ordering::Relaxed) + self.each_ns < PORTION_NS {
            return;
        }
        let owed = self.owed_ns.swap(0, Ordering::Relaxed);
        let Some(began) = thread_cpu_ns() else { return };
        let mut spent = 0;
        while spent < owed {
            std::hint::spin_loop();
            let Some(now) = thread_cpu_ns() else { return };
            spent = now - began;
        }
        self.owed_ns.fetch_add(owed - spent, Ordering::Relaxed);
    }
}

/// CPU time of this thread; every Linux has this clock.
fn thread_cpu_ns() -> Option<i64> {
    let time = clock_gettime(ClockId::CLOCK_THREAD_CPUTIME_ID).ok()?;
    Some(time.tv_sec() * 1_000_000_000 + time.tv_nsec())
}

/// Blocks the serving thread for each stall, at its time. Meant for a relay with one thread.
pub(crate) async fn stall(faults: Arc<Faults>) {
    let began = tokio::time::Instant::now();
    let mut stalls = faults.of_kind(Kind::Stall);
    stalls.sort_by_key(|stall| stall.fault.when.after);
    for stall in stalls {
        tokio::time::sleep_until(began + stall.fault.when.after).await;
        stall.hit();
        thread::sleep(stall.fault.time());
    }
}

/// A proxy that delays what a relay sends by all faults `delay` together, which hit each piece. Returns
/// the listener that the relay should serve instead of `outer`.
///
/// Every connection has its own threads, because a thread's sleep is late by 0.1 ms and tokio's by 1 ms.
///
/// # Errors
/// When the system refuses a second listener.
pub(crate) fn behind_a_delay(outer: TcpListener, faults: Arc<Faults>) -> io::Result<TcpListener> {
    let inner = TcpListener::bind((outer.local_addr()?.ip(), 0))?;
    let relay = inner.local_addr()?;
    thread::spawn(move || {
        for client in outer.incoming().flatten() {
            let Ok(server) = TcpStream::connect(relay) else { continue };
            // A connection that cannot be delayed is dropped, which the client notices.
            let _ = delayed(client, server, faults.of_kind(Kind::Delay));
        }
    });
    Ok(inner)
}

fn delayed(client: TcpStream, server: TcpStream, delays: Vec<Counted>) -> io::Result<()> {
    client.set_nodelay(true)?;
    server.set_nodelay(true)?;
    let (mut from_client, mut to_server) = (client.try_clone()?, server.try_clone()?);
    let (sender, chunks) = sync_channel::<(Instant, Vec<u8>)>(CHUNKS);
    let by: Duration = delays.iter().map(|delay| delay.fault.time()).sum();
    thread::spawn(move || {
        let _ = io::copy(&mut from_client, &mut to_server);
        let _ = to_server.shutdown(Shutdown::Write);
    });
    thread::spawn(move || {
        let (mut server, mut buffer) = (server, vec![0; CHUNK_BYTES]);
        while let Ok(read @ 1..) = server.read(&mut buffer) {
            delays.iter().for_each(Counted::hit);
            if sender.send((Instant::now() + by, buffer[..read].to_vec())).is_err() {
                break;
            }
        }
    });
    thread::spawn(move || {
        let mut client = client;
        for (due, chunk) in chunks {
            thread::sleep(due.saturating_duration_since(Instant::now()));
            if client.write_all(&chunk).is_err() {
                return;
            }
        }
        let _ = client.shutdown(Shutdown::Write);
    });
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_arrive_late_in_order_and_complete() {
        let outer = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = outer.local_addr().unwrap();
        let by = Duration::from_millis(30);
        let faults = Arc::new(Faults::new(&["delay=30ms".parse().unwrap()]));
        let inner = behind_a_delay(outer, Arc::clone(&faults)).unwrap();
        thread::spawn(move || {
            let (mut relay, _) = inner.accept().unwrap();
            let mut word = [0; 4];
            while relay.read_exact(&mut word).is_ok() {
                relay.write_all(&word).unwrap();
            }
        });
        let mut client = TcpStream::connect(address).unwrap();
        let began = Instant::now();
        (0..1_000_u32).for_each(|n| client.write_all(&n.to_le_bytes()).unwrap());
        client.shutdown(Shutdown::Write).unwrap();
        let mut back = Vec::new();
        client.read_to_end(&mut back).unwrap();
        assert!(began.elapsed() >= by, "{:?}", began.elapsed());
        let sent: Vec<u8> = (0..1_000_u32).flat_map(u32::to_le_bytes).collect();
        assert_eq!(back, sent);
        assert!(faults.hits()[0].1 > 0);
    }
}

//! Records what passes while it passes: in a thread of its own, so that traffic never waits for a disk.

use std::{
    io,
    path::{Path, PathBuf},
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering::Relaxed},
        mpsc::{Receiver, RecvTimeoutError, SyncSender, sync_channel},
    },
    thread::{self, JoinHandle},
    time::{Duration, Instant},
};

use codecs::Format;
use tracing::{error, info, warn};

use crate::{
    entry::{End, Entry, Redaction, Side, What},
    scribe::{Passed, Scribe},
    writer::create,
};

/// Most bytes that wait to be written. What comes while so much waits is lost, and counted.
pub const QUEUE_BYTES: usize = 64 << 20;

/// Most lines that wait to be written.
pub const QUEUE_LINES: usize = 65_536;

/// How much is lost by a kill at most.
const FLUSH: Duration = Duration::from_secs(1);

/// How long messages gather once none is left: waking this thread for each costs both sides.
const PAUSE: Duration = Duration::from_millis(10);

/// Records the connections of a gateway or a relay into a file.
#[derive(Debug)]
pub struct Recorder {
    file: PathBuf,
    started: Instant,
    connections: AtomicU64,
    queue: SyncSender<Order>,
    status: Arc<Status>,
    thread: Mutex<Option<JoinHandle<io::Result<End>>>>,
}

/// How a recording goes, which both threads know.
#[derive(Debug, Default)]
pub struct Status {
    /// Lines that were lost, because the disk was slower than the traffic.
    pub lost: AtomicU64,
    /// Bytes that wait to be written.
    pub waiting_bytes: AtomicUsize,
    /// Whether the file could not be written any further.
    pub failed: AtomicBool,
}

/// What the thread is to write.
#[derive(Debug)]
enum Order {
    Entry(Entry),
    Message { conn: u64, t_ns: u64, passed: Passed },
    Finish,
}

/// One connection that is recorded.
#[derive(Debug)]
pub struct Recorded {
    recorder: Arc<Recorder>,
    conn: u64,
}

impl Recorder {
    /// Begins a recording in a new file, and warns in the log: whoever runs the program must know. `by`
    /// names the program and its version.
    ///
    /// # Errors
    /// The file exists already, or cannot be created.
    pub fn start(file: &Path, redaction: Redaction, by: &str) -> io::Result<Arc<Recorder>> {
        let scribe = Scribe::new(create(file)?, redaction, by)?;
        let how = match redaction {
            Redaction::Pseudonyms => "under pseudonyms",
            Redaction::None => "AS IT IS, except AUTH and private messages",
        };
        let name = file.display();
        warn!(file = %name, "RECORDING every message of every client, {how}; docs/gateway.md has what that tells");
        let (queue, orders) = sync_channel(QUEUE_LINES);
        let status = Arc::new(Status::default());
        let (started, theirs) = (Instant::now(), Arc::clone(&status));
        let thread = thread::Builder::new().name("recorder".to_owned()).spawn(move || {
            write(scribe, &orders, &theirs, started).inspect_err(|error| {
                theirs.failed.store(true, Relaxed);
                error!(%error, "the recording has ended; what was written can be read, and clients are served as before");
            })
        })?;
        Ok(Arc::new(Recorder {
            file: file.to_owned(),
            started,
            connections: AtomicU64::new(0),
            queue,
            status,
            thread: Mutex::new(Some(thread)),
        }))
    }

    /// How it goes.
    pub fn status(&self) -> &Status {
        &self.status
    }

    /// Records a connection: what each leg agreed on, `None` for JSON alone.
    pub fn open(self: &Arc<Self>, client: Option<String>, relay: Option<String>) -> Recorded {
        let conn = self.connections.fetch_add(1, Relaxed);
        self.put(Order::Entry(Entry { conn, t_ns: self.t_ns(), what: What::Open { client, relay } }));
        Recorded { recorder: Arc::clone(self), conn }
    }

    /// Writes what waits and the last line, and says in the log how it went. Blocks until it is done.
    pub fn finish(&self) {
        let Some(thread) = self.thread.lock().unwrap_or_else(PoisonError::into_inner).take() else { return };
        // A thread that has failed takes no more.
        let _ = self.queue.send(Order::Finish);
        let file = self.file.display();
        match thread.join() {
            Ok(Ok(End { lost, ratio_source, ratio_written })) => info!(
                %file,
                lost,
                "recorded; zstd makes the texts {ratio_source:.2} times smaller as they were and {ratio_written:.2} \
                 times as they are written"
            ),
            Ok(Err(error)) => error!(%file, %error, "the recording ended early"),
            Err(_) => error!(%file, "the recorder panicked: this is a bug; what was written can be read"),
        }
    }

    fn t_ns(&self) -> u64 {
        u64::try_from(self.started.elapsed().as_nanos()).unwrap_or(u64::MAX)
    }

    fn put(&self, order: Order) {
        let bytes = order.bytes();
        let status = &self.status;
        if status.failed.load(Relaxed) {
            return;
        }
        if status.waiting_bytes.fetch_add(bytes, Relaxed) + bytes > QUEUE_BYTES
            || self.queue.try_send(order).is_err()
        {
            status.waiting_bytes.fetch_sub(bytes, Relaxed);
            status.lost.fetch_add(1, Relaxed);
        }
    }
}

impl Recorded {
    /// Records a message. The parts of its payload are joined.
    pub fn message(&self, from: Side, payload_bytes: usize, format: Format, payload: &[&[u8]]) {
        let recorder = &self.recorder;
        // Nothing is copied in vain.
        if !recorder.status.failed.load(Relaxed) {
            let passed = Passed { from, payload_bytes, format, payload: payload.concat() };
            recorder.put(Order::Message { conn: self.conn, t_ns: recorder.t_ns(), passed });
        }
    }

    /// Records the end of the connection: the code of the Close frame, and who sent it.
    pub fn close(&self, code: Option<u16>, by: Side) {
        let (conn, t_ns) = (self.conn, self.recorder.t_ns());
        self.recorder.put(Order::Entry(Entry { conn, t_ns, what: What::Close { code, by } }));
    }
}

impl Order {
    fn bytes(&self) -> usize {
        let of_its_own = match self {
            Order::Message { passed, .. } => passed.payload.len(),
            _ => 0,
        };
        size_of::<Order>() + of_its_own
    }
}

/// Writes what comes until it is to finish. It is flushed each second, so that its lines can be read.
fn write<W: io::Write>(
    mut scribe: Scribe<W>,
    orders: &Receiver<Order>,
    status: &Status,
    started: Instant,
) -> io::Result<End> {
    let (mut told, mut due) = (0, Instant::now() + FLUSH);
    loop {
        let order = orders.try_recv().or_else(|_| {
            thread::sleep(PAUSE);
            orders.recv_timeout(due.saturating_duration_since(Instant::now()))
        });
        let lost = status.lost.load(Relaxed);
        if lost > told {
            let t_ns = u64::try_from(started.elapsed().as_nanos()).unwrap_or(u64::MAX);
            let what = What::Lost(lost - std::mem::replace(&mut told, lost));
            scribe.write(Entry { conn: 0, t_ns, what })?;
        }
        match order {
            Ok(Order::Finish) | Err(RecvTimeoutError::Disconnected) => return scribe.finish(),
            Ok(order) => {
                status.waiting_bytes.fetch_sub(order.bytes(), Relaxed);
                match order {
                    Order::Entry(entry) => scribe.write(entry)?,
                    Order::Message { conn, t_ns, passed } => scribe.message(conn, t_ns, &passed)?,
                    Order::Finish => {}
                }
            }
            Err(RecvTimeoutError::Timeout) => {}
        }
        if Instant::now() >= due {
            scribe.flush()?;
            due = Instant::now() + FLUSH;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Reader;

    /// A recorder whose thread is the test's, with room for so many lines.
    fn recorder(lines: usize) -> (Arc<Recorder>, Receiver<Order>) {
        let (queue, orders) = sync_channel(lines);
        let recorder = Recorder {
            file: PathBuf::new(),
            started: Instant::now(),
            connections: AtomicU64::new(0),
            queue,
            status: Arc::default(),
            thread: Mutex::new(None),
        };
        (Arc::new(recorder), orders)
    }

    /// What is written once the recorder is gone.
    fn written(recorder: Arc<Recorder>, orders: &Receiver<Order>) -> (Vec<Entry>, End) {
        let (mut bytes, status) = (Vec::new(), Arc::clone(&recorder.status));
        drop(recorder);
        let scribe = Scribe::new(&mut bytes, Redaction::Pseudonyms, "a test").unwrap();
        let end = write(scribe, orders, &status, Instant::now()).unwrap();
        assert_eq!(status.waiting_bytes.load(Relaxed), 0);
        let entries = Reader::new(&bytes[..], Path::new("a")).unwrap();
        (entries.map(|entry| entry.unwrap()).collect(), end)
    }

    #[test]
    fn what_finds_no_room_is_counted_and_the_file_says_so() {
        let message = br#"["NOTICE","a"]"#;
        let (recorder, orders) = recorder(3);
        let recorded = recorder.open(None, None);
        for _ in 0..9 {
            recorded.message(Side::Relay, message.len(), Format::JSON, &[message]);
        }
        recorded.close(Some(1000), Side::Client);
        assert_eq!(recorder.status().lost.load(Relaxed), 8);
        drop(recorded);
        let (entries, end) = written(recorder, &orders);
        assert_eq!((entries[0].what.clone(), entries.len(), end.lost), (What::Lost(8), 5, 8));
    }

    #[test]
    fn the_bytes_that_wait_have_a_ceiling() {
        let (recorder, orders) = recorder(QUEUE_LINES);
        let recorded = recorder.open(None, None);
        let part = vec![b'a'; 20 << 20];
        for _ in 0..4 {
            recorded.message(Side::Relay, part.len(), Format::JSON, &[&part]);
        }
        let status = recorder.status();
        let waiting_bytes = status.waiting_bytes.load(Relaxed);
        assert!(status.lost.load(Relaxed) == 1 && waiting_bytes <= QUEUE_BYTES, "{status:?}");
        drop(recorded);
        let (entries, _) = written(recorder, &orders);
        assert_eq!(entries.len(), 6);
    }

    #[test]
    fn a_recording_that_failed_takes_no_more_and_says_why() {
        struct Full;
        impl io::Write for Full {
            fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
                // The first line finds room.
                if bytes.len() < 200 { Ok(bytes.len()) } else { Err(io::ErrorKind::StorageFull.into()) }
            }

            fn flush(&mut self) -> io::Result<()> {
                Ok(())
            }
        }
        let (recorder, orders) = recorder(QUEUE_LINES);
        let recorded = recorder.open(None, None);
        for n in 0..QUEUE_LINES as u64 {
            let noise = n.wrapping_mul(0x9e37_79b9_7f4a_7c15);
            recorded.message(Side::Relay, 9, Format::JSON, &[format!("[\"NOTICE\",\"{noise}\"]").as_bytes()]);
        }
        drop(recorded);
        let status = Arc::clone(&recorder.status);
        drop(recorder);
        let scribe = Scribe::new(Full, Redaction::None, "a test").unwrap();
        let error = write(scribe, &orders, &status, Instant::now()).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::StorageFull);
    }
}

//! `corpus fetch`: published samples of real events.

use std::{
    io::{self, Read, Write},
    path::{Path, PathBuf},
    process::ExitCode,
    time::Duration,
};

use anyhow::{Context, anyhow, bail, ensure};
use clap::ValueEnum;
use measure::WholeFile;
use sha2::{Digest, Sha256};
use wire::without_password;

use super::{Progress, must_not_exist, say, tell};

/// Longest silence before the download fails.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(30);
/// A slow line gets its time: 58 MB at 200 kB a second take five minutes.
const TOTAL_TIMEOUT: Duration = Duration::from_secs(3_600);

/// A published sample; the checksum, not the address, decides.
struct Published {
    url: &'static str,
    sha256: &'static str,
    bytes: u64,
    file: &'static str,
    /// A warning for whoever uses the file.
    caveat: &'static str,
}

/// Size and checksum as in the project's data/README.md, at the commit in the address.
const BINOSTR: Published = Published {
    url: "https://raw.githubusercontent.com/andotherstuff/binostr/ea6545cbff118450ebe6e727d72477305c545229/data/sample.pb.gz",
    sha256: "6782937ad398d79f9154851d4de95a6c3bd9bed570a301b5019df8606cd18292",
    bytes: 58_204_090,
    file: "binostr.pb.gz",
    caveat: "These are 50,000 real events of eight days of September 2025. By the project's own word it is not known which \
             relays they are from, by which filter and how they were chosen, nor whether there is a right to pass them on; \
             the licence of its code grants none. Use them for tests of your own, publish statistics only, and do not \
             take them for the network as a whole.",
};

#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Which sample.
    #[arg(value_enum)]
    sample: Sample,
    /// Output file; must not exist. The sample's name in this folder when absent.
    #[arg(long)]
    out: Option<PathBuf>,
    /// Another address of the same file, such as a mirror (http or https).
    #[arg(long)]
    url: Option<String>,
}

#[derive(Debug, Clone, Copy, ValueEnum)]
enum Sample {
    /// 50,000 real events of September 2025, 58 MB, from github.com/andotherstuff/binostr.
    Binostr,
}

pub(crate) fn run(args: &Args) -> anyhow::Result<ExitCode> {
    let published = match args.sample {
        Sample::Binostr => BINOSTR,
    };
    let out = args.out.clone().unwrap_or_else(|| published.file.into());
    must_not_exist(&out)?;
    let url = args.url.as_deref().unwrap_or(published.url);
    fetch(url, published.sha256, published.bytes, &out)?;
    let shown = without_password(url);
    say(&format!("{}: {} bytes from {shown}, SHA-256 as published", out.display(), published.bytes))?;
    tell(&format!("\n{}", published.caveat));
    Ok(ExitCode::SUCCESS)
}

/// Downloads exactly `bytes` bytes with this checksum, or leaves no file.
fn fetch(url: &str, sha256: &str, bytes: u64, out: &Path) -> anyhow::Result<()> {
    let cannot = || format!("cannot write the download {out:?}");
    let mut file = WholeFile::new(out).with_context(cannot)?;
    download(url, sha256, bytes, &mut file)?;
    file.finish().with_context(cannot)
}

fn download(url: &str, sha256: &str, bytes: u64, file: &mut impl Write) -> anyhow::Result<()> {
    let agent: ureq::Agent = ureq::Agent::config_builder()
        .timeout_connect(Some(CONNECT_TIMEOUT))
        .timeout_recv_response(Some(CONNECT_TIMEOUT))
        .timeout_global(Some(TOTAL_TIMEOUT))
        .build()
        .into();
    let shown = without_password(url);
    let response = agent.get(url).call().map_err(|error| match error {
        // It repeats the address.
        ureq::Error::BadUri(_) => {
            anyhow!("cannot fetch {shown}: it is not an address of http:// or https://")
        }
        error => anyhow!("cannot fetch {shown}: {error}"),
    })?;
    let mut body = response.into_body().into_reader();
    let mut hasher = Sha256::new();
    let mut received = 0;
    let mut progress = Progress::new("fetched", Some(bytes), "bytes");
    let mut buffer = vec![0; 64 << 10];
    loop {
        let read = match body.read(&mut buffer) {
            Ok(0) => break,
            Ok(read) => read,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
            Err(error) => bail!("{shown} ended after {received} of {bytes} bytes: {error}"),
        };
        received += read as u64;
        ensure!(received <= bytes, "{shown} is not the published file: it is longer than {bytes} bytes");
        hasher.update(&buffer[..read]);
        file.write_all(&buffer[..read]).context("cannot write the download")?;
        progress.report(received);
    }
    ensure!(received == bytes, "{shown} ended after {received} of {bytes} bytes; try again");
    let found = codecs::hex::encode(&hasher.finalize());
    ensure!(
        found == sha256,
        "{shown} is not the published file: its SHA-256 is {found}, expected {sha256}; nothing was kept"
    );
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::{
        fs,
        io::{BufRead, BufReader},
        net::TcpListener,
        thread,
    };

    use super::*;

    /// Answers one request with these bytes and returns the address.
    fn serve_once(answers: Vec<Vec<u8>>) -> String {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let url = format!("http://{}/data/sample.pb.gz", listener.local_addr().unwrap());
        thread::spawn(move || {
            for answer in answers {
                let (mut stream, _) = listener.accept().unwrap();
                let mut lines = BufReader::new(stream.try_clone().unwrap()).lines();
                while lines.next().is_some_and(|line| !line.unwrap().is_empty()) {}
                // A client that has seen enough closes.
                let _ = stream.write_all(&answer);
            }
        });
        url
    }

    fn answer(status: &str, headers: &str, body: &[u8]) -> Vec<u8> {
        [format!("HTTP/1.1 {status}\r\nConnection: close\r\n{headers}\r\n").as_bytes(), body].concat()
    }

    fn whole(body: &[u8]) -> Vec<u8> {
        answer("200 OK", &format!("Content-Length: {}\r\n", body.len()), body)
    }

    /// The outcome of `fetch` with these answers, for a file whose content should be `events`.
    fn check(answers: Vec<Vec<u8>>) -> Result<Vec<u8>, String> {
        let folder = tempfile::tempdir().unwrap();
        let out = folder.path().join("sample.pb.gz");
        let sha256 = codecs::hex::encode(&Sha256::digest(b"events"));
        let url = serve_once(answers).replace("http://", "http://me:s3cret@");
        let fetched = fetch(&url, &sha256, 6, &out);
        let left: Vec<_> =
            folder.path().read_dir().unwrap().map(|entry| entry.unwrap().file_name()).collect();
        match fetched {
            Ok(()) => {
                assert_eq!(left, ["sample.pb.gz"]);
                Ok(fs::read(out).unwrap())
            }
            Err(error) => {
                assert!(left.is_empty(), "{left:?} left behind");
                Err(format!("{error:#}"))
            }
        }
    }

    #[test]
    fn the_published_bytes_are_kept() {
        assert_eq!(check(vec![whole(b"events")]).unwrap(), b"events");
        let chunked =
            answer("200 OK", "Transfer-Encoding: chunked\r\n", b"2\r\nev\r\n4\r\nents\r\n0\r\n\r\n");
        assert_eq!(check(vec![chunked]).unwrap(), b"events");
    }

    #[test]
    fn a_file_that_came_meanwhile_is_not_overwritten() {
        let folder = tempfile::tempdir().unwrap();
        let out = folder.path().join("sample.pb.gz");
        fs::write(&out, "mine").unwrap();
        let sha256 = codecs::hex::encode(&Sha256::digest(b"events"));
        let error = fetch(&serve_once(vec![whole(b"events")]), &sha256, 6, &out).unwrap_err();
        assert!(format!("{error:#}").contains("cannot write the download"), "{error:#}");
        assert_eq!(fs::read(&out).unwrap(), b"mine");
        assert_eq!(folder.path().read_dir().unwrap().count(), 1, "nothing stays beside it");
    }

    #[test]
    fn whatever_else_comes_is_refused_and_nothing_stays() {
        for (answers, expected) in [
            (vec![whole(b"EVENTS")], "its SHA-256 is"),
            (vec![whole(b"events and more")], "longer than 6 bytes"),
            (vec![whole(b"eve")], "ended after 3 of 6 bytes"),
            (vec![answer("200 OK", "Content-Length: 6\r\n", b"even")], "ended after 4 of 6 bytes"),
            (vec![answer("404 Not Found", "Content-Length: 0\r\n", b"")], "404"),
            (vec![b"SSH-2.0-nonsense\r\n".to_vec()], "cannot fetch"),
            (vec![Vec::new()], "cannot fetch"),
        ] {
            let error = check(answers).unwrap_err();
            assert!(error.contains(expected) && !error.contains("s3cret"), "{error}");
        }
    }
}

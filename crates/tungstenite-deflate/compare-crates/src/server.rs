//! A contender's process: how it is started, measured and ended, and what it does.

use std::{
    fs,
    io::{BufRead, BufReader, Read, Write},
    net::SocketAddr,
    path::{Path, PathBuf},
    process::{self, Child, Command, Stdio},
};

use anyhow::Context as _;
use nix::{
    time::{clock_getcpuclockid, clock_gettime},
    unistd::Pid,
};
use tokio::{net::TcpListener, task::LocalSet};

use crate::contenders::{self, Contender, contenders};

/// A running contender; it ends with this value.
pub struct Server {
    pub contender: Contender,
    pub address: SocketAddr,
    child: Child,
}

impl Server {
    /// Starts the contenders of this program and of the others; those of one group side by side.
    pub fn all(others: &[PathBuf]) -> anyhow::Result<Vec<Server>> {
        let this = std::env::current_exe()?;
        let mut servers = Vec::new();
        for program in [&this].into_iter().chain(others) {
            let listed = Command::new(program).arg("contenders").output();
            let listed = listed.with_context(|| format!("cannot start {}", program.display()))?;
            let listed: Vec<Contender> = serde_json::from_slice(&listed.stdout)
                .with_context(|| format!("{} is no build of this program", program.display()))?;
            for (index, contender) in listed.into_iter().enumerate() {
                servers.push(Server::start(program, index, contender)?);
            }
        }
        servers.sort_by_key(|server| server.contender.group);
        Ok(servers)
    }

    fn start(program: &Path, index: usize, contender: Contender) -> anyhow::Result<Server> {
        let mut command = Command::new(program);
        command.args(["serve", &index.to_string()]).stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut child = command.spawn().with_context(|| format!("cannot start {}", program.display()))?;
        let mut line = String::new();
        BufReader::new(child.stdout.take().context("standard output is piped")?).read_line(&mut line)?;
        let address = line.trim().parse().with_context(|| format!("{} did not listen", contender.name))?;
        Ok(Server { contender, address, child })
    }

    /// CPU time of the process since it started.
    pub fn cpu_ns(&self) -> anyhow::Result<u64> {
        let clock = clock_getcpuclockid(Pid::from_raw(self.child.id().try_into()?))?;
        let time = clock_gettime(clock)?;
        Ok(u64::try_from(time.tv_sec())? * 1_000_000_000 + u64::try_from(time.tv_nsec())?)
    }

    pub fn resident_bytes(&self) -> anyhow::Result<u64> {
        let status = fs::read_to_string(format!("/proc/{}/status", self.child.id()))?;
        let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).context("no VmRSS")?;
        Ok(line.trim().trim_end_matches(" kB").parse::<u64>()? << 10)
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        // An error says that it has ended already.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Serves a contender on a free port of 127.0.0.1, which is printed, until standard input ends.
pub async fn serve(index: usize) -> anyhow::Result<()> {
    std::thread::spawn(|| {
        let _ = std::io::stdin().read(&mut [0]);
        process::exit(0);
    });
    let contender = contenders().into_iter().nth(index).context("no contender of this number")?;
    let listener = TcpListener::bind("127.0.0.1:0").await?;
    writeln!(std::io::stdout(), "{}", listener.local_addr()?)?;
    let pool = yawc::DeflatePool::new(64);
    LocalSet::new()
        .run_until(async {
            loop {
                let (tcp, _) = listener.accept().await?;
                let (contender, pool) = (contender.clone(), pool.clone());
                tokio::task::spawn_local(async move {
                    if let Err(error) = contenders::echo(&contender, &pool, tcp).await {
                        eprintln!("{}, {:?}: {error:#}", contender.name, contender.group);
                    }
                });
            }
        })
        .await
}

//! The machine a result belongs to. Two results compare only when this is the same.

use std::{
    fs,
    io::Read,
    path::Path,
    process::{Command, Stdio},
    sync::mpsc,
    thread,
    time::Duration,
};

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::{CpuQuota, QuotaMeter};

/// For chronyc to answer: it asks a daemon of this machine, which may hang.
const ANSWERS_WITHIN: Duration = Duration::from_secs(1);

/// Properties of the machine that can change a result. A field that the system does not report is
/// empty, never guessed.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Environment {
    /// The processor's name; of one without, as on ARM, the numbers of its maker and part.
    pub cpu: Option<String>,
    /// Cores this process may use.
    pub cores: u64,
    /// The CPU quota of this process's control groups, a relay of our own included, and what it
    /// took during the run.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cpu_quota: Option<CpuQuota>,
    /// True when the processor reports a hypervisor: neighbours may take time.
    pub virtual_machine: Option<bool>,
    /// The frequency governor of the first core.
    pub governor: Option<String>,
    /// Main memory.
    pub memory_bytes: Option<u64>,
    /// The operating system's name.
    pub os: Option<String>,
    /// The kernel's release.
    pub kernel: Option<String>,
    /// The machine's load over the last minute, when the run began.
    pub load_1_minute: Option<f64>,
    /// The service that keeps its clock: chrony, systemd-timesyncd, PTP clocks. Nothing relies on
    /// it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub clock_sync: Option<String>,
    /// The compiler that built this program; of a static one also its target and its allocator.
    pub rustc: Option<String>,
    /// True for an optimised build; anything else is not worth comparing.
    pub optimised: bool,
}

impl Environment {
    /// Whether another reading is of this machine, of which load and clock may have changed.
    pub fn is_same_machine(&self, other: &Environment) -> bool {
        let machine = |one: &Environment| {
            let cpu_quota =
                one.cpu_quota.map(|CpuQuota { cores, .. }| CpuQuota { cores, ..CpuQuota::default() });
            Environment { cpu_quota, load_1_minute: None, clock_sync: None, ..one.clone() }
        };
        machine(self) == machine(other)
    }

    /// The cores, with the quota that leaves less of them.
    pub fn cores_text(&self) -> String {
        let quota = self.cpu_quota.map(|quota| format!(" (CPU quota {:.2})", quota.cores));
        format!("{} cores{}", self.cores, quota.unwrap_or_default())
    }

    /// Asks the running system.
    pub fn collect() -> Environment {
        let cpuinfo = fs::read_to_string("/proc/cpuinfo").ok();
        let field = |name: &str| Some(after(cpuinfo.as_deref()?, name, ':')?.to_owned());
        Environment {
            cpu: field("model name")
                .or_else(|| {
                    Some(format!("implementer {}, part {}", field("CPU implementer")?, field("CPU part")?))
                })
                .or_else(|| sysctl("machdep.cpu.brand_string")),
            cores: thread::available_parallelism().map_or(1, |cores| cores.get() as u64),
            cpu_quota: QuotaMeter::of_this_process().read(),
            virtual_machine: field("flags")
                .map(|flags| flags.split(' ').any(|flag| flag == "hypervisor"))
                .or_else(|| Some(sysctl("kern.hv_vmm_present")? == "1")),
            governor: line("/sys/devices/system/cpu/cpu0/cpufreq/scaling_governor"),
            memory_bytes: memory_bytes(),
            os: os_name().or_else(|| Some(format!("macOS {}", sysctl("kern.osproductversion")?))),
            kernel: line("/proc/sys/kernel/osrelease").or_else(|| sysctl("kern.osrelease")),
            load_1_minute: line("/proc/loadavg")
                .or_else(|| sysctl("vm.loadavg"))
                .and_then(|text| first_load(&text)),
            clock_sync: clock_sync(),
            rustc: Environment::rustc().map(str::to_owned),
            optimised: Environment::is_optimised(),
        }
    }

    /// The compiler of this program, where its build noted it; asks nothing of the system.
    pub fn rustc() -> Option<&'static str> {
        option_env!("MEASURE_RUSTC")
    }

    /// Whether this build is optimised; asks nothing of the system.
    pub fn is_optimised() -> bool {
        !cfg!(debug_assertions)
    }
}

fn line(path: &str) -> Option<String> {
    Some(fs::read_to_string(path).ok()?.trim().to_owned())
}

/// The value behind the first `name` and separator at a line's beginning.
fn after<'a>(text: &'a str, name: &str, separator: char) -> Option<&'a str> {
    text.lines().find_map(|line| {
        let (key, value) = line.split_once(separator)?;
        (key.trim() == name).then(|| value.trim())
    })
}

/// A value of sysctl(8): macOS has them where Linux has files.
fn sysctl(name: &str) -> Option<String> {
    if !cfg!(target_os = "macos") {
        return None;
    }
    let said = said_within(ANSWERS_WITHIN, Command::new("/usr/sbin/sysctl").args(["-n", name]))?;
    Some(said.trim().to_owned()).filter(|value| !value.is_empty())
}

/// The load of the last minute, which is the first of three; macOS has braces around them.
fn first_load(text: &str) -> Option<f64> {
    text.trim_start_matches(['{', ' ']).split(' ').next()?.parse().ok()
}

/// Main memory.
pub(super) fn memory_bytes() -> Option<u64> {
    let Ok(meminfo) = fs::read_to_string("/proc/meminfo") else { return sysctl("hw.memsize")?.parse().ok() };
    let kib: u64 = after(&meminfo, "MemTotal", ':')?.strip_suffix(" kB")?.parse().ok()?;
    Some(kib * 1024)
}

fn os_name() -> Option<String> {
    let release = fs::read_to_string("/etc/os-release").ok()?;
    Some(after(&release, "PRETTY_NAME", '=')?.trim_matches('"').to_owned())
}

/// The daemon that keeps the clock, and the PTP clocks that the kernel has.
fn clock_sync() -> Option<String> {
    let is_synchronized = Path::new("/run/systemd/timesync/synchronized").exists();
    let timesyncd = || is_synchronized.then(|| "systemd-timesyncd: synchronized".to_owned());
    let all: Vec<String> = chrony().or_else(timesyncd).into_iter().chain(ptp_clocks()).collect();
    (!all.is_empty()).then(|| all.join("; "))
}

fn chrony() -> Option<String> {
    // By numbers: a name server that does not answer would hold up the run.
    tracking(&said_within(ANSWERS_WITHIN, Command::new("chronyc").args(["-c", "-n", "tracking"]))?)
}

/// Output of a program; `None` of one that goes on after this time, which is killed.
fn said_within(limit: Duration, command: &mut Command) -> Option<String> {
    let piped = command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::null());
    let mut child = piped.spawn().ok()?;
    let stdout = child.stdout.take();
    let (tell, told) = mpsc::channel();
    thread::spawn(move || {
        let mut said = String::new();
        let whole = stdout.is_some_and(|mut stdout| stdout.read_to_string(&mut said).is_ok());
        // Nobody waits any more for what comes late.
        let _ = tell.send(whole.then_some(said));
    });
    let said = told.recv_timeout(limit);
    // Does nothing to a program that has ended.
    let _ = child.kill();
    let _ = child.wait();
    said.ok().flatten()
}

/// Stratum and leap status, which change seldom, of the 14 values of `chronyc -c tracking`.
fn tracking(said: &str) -> Option<String> {
    let values: Vec<&str> = said.trim_end().split(',').collect();
    let stratum: u8 = values.get(2)?.parse().ok()?;
    Some(format!("chrony: stratum {stratum}, {}", values.get(13)?))
}

/// Whether one of them keeps the clock is unknown.
fn ptp_clocks() -> Option<String> {
    let clocks = fs::read_dir("/sys/class/ptp").ok()?;
    let name = |clock: fs::DirEntry| line(clock.path().join("clock_name").to_str()?);
    let mut names: Vec<String> = clocks.filter_map(|clock| name(clock.ok()?)).collect();
    names.sort();
    (!names.is_empty()).then(|| format!("PTP clocks: {}", names.join(", ")))
}

#[cfg(test)]
mod tests {
    use std::time::Instant;

    use super::*;

    #[test]
    fn the_running_system_is_described() {
        let environment = Environment::collect();
        assert!(environment.cores >= 1);
        assert!(environment.kernel.is_some_and(|kernel| !kernel.is_empty()));
        assert!(environment.memory_bytes.is_some_and(|bytes| bytes > 1 << 20));
        assert!(environment.rustc.is_some_and(|rustc| rustc.starts_with("rustc 1.")));
    }

    #[test]
    fn chrony_is_described_by_what_changes_seldom() {
        let values = "7F7F0101,,10,1763931600.102938475,0.000001412,-0.000002006,0.000003011,-4.523,0.001,\
             0.021,0.000390625,0.000020107,64.2,";
        for status in ["Normal", "Not synchronised"] {
            let said = tracking(&format!("{values}{status}\n"));
            assert_eq!(said, Some(format!("chrony: stratum 10, {status}")));
        }
        for other in ["", "506 Cannot talk to daemon\n", "a,b,c", "a,b,3,d"] {
            assert_eq!(tracking(other), None, "{other}");
        }
    }

    #[test]
    fn a_program_that_hangs_is_killed_and_says_nothing() {
        let said = |limit_ms, script: &str| {
            said_within(Duration::from_millis(limit_ms), Command::new("sh").args(["-c", script]))
        };
        assert_eq!(said(60_000, "echo 1,2; echo 3 >&2").as_deref(), Some("1,2\n"));
        assert_eq!(said(60_000, "printf '\\377'"), None, "no text");
        let since = Instant::now();
        // Earlier output counts for nothing, and closing its output does not let it go on.
        assert_eq!(said(100, "echo 1,2; exec sleep 600"), None);
        assert_eq!(said(60_000, "exec sleep 600 >&-").as_deref(), Some(""));
        assert!(since.elapsed() < Duration::from_secs(300), "it was waited for");
        assert_eq!(said_within(ANSWERS_WITHIN, &mut Command::new("there-is-no-such-program")), None);
    }

    #[test]
    fn a_machine_is_the_same_with_another_load_and_clock() {
        let environment = Environment::collect();
        let clock_sync = Some("chrony: stratum 3, Normal".to_owned());
        let later = Environment { load_1_minute: Some(9.5), clock_sync, ..environment.clone() };
        assert!(environment.is_same_machine(&later));
        let quota = |cores, throttled_ns| {
            let cpu_quota = Some(CpuQuota { cores, throttled_ns, ..CpuQuota::default() });
            Environment { cpu_quota, ..environment.clone() }
        };
        assert!(
            quota(0.5, 1).is_same_machine(&quota(0.5, 9)) && !quota(0.5, 0).is_same_machine(&quota(1.0, 0))
        );
        assert!(!environment.is_same_machine(&Environment { cores: 99_999, ..environment.clone() }));
    }
}

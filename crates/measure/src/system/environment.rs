//! The machine a result belongs to. Two results compare only when this is the same.

use std::{fs, process::Command, thread};

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::{CpuQuota, QuotaMeter};

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
    /// The compiler that built this program; of a static one also its target and its allocator.
    pub rustc: Option<String>,
    /// True for an optimised build; anything else is not worth comparing.
    pub optimised: bool,
}

impl Environment {
    /// Whether another reading is of this machine.
    pub fn is_same_machine(&self, other: &Environment) -> bool {
        let machine = |one: &Environment| {
            let cpu_quota =
                one.cpu_quota.map(|CpuQuota { cores, .. }| CpuQuota { cores, ..CpuQuota::default() });
            Environment { cpu_quota, ..one.clone() }
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
    let said = Command::new("/usr/sbin/sysctl").args(["-n", name]).output().ok()?;
    let value = String::from_utf8(said.stdout).ok()?;
    Some(value.trim().to_owned()).filter(|value| !value.is_empty())
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

#[cfg(test)]
mod tests {
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
    fn a_machine_is_the_same_whatever_its_quota_took() {
        let environment = Environment::collect();
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

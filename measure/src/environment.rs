//! The machine a result belongs to. Two results compare only when this is the same.

use std::{fs, thread};

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// What of the machine can change a result. A field that the system does not report is empty, never
/// guessed.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Environment {
    /// The processor's name.
    pub cpu: Option<String>,
    /// Cores this process may use.
    pub cores: u64,
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
    /// The compiler that built this program.
    pub rustc: Option<String>,
    /// True for an optimised build; anything else is not worth comparing.
    pub optimised: bool,
}

impl Environment {
    /// Whether another reading is of this machine, whose load may have changed.
    pub fn is_same_machine(&self, other: &Environment) -> bool {
        let machine = |one: &Environment| Environment { load_1_minute: None, ..one.clone() };
        machine(self) == machine(other)
    }

    /// Asks the running system.
    pub fn collect() -> Environment {
        let cpuinfo = fs::read_to_string("/proc/cpuinfo").ok();
        let field = |name: &str| Some(after(cpuinfo.as_deref()?, name, ':')?.to_owned());
        Environment {
            cpu: field("model name"),
            cores: thread::available_parallelism().map_or(1, |cores| cores.get() as u64),
            virtual_machine: field("flags").map(|flags| flags.split(' ').any(|flag| flag == "hypervisor")),
            governor: line("/sys/devices/system/cpu/cpu0/cpufreq/scaling_governor"),
            memory_bytes: memory_bytes(),
            os: os_name(),
            kernel: line("/proc/sys/kernel/osrelease"),
            load_1_minute: line("/proc/loadavg").and_then(|text| text.split(' ').next()?.parse().ok()),
            rustc: option_env!("MEASURE_RUSTC").map(str::to_owned),
            optimised: !cfg!(debug_assertions),
        }
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

fn memory_bytes() -> Option<u64> {
    let meminfo = fs::read_to_string("/proc/meminfo").ok()?;
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
}

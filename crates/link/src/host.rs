//! Network namespaces of this process, without privileges if the host allows it, and the remedy if
//! it does not.

use std::{fs, io, os::unix::fs::MetadataExt, path::Path};

use nix::{
    errno::Errno,
    sched::{CloneFlags, setns, unshare},
    sys::socket::SockFlag,
};

/// Flags of a socket that no program inherits.
pub(crate) const CLOSE_ON_EXEC: SockFlag = SockFlag::SOCK_CLOEXEC;

/// The device from which TUN devices are made.
const TUN: &str = "/dev/net/tun";

/// Why links cannot be emulated on this host, and what helps.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("this host cannot emulate links: {what}. {remedy}")]
pub struct NotPossible {
    what: String,
    remedy: String,
}

impl NotPossible {
    /// A failed step, with the setting that forbids it, if one does.
    pub(crate) fn from_error(step: &str, error: &io::Error) -> NotPossible {
        NotPossible { what: format!("{step}: {error}"), remedy: remedy(&Settings::read(), error) }
    }
}

/// The settings that forbid namespaces or devices; `None` if the host has no such setting.
#[derive(Debug, Default)]
struct Settings {
    /// Ubuntu's rule that namespaces of unprivileged users have no rights.
    apparmor: Option<String>,
    /// Debian's switch.
    unprivileged: Option<String>,
    /// The most user namespaces.
    most: Option<String>,
    /// Whether the TUN driver is there.
    has_tun: bool,
    /// Whether this process may open it.
    may_open_tun: bool,
}

impl Settings {
    fn read() -> Settings {
        let read = |path: &str| fs::read_to_string(path).ok().map(|text| text.trim().to_owned());
        Settings {
            apparmor: read("/proc/sys/kernel/apparmor_restrict_unprivileged_userns"),
            unprivileged: read("/proc/sys/kernel/unprivileged_userns_clone"),
            most: read("/proc/sys/user/max_user_namespaces"),
            has_tun: Path::new(TUN).exists(),
            may_open_tun: fs::OpenOptions::new().read(true).write(true).open(TUN).is_ok(),
        }
    }
}

/// The remedy for a failure.
fn remedy(settings: &Settings, error: &io::Error) -> String {
    let is = |setting: &Option<String>, value: &str| setting.as_deref() == Some(value);
    let denied = [Errno::EPERM, Errno::EACCES].map(|errno| errno as i32);
    let denied = error.raw_os_error().is_some_and(|errno| denied.contains(&errno));
    let advice = match () {
        () if is(&settings.most, "0") => "Allow user namespaces: sudo sysctl user.max_user_namespaces=10000",
        () if is(&settings.unprivileged, "0") => {
            "Allow user namespaces: sudo sysctl kernel.unprivileged_userns_clone=1"
        }
        () if is(&settings.apparmor, "1") && denied => {
            "AppArmor takes their rights from unprivileged namespaces: sudo sysctl \
             kernel.apparmor_restrict_unprivileged_userns=0, a profile with `userns,` for this program, or sudo"
        }
        () if !settings.has_tun => {
            "/dev/net/tun is missing: sudo modprobe tun, or docker run --device /dev/net/tun"
        }
        () if !settings.may_open_tun => "/dev/net/tun is closed to this user: sudo chmod 666 /dev/net/tun",
        () if denied => {
            "A sandbox may forbid it: docker run --cap-add NET_ADMIN --cap-add SYS_ADMIN --device /dev/net/tun \
             --security-opt seccomp=unconfined, or sudo"
        }
        () => "The rest of the program works without --link",
    };
    advice.to_owned()
}

/// Moves this process to a network namespace of its own. Without privileges it also gets a user
/// namespace, in which it has them. Call it before the first thread starts (unshare(2)).
///
/// # Errors
/// [`NotPossible`], with what the host needs.
pub fn enter() -> Result<(), NotPossible> {
    if !Path::new(TUN).exists() {
        let missing = io::Error::from_raw_os_error(Errno::ENOENT as i32);
        return Err(NotPossible::from_error(TUN, &missing));
    }
    // Root needs no user namespace.
    if unshare(CloneFlags::CLONE_NEWNET).is_ok() {
        return Ok(());
    }
    let (uid, gid) = fs::metadata("/proc/self")
        .map(|own| (own.uid(), own.gid()))
        .map_err(|error| NotPossible::from_error("who runs this process", &error))?;
    unshare(CloneFlags::CLONE_NEWUSER | CloneFlags::CLONE_NEWNET).map_err(|errno| {
        NotPossible::from_error("a user namespace with a network of its own", &errno.into())
    })?;
    // user_namespaces(7): the map of groups may only be written when setgroups(2) is given up.
    let files = [
        ("/proc/self/setgroups", "deny".to_owned()),
        ("/proc/self/uid_map", format!("0 {uid} 1")),
        ("/proc/self/gid_map", format!("0 {gid} 1")),
    ];
    for (file, text) in files {
        fs::write(file, text).map_err(|error| NotPossible::from_error(file, &error))?;
    }
    Ok(())
}

/// Moves the calling thread, and the threads and processes that it starts later, to the network
/// namespace of a process.
///
/// # Errors
/// When that process has ended or may not be looked at.
pub(crate) fn join(pid: u32) -> io::Result<()> {
    let namespace = fs::File::open(format!("/proc/{pid}/ns/net"))?;
    Ok(setns(namespace, CloneFlags::CLONE_NEWNET)?)
}

/// Moves the calling thread to another new network namespace.
///
/// # Errors
/// When the system refuses.
pub(crate) fn leave() -> io::Result<()> {
    Ok(unshare(CloneFlags::CLONE_NEWNET)?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_host_that_forbids_namespaces_hears_what_helps() {
        let open = || Settings { has_tun: true, may_open_tun: true, ..Settings::default() };
        let zero = || Some("0".to_owned());
        let cases = [
            (Settings { most: zero(), ..open() }, Errno::ENOSPC, "user.max_user_namespaces=10000"),
            (Settings { unprivileged: zero(), ..open() }, Errno::EPERM, "unprivileged_userns_clone=1"),
            (Settings { apparmor: Some("1".to_owned()), ..open() }, Errno::EACCES, "apparmor_restrict"),
            (Settings { has_tun: false, may_open_tun: false, ..open() }, Errno::ENOENT, "modprobe tun"),
            (Settings { may_open_tun: false, ..open() }, Errno::EACCES, "chmod 666 /dev/net/tun"),
            (open(), Errno::EPERM, "docker run --cap-add"),
            (open(), Errno::ENOMEM, "works without --link"),
        ];
        for (settings, errno, says) in cases {
            let advice = remedy(&settings, &errno.into());
            assert!(advice.contains(says), "{settings:?}: {advice}");
        }
    }
}

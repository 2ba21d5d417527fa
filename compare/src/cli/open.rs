//! `compare run --open`: the report in the browser of who sits here.

use std::{
    env,
    os::unix::process::CommandExt,
    path::Path,
    process::{Command, Stdio},
    thread,
    time::{Duration, Instant},
};

/// The opener of desktops.
const OPENER: &str = if cfg!(target_os = "macos") { "open" } else { "xdg-open" };

/// Where one of these is set, and on macOS, the opener has a screen, or was told a browser. Without
/// a screen it takes a browser of the terminal, which has none here.
const SCREENS: [&str; 3] = ["DISPLAY", "WAYLAND_DISPLAY", "BROWSER"];

/// How long the opener has to say that it cannot; one that shows the page itself lives longer.
const PATIENCE: Duration = Duration::from_secs(2);

/// Opens a page, or says where it is.
pub(super) fn page(page: &Path) {
    let is_set = |name: &&str| env::var_os(name).is_some_and(|value| !value.is_empty());
    let has_screen = cfg!(target_os = "macos") || SCREENS.iter().any(is_set);
    let mut opener = Command::new(OPENER);
    if !has_screen || !opens(opener.arg(page), PATIENCE) {
        program::report(&format!("no browser to open it in ({OPENER}): {}", page.display()));
    }
}

/// Whether the opener starts, and does not end with an error in that time.
fn opens(opener: &mut Command, patience: Duration) -> bool {
    opener.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    // A browser outlives this program, and the Ctrl-C that ends the next one.
    let Ok(mut child) = opener.process_group(0).spawn() else { return false };
    let began = Instant::now();
    while began.elapsed() < patience {
        match child.try_wait() {
            Ok(Some(status)) => return status.success(),
            Ok(None) => thread::sleep(Duration::from_millis(20)),
            Err(_) => return false,
        }
    }
    true
}

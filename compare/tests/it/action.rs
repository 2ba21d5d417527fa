//! The GitHub Action: `deploy/action.sh` with a `compare` that notes its arguments, and action.yml,
//! which calls it.

use std::{
    fs::{self, Permissions},
    os::unix::fs::PermissionsExt,
    path::{Path, PathBuf},
    process::Command,
};

use flate2::{Compression, write::GzEncoder};
use sha2::{Digest, Sha256};
use tempfile::TempDir;

use crate::ran::{Ran, Runs};

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap().to_owned()
}

/// A runner's folder, with a `compare` that writes a summary where the real one does.
struct Runner(TempDir);

impl Runner {
    fn new() -> Runner {
        let runner = Runner(TempDir::new().unwrap());
        runner.program(
            "compare",
            &compare_that("mkdir -p \"$out/day\"; echo '# slower' >\"$out/day/summary.md\""),
        );
        fs::write(runner.path("step-summary"), "before\n").unwrap();
        runner
    }

    fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    fn program(&self, name: &str, text: &str) {
        fs::write(self.path(name), text).unwrap();
        fs::set_permissions(self.path(name), Permissions::from_mode(0o755)).unwrap();
    }

    fn read(&self, name: &str) -> String {
        fs::read_to_string(self.path(name)).unwrap_or_default()
    }

    /// Runs the script as a runner does, with these variables beside those of the action.
    fn run(&self, variables: &[(&str, &str)]) -> Ran {
        let mut script = Command::new(root().join("deploy/action.sh"));
        script.current_dir(self.0.path()).env_remove("COMPARE").env("NOTED", self.path("noted"));
        for (name, file) in [("GITHUB_STEP_SUMMARY", "step-summary"), ("GITHUB_OUTPUT", "outputs")] {
            script.env(name, self.path(file));
        }
        script.env("OUT", "results").env("RUNNER_TEMP", self.0.path()).env("BASE", "./old {address}");
        script.env("HEAD", "./new {address}").envs(variables.iter().copied()).ran()
    }

    fn compared(&self, code: &str, variables: &[(&str, &str)]) -> Ran {
        let compare = self.path("compare");
        let standing = [("COMPARE", compare.to_str().unwrap()), ("CODE", code)];
        self.run(&[&standing, variables].concat())
    }
}

/// A script that notes its arguments in the file `NOTED`, acts, and ends with `CODE`.
fn compare_that(acts: &str) -> String {
    format!(
        "#!/usr/bin/env bash\nprintf '%s\\n' \"$@\" >\"$NOTED\"\nwhile [ \"$1\" != --out ]; do shift; done\n\
         out=$2; junit=$4\n{acts}\necho '<testsuites/>' >\"$junit\"\nexit \"${{CODE:-0}}\"\n"
    )
}

#[test]
fn the_action_passes_inputs_on_as_they_are() {
    let runner = Runner::new();
    let hostile = r#"./old "a b" $(touch hit) `touch hit`; touch hit {port}"#;
    let given = [
        ("BASE", hostile),
        ("SCENARIO", "mixed-day"),
        ("ROUNDS", "6"),
        ("BLOCK_SECONDS", "2"),
        ("FAIL_ON", "relay CPU>3%\n\np99>10%\n"),
    ];
    runner.compared("0", &given).ended(0);
    let base = format!("base={hostile}");
    let expected = [
        "run",
        "--relay",
        &base,
        "--relay",
        "head=./new {address}",
        "--out",
        "results",
        "--junit",
        "results/junit.xml",
        "--scenario",
        "mixed-day",
        "--rounds",
        "6",
        "--seconds",
        "2",
        "--fail-on",
        "relay CPU>3%",
        "--fail-on",
        "p99>10%",
    ];
    assert_eq!(runner.read("noted").lines().collect::<Vec<_>>(), expected);
    assert!(!runner.path("hit").exists());
    assert_eq!(runner.read("step-summary"), "before\n# slower\n");
    assert_eq!(runner.read("outputs"), "exit-code=0\njunit=results/junit.xml\n");
}

#[test]
fn the_action_ends_as_compare_does() {
    for (code, told) in
        [("100", "relay head is worse than base"), ("3", "exit code 3;"), ("4", "exit code 4;")]
    {
        let runner = Runner::new();
        let done = runner.compared(code, &[("ROUNDS", ""), ("FAIL_ON", "")]);
        assert_eq!(done.code.unwrap().to_string(), code);
        let noted = runner.read("noted");
        for flag in ["--scenario", "--rounds", "--seconds", "--fail-on"] {
            assert!(!noted.contains(flag), "{noted}");
        }
        done.saying(&["::error::", told]);
        assert!(runner.read("step-summary").ends_with("# slower\n"));
        assert!(runner.read("outputs").contains(&format!("exit-code={code}\n")));
    }
}

#[test]
fn the_action_names_the_input_that_is_wrong_and_says_when_there_is_no_summary() {
    let runner = Runner::new();
    fs::create_dir(runner.path("full")).unwrap();
    fs::write(runner.path("full/summary.md"), "of an earlier run\n").unwrap();
    for (name, value, told) in [
        ("BASE", "", "input base is empty"),
        ("HEAD", "", "input head is empty"),
        ("OUT", "full", "the folder full is not empty"),
    ] {
        runner.compared("0", &[(name, value)]).ended(2).saying(&[told]);
    }
    assert!(!runner.path("noted").exists() && runner.read("step-summary") == "before\n");
    runner.program("compare", "#!/bin/sh\necho 'unknown scenario' >&2\nexit 2\n");
    runner.compared("2", &[]).ended(2).saying(&["unknown scenario"]);
    let summary = runner.read("step-summary");
    assert!(summary.contains("ended with exit code 2 before it had a summary"), "{summary}");
    assert_eq!(runner.read("outputs"), "exit-code=2\n");
}

#[test]
#[ignore = "needs curl"]
fn the_action_runs_a_release_fetched_by_curl_only_by_its_checksum() {
    let machine = Command::new("uname").arg("-m").ran();
    let target = format!("{}-unknown-linux-musl", machine.out.trim());
    let version = env!("CARGO_PKG_VERSION");
    let name = format!("nostr-load-test-{version}-{target}");
    let runner = Runner::new();
    let release = runner.path(&format!("releases/v{version}"));
    fs::create_dir_all(&release).unwrap();
    let mut archive =
        tar(&format!("{name}/bin/compare"), &compare_that("echo released >\"$out/summary.md\""));
    let sum: String = Sha256::digest(&archive).iter().map(|byte| format!("{byte:02x}")).collect();
    fs::write(release.join("SHA256SUMS"), format!("{sum}  {name}.tar.gz\n")).unwrap();
    let file = release.join(format!("{name}.tar.gz"));
    let releases = format!("file://{}", runner.path("releases").display());
    let fetched = || runner.run(&[("RELEASES", &releases), ("VERSION", ""), ("CODE", "100")]);

    fetched().ended(2).saying(&[&format!("cannot fetch {name}.tar.gz")]);

    archive.push(0);
    fs::write(&file, &archive).unwrap();
    fetched().ended(2).saying(&["is not the file that SHA256SUMS"]);
    assert!(!runner.path("noted").exists());

    archive.pop();
    fs::write(&file, &archive).unwrap();
    fetched().ended(100);
    assert_eq!(runner.read("step-summary"), "before\nreleased\n");
}

#[test]
fn the_action_fetches_releases_of_its_own_repository() {
    let runner = Runner::new();
    let path = format!("{}:{}", runner.0.path().display(), std::env::var("PATH").unwrap());
    runner.program("curl", "#!/bin/sh\necho \"$@\" >\"$NOTED\"\nexit 6\n");
    for (action_path, from) in
        [("/__w/_actions/us/relay-sim/v1", "us/relay-sim"), ("/__w/my-relay/my-relay", "me/my-relay")]
    {
        let variables = [("GITHUB_REPOSITORY", "me/my-relay"), ("GITHUB_SERVER_URL", "https://git.example")];
        let more = [("GITHUB_ACTION_PATH", action_path), ("PATH", &path)];
        runner.run(&[&variables[..], &more].concat()).saying(&["cannot fetch SHA256SUMS"]);
        let noted = runner.read("noted");
        let expected = format!("https://git.example/{from}/releases/download/v");
        assert!(noted.contains(&expected), "{noted}");
    }
}

/// A compressed archive of one program, by the program `tar`.
fn tar(path: &str, text: &str) -> Vec<u8> {
    let folder = TempDir::new().unwrap();
    let file = folder.path().join(path);
    fs::create_dir_all(file.parent().unwrap()).unwrap();
    fs::write(&file, text).unwrap();
    fs::set_permissions(&file, Permissions::from_mode(0o755)).unwrap();
    let packed = Command::new("tar").args(["--create", "--directory"]).arg(folder.path()).arg(path).output();
    let packed = packed.unwrap();
    assert!(packed.status.success(), "{}", String::from_utf8_lossy(&packed.stderr));
    let mut archive = GzEncoder::new(Vec::new(), Compression::fast());
    std::io::Write::write_all(&mut archive, &packed.stdout).unwrap();
    archive.finish().unwrap()
}

#[test]
fn no_input_is_part_of_a_script() {
    let action = fs::read_to_string(root().join("action.yml")).unwrap();
    let runs: Vec<&str> = action.lines().filter(|line| line.trim_start().starts_with("run:")).collect();
    assert_eq!(runs, ["      run: '\"$GITHUB_ACTION_PATH/deploy/action.sh\"'"]);
}

use std::process::Command;

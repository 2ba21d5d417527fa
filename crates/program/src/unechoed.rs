//! Values of flags that may hold a password.

use std::{ffi::OsStr, fmt, marker::PhantomData, str::FromStr};

use clap::{Arg, Command, builder::TypedValueParser, error::ErrorKind};

/// Reads a value. The error is the type's own, because clap's would repeat the whole value.
#[derive(Debug)]
pub struct Unechoed<T>(PhantomData<fn() -> T>);

impl<T> Unechoed<T> {
    /// The only one.
    pub const NEW: Unechoed<T> = Unechoed(PhantomData);
}

impl<T> Clone for Unechoed<T> {
    fn clone(&self) -> Self {
        Unechoed::NEW
    }
}

impl<T> TypedValueParser for Unechoed<T>
where
    T: FromStr<Err: fmt::Display> + Clone + Send + Sync + 'static,
{
    type Value = T;

    fn parse_ref(&self, command: &Command, arg: Option<&Arg>, value: &OsStr) -> Result<T, clap::Error> {
        let refused = |why: &dyn fmt::Display| {
            let flag = arg.map(|arg| format!("{arg}: ")).unwrap_or_default();
            clap::Error::raw(ErrorKind::ValueValidation, format!("{flag}{why}\n")).with_cmd(command)
        };
        let text = value.to_str().ok_or_else(|| refused(&"the value is not UTF-8"))?;
        text.parse().map_err(|error: T::Err| refused(&error))
    }
}

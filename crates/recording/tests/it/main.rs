//! Recordings as their readers find them: whole, cut off, damaged and hostile.

mod file;

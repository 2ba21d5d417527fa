//! Wall-clock times as text. They label files; no duration is computed from them.

use std::time::SystemTime;

use time::OffsetDateTime;

/// `2026-11-21T08:05:09Z`, for records and reports.
pub fn format(time: SystemTime) -> String {
    let at = OffsetDateTime::from(time);
    let (date, time) = (at.date(), at.time());
    let month = u8::from(date.month());
    let [hour, minute, second] = [time.hour(), time.minute(), time.second()];
    format!("{:04}-{month:02}-{:02}T{hour:02}:{minute:02}:{second:02}Z", date.year(), date.day())
}

/// `20261121T080509Z`, for names of files and folders.
pub fn compact(time: SystemTime) -> String {
    format(time).replace(['-', ':'], "")
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::{Duration, UNIX_EPOCH};

    #[test]
    fn times_are_written_in_utc() {
        let leap_day = UNIX_EPOCH + Duration::from_secs(951_782_409);
        assert_eq!(
            (format(leap_day), compact(leap_day)),
            ("2000-02-29T00:00:09Z".into(), "20000229T000009Z".into())
        );
    }
}

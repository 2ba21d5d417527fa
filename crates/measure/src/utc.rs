//! Wall-clock times as text. They label files; no duration is computed from them.

use std::time::{SystemTime, UNIX_EPOCH};

/// `2026-11-21T08:05:09Z`, for records and reports.
pub fn format(time: SystemTime) -> String {
    let [year, month, day, hour, minute, second] = parts(time);
    format!("{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}Z")
}

/// `20261121T080509Z`, for names of files and folders.
pub fn compact(time: SystemTime) -> String {
    format(time).replace(['-', ':'], "")
}

/// Times before 1970 are written as 1970.
fn parts(time: SystemTime) -> [u64; 6] {
    let seconds = time.duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs());
    let (days, second) = (seconds / 86_400, seconds % 86_400);
    // Howard Hinnant, "chrono-compatible low-level date algorithms": civil_from_days, for days
    // since 1970. Years begin in March there, so that the leap day is the last of its year.
    let days = days + 719_468;
    let (era, day_of_era) = (days / 146_097, days % 146_097);
    let year_of_era = (day_of_era - day_of_era / 1_460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let month = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * month + 2) / 5 + 1;
    let month = if month < 10 { month + 3 } else { month - 9 };
    let year = year_of_era + era * 400 + u64::from(month <= 2);
    [year, month, day, second / 3_600, second / 60 % 60, second % 60]
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    #[test]
    fn dates_match_the_calendar() {
        for (seconds, text) in [
            (0, "1970-01-01T00:00:00Z"),
            (951_782_399, "2000-02-28T23:59:59Z"),
            (951_782_400, "2000-02-29T00:00:00Z"),
            (951_868_800, "2000-03-01T00:00:00Z"),
            (1_709_164_800, "2024-02-29T00:00:00Z"),
            (1_735_689_599, "2024-12-31T23:59:59Z"),
            (4_107_542_400, "2100-03-01T00:00:00Z"),
        ] {
            assert_eq!(format(UNIX_EPOCH + Duration::from_secs(seconds)), text);
        }
        assert_eq!(compact(UNIX_EPOCH + Duration::from_secs(951_782_399)), "20000228T235959Z");
    }
}

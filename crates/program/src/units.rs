//! Amounts on a command line, with their units or without.

/// Seconds above 0, as in 10, 10s, 500ms, 2m or 1h.
///
/// # Errors
/// Says what would be an amount.
pub fn seconds(text: &str) -> Result<f64, String> {
    let units = [("ms", 1e-3), ("min", 60.0), ("s", 1.0), ("m", 60.0), ("h", 3_600.0), ("", 1.0)];
    let amount = amount(text, &units).filter(|seconds| seconds.is_finite() && *seconds > 0.0);
    amount.ok_or_else(|| "expected seconds above 0, as in 10, 10s, 500ms, 2m or 1h".to_owned())
}

/// Seconds from 1 to 3600.
///
/// # Errors
/// Says what would be an amount.
pub fn pause_seconds(text: &str) -> Result<f64, String> {
    let pause = seconds(text).ok().filter(|seconds| (1.0..=3600.0).contains(seconds));
    pause.ok_or_else(|| "expected seconds from 1 to 3600, as in 20, 20s or 2min".to_owned())
}

/// Whole seconds from 1 to 3600.
///
/// # Errors
/// Says what would be an amount.
pub fn whole_seconds(text: &str) -> Result<u32, String> {
    let whole =
        seconds(text).ok().filter(|seconds| seconds.fract() == 0.0 && (1.0..=3600.0).contains(seconds));
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "whole and at most 3600")]
    let whole = whole.map(|seconds| seconds as u32);
    whole.ok_or_else(|| "expected whole seconds from 1 to 3600, as in 10, 10s or 2min".to_owned())
}

/// Bytes, as in 65536, 64KiB or 2GB: KB, MB and GB are powers of 1,000.
///
/// # Errors
/// Says what would be an amount.
pub fn bytes(text: &str) -> Result<usize, String> {
    const UNITS: [(&str, u64); 7] = [
        ("KiB", 1 << 10),
        ("MiB", 1 << 20),
        ("GiB", 1 << 30),
        ("KB", 1_000),
        ("MB", 1_000_000),
        ("GB", 1_000_000_000),
        ("", 1),
    ];
    let (number, unit) = UNITS
        .iter()
        .find_map(|(name, unit)| {
            let at = text.len().checked_sub(name.len()).filter(|at| text.is_char_boundary(*at))?;
            let (number, end) = text.split_at(at);
            end.eq_ignore_ascii_case(name).then_some((number.trim(), *unit))
        })
        .unwrap_or((text, 1));
    let bytes = number.parse::<u64>().ok().and_then(|number| number.checked_mul(unit));
    let bytes = bytes.and_then(|bytes| usize::try_from(bytes).ok());
    bytes.ok_or_else(|| "expected whole bytes, as in 65536, 64KiB or 2GB".to_owned())
}

fn amount(text: &str, units: &[(&str, f64)]) -> Option<f64> {
    units.iter().find_map(|(name, unit)| {
        let number = text.strip_suffix(name)?.trim();
        Some(number.parse::<f64>().ok()? * unit)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn amounts_have_units_or_none() {
        for (text, expected) in [
            ("10", 10.0),
            ("0.5", 0.5),
            ("10s", 10.0),
            ("500ms", 0.5),
            ("2min", 120.0),
            ("2m", 120.0),
            ("1h", 3_600.0),
        ] {
            assert_eq!(seconds(text), Ok(expected), "{text}");
        }
        for text in ["-5", "0", "NaN", "inf", "ten", "10d", "", "s", "1e400"] {
            assert!(seconds(text).unwrap_err().contains("10s"), "{text}");
        }
        assert_eq!(whole_seconds("2min"), Ok(120));
        for text in ["0.5", "500ms", "3601", "-1"] {
            assert!(whole_seconds(text).unwrap_err().contains("whole seconds"), "{text}");
        }
        assert_eq!(pause_seconds("1500ms"), Ok(1.5));
        for text in ["1e20", "1e-10", "0.5", "3601", "NaN"] {
            assert!(pause_seconds(text).unwrap_err().contains("from 1 to 3600"), "{text}");
        }
        for (text, expected) in [("7", 7), ("64KiB", 65_536), ("2GB", 2_000_000_000), ("1 mib", 1 << 20)] {
            assert_eq!(bytes(text), Ok(expected), "{text}");
        }
        for text in ["-1", "2.5GB", "GB", "", "1TB", "µ", "99999999999GiB"] {
            assert!(bytes(text).unwrap_err().contains("2GB"), "{text}");
        }
    }
}

//! Durations as they are written on the command line: `200ms`, `5s`, `2h`.

use std::time::Duration;

use leasehold::Ttl;

/// Reads a duration from zero to 366 days, which is as long as a store keeps anything.
pub(crate) fn any(written: &str) -> Result<Duration, String> {
    if written.trim_start().starts_with('-') {
        return Err("a duration cannot be negative".to_owned());
    }
    match humantime::parse_duration(written) {
        Ok(duration) if duration <= Ttl::MAX.as_duration() => Ok(duration),
        Ok(_) => Err("a duration must be at most 366 days".to_owned()),
        Err(error) => Err(format!("{error} (durations read as 200ms, 5s or 2h)")),
    }
}

/// Reads the ttl of a lease: from 1 ms to 366 days.
pub(crate) fn ttl(written: &str) -> Result<Duration, String> {
    let duration = any(written)?;
    match Ttl::try_from(duration) {
        Ok(_) => Ok(duration),
        Err(_) => Err("a ttl must be from 1ms to 366 days".to_owned()),
    }
}

/// Writes a duration the way it is read.
pub(crate) fn shown(duration: Duration) -> String {
    humantime::format_duration(duration).to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_read_as_people_write_them() {
        assert_eq!(any("200ms"), Ok(Duration::from_millis(200)));
        assert_eq!(any("5s"), Ok(Duration::from_secs(5)));
        assert_eq!(any("2h"), Ok(Duration::from_secs(7200)));
        assert_eq!(any("1m 30s"), Ok(Duration::from_secs(90)));
        assert_eq!(any("0s"), Ok(Duration::ZERO));
    }

    #[test]
    fn what_is_no_duration_is_refused_with_the_reason() {
        assert!(any("9000h").unwrap_err().contains("366 days"));
        assert!(any("-5s").unwrap_err().contains("negative"));
        for nonsense in ["", "5", "soon", "99999999999999999999h"] {
            assert!(any(nonsense).unwrap_err().contains("200ms"), "{nonsense}");
        }
    }

    #[test]
    fn a_ttl_is_neither_zero_nor_longer_than_a_store_keeps_it() {
        assert!(ttl("0s").unwrap_err().contains("1ms"));
        assert!(ttl("9000h").unwrap_err().contains("366 days"));
        assert_eq!(ttl("30s"), Ok(Duration::from_secs(30)));
    }
}

//! What a process uses, as /proc tells it.

use std::io;
use std::time::Duration;

/// Resources of a process.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Usage {
    /// Open file descriptors.
    pub descriptors: usize,
    /// Resident memory in bytes.
    pub resident: u64,
    /// CPU time of all its threads, in user and kernel mode, those that have ended included.
    pub cpu: Duration,
}

/// The resources of a process now.
///
/// # Errors
///
/// If there is no such process, or it is not ours to look at.
pub fn of(pid: u32) -> io::Result<Usage> {
    Ok(Usage {
        descriptors: std::fs::read_dir(format!("/proc/{pid}/fd"))?.count(),
        resident: resident(&std::fs::read_to_string(format!("/proc/{pid}/status"))?)
            .ok_or(io::ErrorKind::InvalidData)?,
        cpu: cpu(pid)?,
    })
}

/// The CPU time alone: one small read.
///
/// # Errors
///
/// As [`of`].
pub fn cpu(pid: u32) -> io::Result<Duration> {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat"))?;
    let ticks = ticks(&stat).ok_or(io::ErrorKind::InvalidData)?;
    Ok(Duration::from_nanos(ticks * 1_000_000_000 / rustix::param::clock_ticks_per_second()))
}

/// utime + stime, the 14th and 15th field of proc_pid_stat(5); the second one, the name, may hold blanks.
fn ticks(stat: &str) -> Option<u64> {
    let mut fields = stat.rsplit_once(')')?.1.split_ascii_whitespace().skip(11);
    Some(fields.next()?.parse::<u64>().ok()? + fields.next()?.parse::<u64>().ok()?)
}

fn resident(status: &str) -> Option<u64> {
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"))?;
    Some(line.trim().strip_suffix("kB")?.trim().parse::<u64>().ok()? << 10)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_of_proc() {
        let stat = "7 (a b) c) S 1 7 7 0 -1 4194304 100 0 0 0 12 30 5 6 20 0 1 0 100";
        assert_eq!(ticks(stat), Some(42));
        assert_eq!(resident("Name:\tx\nVmRSS:\t    2048 kB\n"), Some(2 << 20));
    }

    #[test]
    fn this_process_can_be_looked_at() {
        let usage = of(std::process::id()).unwrap();
        assert!(usage.descriptors >= 3 && usage.resident > 100 << 10, "{usage:?}");
    }
}

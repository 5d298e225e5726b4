//! What the kernel says about processes: CPU time, memory, load.

use std::fs;

use super::Result;

/// Clock ticks a second in /proc: 100 wherever Linux runs, as far as programs can see.
const TICKS: f64 = 100.0;

/// Memory of a process in MiB.
#[derive(Clone, Copy, Debug, Default)]
pub struct Memory {
    /// What is resident now.
    pub resident: f64,
    /// The most there ever was.
    pub peak: f64,
}

/// CPU seconds that a process has used so far, in user and in kernel mode.
pub fn cpu_seconds(pid: u32) -> Result<f64> {
    let text = fs::read_to_string(format!("/proc/{pid}/stat"))?;
    // The name of the program, in brackets, may hold anything; fields are counted from behind it.
    let fields: Vec<&str> =
        text.rsplit_once(')').map(|(_, rest)| rest.split_whitespace().collect()).unwrap_or_default();
    let ticks =
        |index: usize| fields.get(index).and_then(|f| f.parse::<f64>().ok()).ok_or("/proc/PID/stat is cut short");
    Ok((ticks(11)? + ticks(12)?) / TICKS)
}

/// Memory of a process.
pub fn memory(pid: u32) -> Result<Memory> {
    let text = fs::read_to_string(format!("/proc/{pid}/status"))?;
    let mib = |key: &str| {
        let line = text.lines().find_map(|line| line.strip_prefix(key)).unwrap_or_default();
        line.split_whitespace().next().and_then(|n| n.parse::<f64>().ok()).unwrap_or_default() / 1024.0
    };
    Ok(Memory { resident: mib("VmRSS:"), peak: mib("VmHWM:") })
}

/// CPU seconds that the whole machine has used so far.
pub fn machine_cpu_seconds() -> Result<f64> {
    let text = fs::read_to_string("/proc/stat")?;
    let line = text.lines().next().and_then(|line| line.strip_prefix("cpu ")).ok_or("/proc/stat has no first line")?;
    let ticks: Vec<f64> = line.split_whitespace().filter_map(|n| n.parse().ok()).collect();
    // user, nice, system, (idle, iowait,) irq, softirq; what comes then is the time of guests and of other machines.
    Ok([0, 1, 2, 5, 6].iter().filter_map(|index| ticks.get(*index)).sum::<f64>() / TICKS)
}

/// Load of the machine and number of its processors, in words.
pub fn load() -> String {
    let text = fs::read_to_string("/proc/loadavg").unwrap_or_default();
    let cores = std::thread::available_parallelism().map_or(0, std::num::NonZero::get);
    format!("load {} on {cores} processors", text.split_whitespace().next().unwrap_or("unknown"))
}

/// Sends SIGTERM. By way of the shell, because the standard library knows SIGKILL only.
pub fn terminate(pid: u32) -> Result<()> {
    let status = std::process::Command::new("bash").args(["-c", &format!("kill -TERM {pid}")]).status()?;
    if status.success() { Ok(()) } else { Err(format!("process {pid} cannot be told to end").into()) }
}

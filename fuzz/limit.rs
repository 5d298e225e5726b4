//! What one input may cost.

use std::{
    env,
    sync::{
        LazyLock,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use rustix::time::{ClockId, clock_gettime};

/// Milliseconds of CPU that an input may take: 50 in an optimised build. `FUZZ_CPU_MS` sets another limit where the
/// build is not optimised, or where a limit is not what one looks for.
static MOST: LazyLock<Duration> = LazyLock::new(|| {
    let set = env::var("FUZZ_CPU_MS").ok().map(|text| text.parse().expect("FUZZ_CPU_MS is a number of milliseconds"));
    Duration::from_millis(set.unwrap_or(50))
});

/// Microseconds of the slowest input so far.
static SLOWEST: AtomicU64 = AtomicU64::new(0);

/// How often work is done anew that took too long: what is slow is slow every time, and what a machine charges to a thread that
/// it stopped in the middle is not.
const AGAIN: usize = 3;

/// Does `work` for an input of so many bytes. CPU time of this thread, not the time on the wall: the machine may have
/// other things to do.
///
/// # Panics
/// It took longer than an input may take; that is a finding.
pub fn within<T>(bytes: usize, work: impl Fn() -> T) -> T {
    let timed = || {
        let before = now();
        let done = work();
        (now().saturating_sub(before), done)
    };
    let (mut took, done) = timed();
    for _ in 0..AGAIN {
        if took > *MOST {
            took = took.min(timed().0);
        }
    }
    let micros = u64::try_from(took.as_micros()).unwrap_or(u64::MAX);
    let slowest = SLOWEST.load(Ordering::Relaxed);
    // Said when it is worth a line.
    if micros > slowest + slowest / 8 && micros >= 100 {
        SLOWEST.store(micros, Ordering::Relaxed);
        eprintln!("slowest so far: {micros} us of CPU for {bytes} bytes");
    }
    assert!(took <= *MOST, "{took:?} of CPU for {bytes} bytes; {:?} are the limit", *MOST);
    done
}

fn now() -> Duration {
    let time = clock_gettime(ClockId::ThreadCPUTime);
    Duration::new(time.tv_sec.unsigned_abs(), u32::try_from(time.tv_nsec).unwrap_or_default())
}

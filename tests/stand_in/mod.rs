//! A stand-in for Numaflow in simulated pods. Nothing runs in them, so what others see of Numaflow's controller has to
//! be done by somebody else: so far that is its leader election, and nothing more.
//!
//! | file | what it knows |
//! |---|---|
//! | `pod` | what a pod says about the process that would run in it |
//! | `configuration` | what that process reads when it starts, and how its lease is called |
//! | `processes` | which processes there are: started, crashed, living on after their pod |
//! | `election` | what becomes of one lease now, given its candidates |
//! | `run` | the only one that knows a client: watches pods, reads and writes leases |
//! | `main` | the program `numaflow-stand-in`; the tests in `tests/it` run the same in their own process |

mod configuration;
mod election;
mod pod;
mod processes;
mod run;

pub use election::Timings;
pub use run::run;

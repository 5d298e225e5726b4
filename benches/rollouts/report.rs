//! The table: what was measured, next to what is aimed at, to the bare clients, and to Numaplane.

use std::{collections::BTreeMap, fmt::Write};

use crate::{
    Args,
    floor::Time,
    phases::{Cpu, Measured, Phase},
    sample,
};

/// What Numaplane needed for 100 rollouts on two processors, with definitions of the same make and the same kind of
/// control plane.
mod numaplane {
    pub struct Phase {
        pub done: &'static str,
        pub available: &'static str,
        pub ratio: &'static str,
        pub writes: &'static str,
        pub reads: &'static str,
        pub turns: &'static str,
        pub cpu: &'static str,
        /// Whether there is an aim for CPU.
        pub cpu_aimed_at: bool,
    }

    pub const INSTALL: Phase = Phase {
        done: "60.8",
        available: "50.2",
        ratio: "9",
        writes: "22.7",
        reads: "41.9",
        turns: "6.9",
        cpu: "50.4",
        cpu_aimed_at: true,
    };
    pub const CHANGE: Phase = Phase {
        done: "32.6",
        available: "22.8",
        ratio: "",
        writes: "14.7",
        reads: "53.8",
        turns: "",
        cpu: "12.7",
        cpu_aimed_at: false,
    };
}

struct Row {
    what: String,
    measured: String,
    aim: Option<f64>,
    missed: bool,
    floor: String,
    as_many: String,
    numaplane: String,
}

impl Row {
    fn new(what: &str, measured: impl Into<String>, numaplane: &str) -> Self {
        Self {
            what: what.to_owned(),
            measured: measured.into(),
            aim: None,
            missed: false,
            floor: String::new(),
            as_many: String::new(),
            numaplane: numaplane.to_owned(),
        }
    }

    fn heading(what: &str) -> Self {
        Self::new(what, "", "")
    }

    fn number(what: &str, measured: f64, digits: usize, numaplane: &str) -> Self {
        Self::new(what, format!("{measured:.digits$}"), numaplane)
    }

    fn aim(mut self, measured: f64, aim: f64) -> Self {
        self.aim = Some(aim);
        self.missed = measured > aim;
        self
    }

    fn clients(mut self, [floor, as_many]: [f64; 2], digits: usize) -> Self {
        self.floor = format!("{floor:.digits$}");
        self.as_many = format!("{as_many:.digits$}");
        self
    }
}

/// The whole report.
pub fn table(m: &Measured, args: &Args) -> String {
    let count = f64::from(args.namespaces);
    let mut rows = Vec::new();
    rows.push(Row::heading("INSTALL of all at once"));
    phase(&mut rows, &m.install, count, [m.floor.install, m.as_many.install], &numaplane::INSTALL);
    rows.push(Row::heading("CHANGE of the version of all at once"));
    phase(&mut rows, &m.change, count, [m.floor.change, m.as_many.change], &numaplane::CHANGE);
    replaced(&mut rows, &m.change);
    rows.push(Row::heading(&format!("IDLE for {} s", args.idle.as_secs_f64())));
    idle(&mut rows, &m.idle, args.idle.as_secs_f64() / 60.0);
    rows.push(Row::heading("MEMORY, MiB"));
    rows.push(Row::number("before the first rollout", m.start.memory.resident, 1, "75"));
    rows.push(Row::number("settled", m.memory.resident, 1, "125").aim(m.memory.resident, 30.0));
    rows.push(Row::number("peak", m.memory.peak, 1, "164").aim(m.memory.peak, 30.0));
    rows.push(Row::heading("RESTART with all in place"));
    restart(&mut rows, m, count);

    let mut text = format!(
        "\n{} rollouts in as many namespaces, definitions of {} objects ({} bytes); {} at once.\n\
         Before: {}; after: {}.\n\n",
        args.namespaces,
        sample::objects(sample::VERSIONS[0]).map_or(0, |o| o.len()),
        sample::size(),
        args.workers,
        m.load[0],
        m.load[1],
    );
    print(&mut text, &rows);
    details(&mut text, m, count);
    text
}

fn phase(rows: &mut Vec<Row>, phase: &Phase, count: f64, clients: [Time; 2], other: &numaplane::Phase) {
    let done = phase.done.as_secs_f64();
    let took = clients.map(|c| c.took.as_secs_f64());
    rows.push(Row::number("s until all are Deployed and healthy", done, 1, other.done).clients(took, 1));
    let available = phase.available.as_secs_f64();
    rows.push(Row::number("s until all Deployments are available", available, 1, other.available));
    let [floor, as_many] = took.map(|client| done / client.max(0.001));
    rows.push(Row::number("times the bare client", floor, 2, other.ratio).aim(floor, 1.5));
    rows.push(Row::number("  times the one with as many writes", as_many, 2, ""));
    let writes = phase.requests.all_writes() as f64 / count;
    let row = Row::number("writes per rollout", writes, 2, other.writes).aim(writes, 14.0);
    rows.push(row.clients(clients.map(|c| c.writes), 2));
    rows.push(Row::number("dry-runs per rollout", phase.requests.dry_runs as f64 / count, 2, "0"));
    let reads = phase.requests.all_reads() as f64 / count;
    rows.push(Row::number("reads per rollout", reads, 2, other.reads).aim(reads, 1.0));
    rows.push(Row::number("turns per rollout", phase.turns.all() as f64 / count, 1, other.turns));
    let cpu = Row::number("operator CPU s", phase.cpu, 2, other.cpu);
    let cpu = if other.cpu_aimed_at { cpu.aim(phase.cpu, 3.0) } else { cpu };
    rows.push(cpu.clients(clients.map(|c| c.cpu.own), 2));
    rows.push(
        Row::number("control plane CPU s", phase.until_done.plane, 1, "").clients(clients.map(|c| c.cpu.plane), 1),
    );
    let both = |cpu: Cpu| cpu.own + cpu.plane;
    let [floor, as_many] = clients.map(|c| both(phase.until_done) / both(c.cpu).max(0.001));
    rows.push(Row::number("times the bare client, in CPU s of both", floor, 2, ""));
    rows.push(Row::number("  times the one with as many writes", as_many, 2, ""));
    let others = |cpu: Cpu, took: f64| cpu.others / took.max(0.001);
    rows.push(
        Row::number("processors that others took", others(phase.until_done, done), 1, "")
            .clients(clients.map(|c| others(c.cpu, c.took.as_secs_f64())), 1),
    );
}

fn replaced(rows: &mut Vec<Row>, phase: &Phase) {
    let replaced = phase.replaced as f64;
    rows.push(Row::number("Deployments deleted and made anew", replaced, 0, "100").aim(replaced, 0.0));
    let (outages, longest) = phase.outages;
    let outages = outages as f64;
    rows.push(Row::number("namespaces without an available pod", outages, 0, "100").aim(outages, 0.0));
    if outages > 0.0 {
        rows.push(Row::number("  longest such time, s", longest.as_secs_f64(), 2, "0.44"));
    }
}

fn idle(rows: &mut Vec<Row>, phase: &Phase, minutes: f64) {
    let writes = phase.requests.all_writes() as f64;
    rows.push(Row::number("writes", writes, 0, "0").aim(writes, 0.0));
    rows.push(Row::number("reads", phase.requests.all_reads() as f64, 0, "0"));
    rows.push(Row::number("turns", phase.turns.all() as f64, 0, "0"));
    rows.push(Row::number("operator CPU s per minute", phase.cpu / minutes.max(0.001), 2, "0.08"));
}

fn restart(rows: &mut Vec<Row>, m: &Measured, count: f64) {
    let end = match m.end {
        (took, Some(status)) if status.success() => format!("{:.2}", took.as_secs_f64()),
        (took, Some(status)) => format!("{:.2} ({status})", took.as_secs_f64()),
        (took, None) => format!("not in {:.0}", took.as_secs_f64()),
    };
    rows.push(Row::new("s from SIGTERM to the end", end, "not in 60"));
    rows.push(Row::number("s until ready", m.restart.ready.as_secs_f64(), 2, "0.11"));
    rows.push(Row::number("s until all were looked at", m.restart.looked.as_secs_f64(), 2, "12.2"));
    let writes = m.restart.requests.all_writes() as f64 / count;
    rows.push(Row::number("writes per rollout", writes, 2, "4.04").aim(writes, 0.0));
    let reads = m.restart.requests.all_reads() as f64 / count;
    rows.push(Row::number("reads per rollout", reads, 2, "25.5").aim(reads, 1.0));
    rows.push(Row::number("operator CPU s", m.restart.cpu, 2, "8.7"));
    rows.push(Row::number("memory after that, MiB", m.restart.memory.resident, 1, "124"));
    rows.push(Row::number("  peak", m.restart.memory.peak, 1, "").aim(m.restart.memory.peak, 30.0));
}

fn print(text: &mut String, rows: &[Row]) {
    let head = ["", "measured", "aim", "bare client", "as many writes", "Numaplane"].map(str::to_owned);
    let cells = rows.iter().map(|row| {
        let heading = row.measured.is_empty();
        let aim = row.aim.map(|aim| format!("{}{aim}", if row.missed { "! " } else { "" })).unwrap_or_default();
        [
            if heading { row.what.clone() } else { format!("  {}", row.what) },
            row.measured.clone(),
            aim,
            row.floor.clone(),
            row.as_many.clone(),
            row.numaplane.clone(),
        ]
    });
    let lines: Vec<[String; 6]> = std::iter::once(head).chain(cells).collect();
    let widths: Vec<usize> = (0..6).map(|i| lines.iter().map(|l| l[i].len()).max().unwrap_or(0)).collect();
    for line in &lines {
        let mut cells = format!("{:width$}", line[0], width = widths[0]);
        for (cell, width) in line.iter().zip(&widths).skip(1) {
            // Writing to a text cannot fail.
            let _ = write!(cells, "  {cell:>width$}");
        }
        text.push_str(cells.trim_end());
        text.push('\n');
    }
    text.push_str(
        "\n'!' marks an aim that was missed. Figures of Numaplane are for 100 rollouts. The bare client's\n\
         CPU seconds include this program's own watches.\n",
    );
}

/// Requests one by one.
fn details(text: &mut String, m: &Measured, count: f64) {
    let phases = [
        ("first start", &m.start.requests),
        ("install", &m.install.requests),
        ("change", &m.change.requests),
        ("idle", &m.idle.requests),
        ("restart", &m.restart.requests),
    ];
    for (name, counts) in phases {
        let list = |of: &BTreeMap<(String, String), usize>| {
            let lines =
                of.iter().map(|((verb, what), n)| format!("    {n:6} {:7.2}  {verb} {what}\n", *n as f64 / count));
            lines.collect::<String>()
        };
        let _ = write!(text, "\n{name}: writes, in all and per rollout\n{}", list(&counts.writes));
        let _ = write!(text, "  reads\n{}", list(&counts.reads));
        let _ = writeln!(
            text,
            "  dry-runs {}, lease writes (not counted above) {}, watches ended {}",
            counts.dry_runs, counts.leases, counts.watches
        );
        if !counts.errors.is_empty() {
            let lines = counts.errors.iter().map(|((code, what), n)| format!("    {n:6} {code} {what}\n"));
            let _ = write!(text, "  answered with an error\n{}", lines.collect::<String>());
        }
    }
    for (name, phase) in [("install", &m.install), ("change", &m.change), ("idle", &m.idle)] {
        let turns: Vec<String> = phase.turns.0.iter().map(|(outcome, n)| format!("{n} {outcome}")).collect();
        let _ = writeln!(text, "turns, {name}: {}", turns.join(", "));
    }
}

//! Mutations that know what the bytes mean: lines of YAML. Chance alone, byte by byte, seldom gets past a parser.

use fastrand::Rng;
use libfuzzer_sys::fuzzer_mutate;

/// Half of the time what the fuzzer itself does to bytes, else `mutation` of the text. What is no text, or gets too
/// long, is the fuzzer's.
pub fn bytes(
    data: &mut [u8],
    size: usize,
    max_size: usize,
    seed: u32,
    mutation: fn(&str, &mut Rng) -> String,
) -> usize {
    let mut rng = Rng::with_seed(u64::from(seed));
    let mutated =
        if rng.bool() { std::str::from_utf8(&data[..size]).ok().map(|text| mutation(text, &mut rng)) } else { None };
    match mutated {
        Some(text) if (1..=max_size).contains(&text.len()) && text.as_bytes() != &data[..size] => {
            data[..text.len()].copy_from_slice(text.as_bytes());
            text.len()
        }
        _ => fuzzer_mutate(data, size, max_size),
    }
}

/// Moves whole lines about, and their indentation: what YAML is made of.
pub fn lines(text: &str, rng: &mut Rng) -> String {
    let mut lines: Vec<String> = text.split('\n').map(str::to_owned).collect();
    for _ in 0..rng.usize(1..=3) {
        let start = rng.usize(0..lines.len());
        let end = (start + rng.usize(1..=8)).min(lines.len());
        let to = rng.usize(0..=lines.len());
        match rng.u8(0..8) {
            0 if lines.len() > end - start => drop(lines.drain(start..end)),
            1 => {
                let copy = lines[start..end].to_vec();
                lines.splice(to..to, copy);
            }
            2 if lines.len() > end - start => {
                let moved: Vec<_> = lines.drain(start..end).collect();
                let to = to.min(lines.len());
                lines.splice(to..to, moved);
            }
            3 => lines[start..end].iter_mut().for_each(|line| line.insert_str(0, &" ".repeat(rng.usize(1..=4)))),
            4 => {
                let by = rng.usize(1..=4);
                for line in &mut lines[start..end] {
                    let spaces = line.bytes().take_while(|byte| *byte == b' ').count();
                    drop(line.drain(..spaces.min(by)));
                }
            }
            5 => lines.swap(start, end - 1),
            // The value of one line on another.
            6 => {
                let value = lines[rng.usize(0..lines.len())].split_once(": ").map(|(_, value)| value.to_owned());
                if let (Some(value), Some((key, _))) = (value, lines[start].split_once(": ")) {
                    lines[start] = format!("{key}: {value}");
                }
            }
            _ => {
                let other = lines[rng.usize(0..lines.len())].trim_start().to_owned();
                lines[start].push_str(&other);
            }
        }
    }
    lines.join("\n")
}

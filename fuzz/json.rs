//! Mutations that know what the bytes mean: values of JSON.

use fastrand::Rng;
use libfuzzer_sys::fuzzer_mutate;
use serde_json::{Value, json};

use crate::mutate::lines;

/// Moves whole values about: what JSON is made of. Text that is no JSON is left to chance.
pub fn values(text: &str, rng: &mut Rng) -> String {
    let Ok(mut root) = serde_json::from_str::<Value>(text) else { return lines(text, rng) };
    for _ in 0..rng.usize(1..=3) {
        let values = count(&root);
        let other = nth(&mut root, &mut rng.usize(0..values)).cloned().unwrap_or_default();
        let Some(here) = nth(&mut root, &mut rng.usize(0..values)) else { continue };
        match rng.u8(0..8) {
            0 | 1 => *here = other,
            2 => *here = literal(rng),
            _ => change(here, other, rng),
        }
    }
    root.to_string()
}

/// Changes the content of a value.
fn change(here: &mut Value, other: Value, rng: &mut Rng) {
    match here {
        Value::Object(map) => {
            let key = map.keys().nth(rng.usize(0..map.len().max(1))).cloned();
            match (rng.u8(0..4), key) {
                (0, Some(key)) => drop(map.remove(&key)),
                (1, Some(key)) => drop(map.insert(key, other)),
                // The value of one field in another, or in one that is not known.
                (2, Some(key)) => {
                    let value = map.remove(&key).unwrap_or_default();
                    let name = if rng.bool() { map.keys().next().cloned().unwrap_or_default() } else { key + "s" };
                    map.insert(name, value);
                }
                (..) => drop(map.insert(other.as_str().unwrap_or("name").to_owned(), literal(rng))),
            }
        }
        Value::Array(items) => {
            let at = rng.usize(0..=items.len());
            match (rng.bool(), at < items.len()) {
                (true, true) => drop(items.remove(at)),
                (false, true) => items.insert(at, items[at].clone()),
                (_, false) => items.push(other),
            }
        }
        Value::String(text) if text.contains('\n') => *text = lines(text, rng),
        Value::String(text) => {
            let mut bytes = text.clone().into_bytes();
            let (size, most) = (bytes.len(), bytes.len() + 16);
            bytes.resize(most, 0);
            let size = fuzzer_mutate(&mut bytes, size, most);
            *text = String::from_utf8_lossy(&bytes[..size]).into_owned();
        }
        Value::Number(_) => *here = Value::from(rng.i64(..) >> rng.u8(0..64)),
        Value::Bool(value) => *value = !*value,
        Value::Null => *here = literal(rng),
    }
}

fn literal(rng: &mut Rng) -> Value {
    match rng.u8(0..12) {
        0 => Value::Null,
        1 => json!(true),
        2 => json!(""),
        3 => json!({}),
        4 => json!([]),
        5 => json!(0),
        6 => json!(-1),
        7 => json!(1e300),
        8 => json!(u64::MAX),
        9 => json!("é\u{2028}\u{7f}\u{10ffff}\r\n"),
        10 => json!("x".repeat(rng.usize(1..300))),
        _ => json!("1h30m"),
    }
}

/// How many values there are in one, itself included.
fn count(value: &Value) -> usize {
    1 + match value {
        Value::Array(items) => items.iter().map(count).sum(),
        Value::Object(map) => map.values().map(count).sum::<usize>(),
        _ => 0,
    }
}

/// The value that is reached after `skip` others.
fn nth<'v>(value: &'v mut Value, skip: &mut usize) -> Option<&'v mut Value> {
    if *skip == 0 {
        return Some(value);
    }
    *skip -= 1;
    match value {
        Value::Array(items) => items.iter_mut().find_map(|item| nth(item, skip)),
        Value::Object(map) => map.values_mut().find_map(|field| nth(field, skip)),
        _ => None,
    }
}

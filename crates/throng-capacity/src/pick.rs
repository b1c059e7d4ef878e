//! Values in a JSON object by their path.
//!
//! A path has names and numbers between points: `steps.0.samples.late`. A star stands for all elements of a list:
//! `series.*.gateway_cpu_cores`.

use serde_json::Value;

/// All numbers at a path, in their order. Values that are no numbers, as `null`, are left out.
pub(super) fn numbers(object: &Value, path: &str) -> Vec<f64> {
    let mut found = vec![object];
    for part in path.split('.') {
        found = found.into_iter().flat_map(|value| step(value, part)).collect();
    }
    let mut numbers = Vec::new();
    for value in found {
        match value {
            Value::Array(list) => numbers.extend(list.iter().filter_map(Value::as_f64)),
            value => numbers.extend(value.as_f64()),
        }
    }
    numbers
}

/// The largest count that is taken for one: sums of many stay exact.
const COUNT_MAX: f64 = 1e12;

/// All counts at a path. The error says which value is none.
pub(super) fn counts(object: &Value, path: &str) -> Result<Vec<u64>, String> {
    let mut found = vec![object];
    for part in path.split('.') {
        found = found.into_iter().flat_map(|value| step(value, part)).collect();
    }
    let lists = found.into_iter().flat_map(|value| value.as_array().map_or(vec![value], |list| list.iter().collect()));
    let count = |value: &Value| {
        let count = value.as_f64().filter(|count| (0.0..=COUNT_MAX).contains(count) && count.fract() == 0.0);
        count.map(|count| count as u64).ok_or_else(|| format!("{path}: {value} is no count"))
    };
    lists.map(count).collect()
}

/// The number at a path; the length of a list.
pub(super) fn number(object: &Value, path: &str) -> Option<f64> {
    let value = value(object, path)?;
    value.as_array().map(|list| list.len() as f64).or_else(|| value.as_f64())
}

/// The list at a path.
pub(super) fn list<'a>(object: &'a Value, path: &str) -> Option<&'a Vec<Value>> {
    value(object, path)?.as_array()
}

fn value<'a>(object: &'a Value, path: &str) -> Option<&'a Value> {
    path.split('.').try_fold(object, |value, part| step(value, part).into_iter().next())
}

fn step<'a>(value: &'a Value, part: &str) -> Vec<&'a Value> {
    match value {
        Value::Array(list) if part == "*" => list.iter().collect(),
        Value::Array(list) => part.parse().ok().and_then(|index: usize| list.get(index)).into_iter().collect(),
        Value::Object(object) => object.get(part).into_iter().collect(),
        _ => Vec::new(),
    }
}

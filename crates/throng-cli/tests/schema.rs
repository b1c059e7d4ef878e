//! The printed JSON Schemas are those of what the commands print.

use std::process::Command;

use serde_json::Value;

/// Checks figures that a command has printed against the schema of their kind.
pub(crate) fn check(kind: &str, figures: &Value) {
    let output = Command::new(env!("CARGO_BIN_EXE_throng")).args(["lab", "schema", kind]).output().expect("it runs");
    let schema: Value = serde_json::from_slice(&output.stdout).expect("JSON");
    assert_eq!(schema["$schema"], "https://json-schema.org/draft/2020-12/schema");
    faults(&schema, &schema, figures).expect("the figures fit their schema");
    // The check can fail: a key that is missing, or of another type, is found wherever it is.
    for (key, value) in figures.as_object().expect("an object") {
        let mut broken = figures.clone();
        broken[key] = serde_json::json!([["of another type"]]);
        assert!(faults(&schema, &schema, &broken).is_err(), "{kind}: {key} may be anything, as {value}");
    }
    for key in schema["required"].as_array().expect("a list").iter().filter_map(Value::as_str) {
        let mut broken = figures.clone();
        broken.as_object_mut().expect("an object").remove(key);
        assert!(faults(&schema, &schema, &broken).is_err(), "{kind}: {key} may be missing");
    }
}

/// The first place at which `value` does not fit; knows the words that our schemas use, and refuses others.
fn faults(root: &Value, schema: &Value, value: &Value) -> Result<(), String> {
    let at = |name: &str, schema: &Value, value: &Value| {
        faults(root, schema, value).map_err(|fault| format!("{name}: {fault}"))
    };
    let Some(words) = schema.as_object() else { return Ok(()) };
    for (word, of) in words {
        let list = of.as_array().map(Vec::as_slice).unwrap_or_default();
        let is_fine = match word.as_str() {
            "$ref" => {
                let target = of.as_str().and_then(|place| root.pointer(place.strip_prefix('#')?));
                at(&of.to_string(), target.ok_or("a name without a type")?, value)?;
                true
            }
            "type" => std::slice::from_ref(of).iter().chain(list).any(|name| has_type(name, value)),
            "anyOf" | "oneOf" => list.iter().any(|one| faults(root, one, value).is_ok()),
            "enum" => list.contains(value),
            "const" => of == value,
            "minItems" => value.as_array().is_none_or(|all| all.len() as u64 >= of.as_u64().unwrap_or(u64::MAX)),
            "maxItems" => value.as_array().is_none_or(|all| all.len() as u64 <= of.as_u64().unwrap_or(0)),
            "prefixItems" => {
                let elements = list.iter().zip(value.as_array().into_iter().flatten());
                elements.into_iter().try_for_each(|(one, element)| at("[]", one, element))?;
                true
            }
            "minimum" => value.as_f64().is_none_or(|number| number >= of.as_f64().unwrap_or(f64::NAN)),
            "required" => list.iter().all(|key| value.get(key.as_str().unwrap_or_default()).is_some()),
            "properties" | "additionalProperties" | "items" => {
                let own = &words.get("properties").cloned().unwrap_or_default();
                for (key, value) in value.as_object().into_iter().flatten() {
                    match word.as_str() {
                        "properties" => at(key, &of[key.as_str()], value)?,
                        "additionalProperties" if own[key.as_str()].is_null() => at(key, of, value)?,
                        _ => {}
                    }
                }
                let elements = value.as_array().filter(|_| word == "items");
                elements.into_iter().flatten().try_for_each(|element| at("[]", of, element))?;
                true
            }
            "$schema" | "$defs" | "title" | "description" | "format" | "default" => true,
            other => return Err(format!("{other} is not known here")),
        };
        if !is_fine {
            return Err(format!("{value} does not fit {word}: {of}"));
        }
    }
    Ok(())
}

fn has_type(name: &Value, value: &Value) -> bool {
    match name.as_str() {
        Some("object") => value.is_object(),
        Some("array") => value.is_array(),
        Some("string") => value.is_string(),
        Some("boolean") => value.is_boolean(),
        Some("null") => value.is_null(),
        Some("integer") => value.is_u64() || value.is_i64(),
        Some("number") => value.is_number(),
        _ => false,
    }
}

//! Statuses that can always be read: a value that the schema lets in and our types do not (a time beyond the calendar, a
//! number that is too large, what another version wrote) counts as one that is not there. Whoever stands under an object
//! that cannot be read would be left as it is, a paused pipeline too.

use serde::{Deserialize, Deserializer, de::DeserializeOwned};
use serde_json::Value;

/// For `#[serde(deserialize_with)]`: the value, or the default where it cannot be read.
///
/// # Errors
/// It is no value at all.
pub(super) fn readable<'de, D: Deserializer<'de>, T: DeserializeOwned + Default>(from: D) -> Result<T, D::Error> {
    let value = Value::deserialize(from)?;
    Ok(serde_json::from_value(value).unwrap_or_default())
}

#[cfg(test)]
mod tests {
    use serde::de::DeserializeOwned;
    use serde_json::{Value, json};

    use crate::api::{
        IsbServiceRollout, MonoVertexRollout, NumaflowController, NumaflowControllerRollout, PipelineRollout, crds,
    };

    /// What the schema takes and is hardest to read.
    fn hardest(schema: &Value) -> Value {
        match (schema["type"].as_str(), schema["format"].as_str()) {
            (Some("string"), Some("date-time")) => json!("9999-12-31T23:59:59Z"),
            (Some("string"), _) => json!("\u{0}"),
            (Some("integer"), _) => schema["maximum"].as_f64().map_or(json!(i64::MAX), |most| json!(most as i64)),
            (Some("boolean"), _) => json!(true),
            (Some("array"), _) => json!([hardest(&schema["items"])]),
            (Some("object"), _) => {
                let fields = schema["properties"].as_object().into_iter().flatten();
                let others = schema["additionalProperties"].as_object().map(|_| &schema["additionalProperties"]);
                let all = fields.map(|(key, schema)| (key.clone(), hardest(schema)));
                all.chain(others.map(|schema| ("other".to_owned(), hardest(schema)))).collect()
            }
            other => panic!("not in a schema so far: {other:?}"),
        }
    }

    fn read<K: DeserializeOwned>(object: Value) -> Result<K, String> {
        serde_json::from_value(object).map_err(|error| error.to_string())
    }

    #[test]
    fn whatever_the_schema_takes_is_read_as_far_as_it_can_be() {
        for crd in crds() {
            let schema = &crd.body["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"];
            let object = json!({
                "metadata": {"name": "a"}, "spec": hardest(&schema["spec"]), "status": hardest(&schema["status"]),
            });
            let answer = match crd.body["spec"]["names"]["kind"].as_str().unwrap() {
                "NumaflowController" => read::<NumaflowController>(object).map(drop),
                "NumaflowControllerRollout" => read::<NumaflowControllerRollout>(object).map(|rollout| {
                    assert_eq!(rollout.status.unwrap().message, "\u{0}", "what can be read is");
                }),
                "PipelineRollout" => read::<PipelineRollout>(object).map(|rollout| {
                    let pause = rollout.status.unwrap().pause.expect("the pause is on record");
                    assert_eq!((pause.state.as_str(), pause.since), ("\u{0}", None));
                }),
                "ISBServiceRollout" => read::<IsbServiceRollout>(object).map(|rollout| {
                    let change = rollout.status.unwrap().change.expect("the change is on record");
                    assert_eq!((change.stage.as_str(), change.started_at), ("\u{0}", None));
                }),
                "MonoVertexRollout" => read::<MonoVertexRollout>(object).map(|rollout| {
                    let pause = rollout.status.unwrap().pause.expect("the pause is on record");
                    assert_eq!((pause.state.as_str(), pause.since), ("\u{0}", None));
                }),
                other => panic!("{other} is not looked at"),
            };
            assert_eq!(answer, Ok(()), "{}", crd.name);
        }
    }
}

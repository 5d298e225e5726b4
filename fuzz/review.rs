//! The body of a request to the webhook, from bytes to the bytes of the answer: read, judged by what is known of a small
//! cluster, judged again when that was asked, answered.
#![no_main]
// A panic is how a finding is told.
#![allow(clippy::expect_used)]

mod json;
mod known;
mod limit;
mod mutate;

use std::sync::LazyLock;

use kube::core::{
    DynamicObject,
    admission::{AdmissionReview, Operation},
};
use libfuzzer_sys::{fuzz_mutator, fuzz_target};
use numaplane::{
    admission::{
        judge,
        review::{self, Review, Unreadable},
    },
    api::{IsbServiceRollout, MonoVertexRollout, NumaflowControllerRollout, PipelineRollout},
    valid,
};
use serde::de::DeserializeOwned;
use serde_json::Value;

use self::known::Cluster;

static CLUSTER: LazyLock<Cluster> = LazyLock::new(Cluster::new);

fuzz_target!(init: LazyLock::force(&CLUSTER), |data: &[u8]| {
    let (asked, answers) = limit::within(data.len(), || answered(data));
    for answer in &answers {
        is_an_answer(data, answer);
    }
    if let (Some(review), Some(answer)) = (asked, answers.first()) {
        admits_what_is_valid(&review, answer);
    }
});

fuzz_mutator!(|data: &mut [u8], size: usize, max_size: usize, seed: u32| {
    mutate::bytes(data, size, max_size, seed, json::values)
});

/// What the webhook does with a body. The first answer is the one that is given where the API server could be asked, the
/// other the one where it could not; none is for what becomes a 400.
fn answered(body: &[u8]) -> (Option<Review>, Vec<Vec<u8>>) {
    let written =
        |answer: &AdmissionReview<DynamicObject>| serde_json::to_vec(answer).expect("an answer can be written");
    match review::read(body) {
        Ok(review) => {
            let judgement = judge(&review, &CLUSTER.view(false));
            let verdicts = if judgement.doubts.is_empty() {
                vec![judgement.verdict()]
            } else {
                let asked = judge(&review, &CLUSTER.view(true)).verdict();
                vec![asked, judgement.unchecked("no answer")]
            };
            let answers = verdicts.iter().map(|verdict| written(&review::answer(&review, verdict))).collect();
            (Some(review), answers)
        }
        Err(Unreadable::Question { uid, finding }) => {
            (None, vec![written(&review::answer_to_unreadable(&uid, &finding))])
        }
        Err(Unreadable::NoReview(message)) => {
            assert!(!message.is_empty());
            (None, Vec::new())
        }
    }
}

/// What the API server takes for an answer to the question.
fn is_an_answer(question: &[u8], answer: &[u8]) {
    let answer: Value = serde_json::from_slice(answer).expect("the answer is JSON");
    assert_eq!(answer["apiVersion"], "admission.k8s.io/v1", "{answer}");
    assert_eq!(answer["kind"], "AdmissionReview", "{answer}");
    let response = &answer["response"];
    if let Ok(question) = serde_json::from_slice::<Value>(question) {
        assert_eq!(response["uid"], question["request"]["uid"], "{answer}");
    }
    let allowed = response["allowed"].as_bool().expect("a verdict");
    let message = response["status"]["message"].as_str().unwrap_or_default();
    assert_eq!(allowed, message.is_empty(), "only a refusal has a message, and every one: {answer}");
    for warning in response["warnings"].as_array().into_iter().flatten() {
        // As a header takes it: https://kubernetes.io/blog/2020/09/03/warnings/
        let text = warning.as_str().expect("a warning is text");
        let plain = text.bytes().all(|byte| (b' '..=b'~').contains(&byte));
        assert!(plain && !text.is_empty() && text.len() <= 256, "{text:?}");
    }
}

/// What is new and admitted is nothing that a reconciler would refuse by its spec.
fn admits_what_is_valid(review: &Review, answer: &[u8]) {
    let answer: Value = serde_json::from_slice(answer).expect("the answer is JSON");
    let Some(object) = &review.object else { return };
    let judged = review.operation == Some(Operation::Create)
        && review.kind.group == "numaplane.numaproj.io"
        && review.sub_resource.is_empty()
        && object["metadata"]["deletionTimestamp"].is_null()
        && CLUSTER.view(true).settings().serves(&review.namespace);
    if !judged || answer["response"]["allowed"] != true {
        return;
    }
    let found = match review.kind.kind.as_str() {
        "NumaflowControllerRollout" => {
            found(object, |rollout: &NumaflowControllerRollout| valid::controller(rollout, "spec.controller"))
        }
        "PipelineRollout" => found::<PipelineRollout>(object, valid::pipeline),
        "ISBServiceRollout" => found::<IsbServiceRollout>(object, valid::isb_service),
        "MonoVertexRollout" => found::<MonoVertexRollout>(object, valid::mono_vertex),
        _ => return,
    };
    assert_eq!(found.expect("what cannot be read is not admitted").violations, [], "admitted: {object}");
}

fn found<K: DeserializeOwned>(object: &Value, look: fn(&K) -> valid::Findings) -> Option<valid::Findings> {
    let mut object = object.clone();
    // What is wrong there is nothing that the user could put right.
    object.as_object_mut()?.remove("status");
    serde_json::from_value(object).ok().map(|rollout| look(&rollout))
}

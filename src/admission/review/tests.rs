use serde_json::json;

use super::*;

fn body(request: &Value) -> Vec<u8> {
    json!({"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "request": request}).to_string().into_bytes()
}

/// A question about a PipelineRollout.
fn question() -> Value {
    json!({
        "uid": "u-1",
        "kind": {"group": "numaplane.numaproj.io", "version": "v1alpha1", "kind": "PipelineRollout"},
        "resource": {"group": "numaplane.numaproj.io", "version": "v1alpha1", "resource": "pipelinerollouts"},
        "name": "a", "namespace": "team-a", "operation": "UPDATE", "dryRun": true,
        "userInfo": {"username": "alice"},
        "object": {"metadata": {"name": "a"}}, "oldObject": null,
    })
}

fn no_review(body: &[u8]) -> String {
    match read(body) {
        Err(Unreadable::NoReview(message)) => message,
        other => panic!("{other:?}"),
    }
}

#[test]
fn c23_a_body_that_is_no_review_is_told_what_to_send() {
    let review = json!({"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview"}).to_string();
    let cases: [(&str, &str); 9] = [
        ("", "the body is empty; send an AdmissionReview of admission.k8s.io/v1"),
        ("{", "the body is no AdmissionReview of admission.k8s.io/v1: EOF while parsing an object at line 1 column 1"),
        ("[]", "the body is no AdmissionReview of admission.k8s.io/v1: it is no JSON object"),
        (
            r#"{"apiVersion": "v1", "kind": "Pod"}"#,
            "apiVersion \"v1\", kind \"Pod\" is not served here; send an AdmissionReview of admission.k8s.io/v1",
        ),
        (
            r#"{"apiVersion": "admission.k8s.io/v1beta1", "kind": "AdmissionReview", "request": {"uid": "u"}}"#,
            "apiVersion \"admission.k8s.io/v1beta1\", kind \"AdmissionReview\" is not served here; send an \
             AdmissionReview of admission.k8s.io/v1",
        ),
        (&review, "the AdmissionReview has no request"),
        (&review.replace('}', r#","request":{"uid":""}}"#), "request.uid is empty"),
        (
            &review.replace('}', r#","request":{"uid":1}}"#),
            "request.uid cannot be read: invalid type: integer `1`, expected a string at line 1 column 8",
        ),
        // Not taken for a uid by its position.
        (&review.replace('}', r#","request":["u-1"]}"#), "request is no JSON object"),
    ];
    for (body, message) in cases {
        assert_eq!(no_review(body.as_bytes()), message, "{body}");
    }
    assert!(no_review(&[0xff, 0xfe]).starts_with("the body is no AdmissionReview"));
}

#[test]
fn c23_whatever_has_a_uid_is_answered_with_it() {
    let huge = String::from_utf8(body(&question())).unwrap().replace("\"object\":{", "\"object\":{\"n\":1e999,");
    let mut no_kind = question();
    no_kind["kind"] = json!("PipelineRollout");
    let no_kind = String::from_utf8(body(&no_kind)).unwrap();
    let nothing = json!({"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "request": {"uid": "u-1"}});
    for (body, said) in [
        (nothing.to_string(), "request: cannot be read: missing field `kind` at line 1 column 13"),
        (huge, "object: cannot be read: number out of range at line 1 column 10"),
        (
            no_kind,
            "request.kind: cannot be read: invalid type: string \"PipelineRollout\", expected struct GroupVersionKind at \
             line 1 column 33",
        ),
    ] {
        let Err(Unreadable::Question { uid, finding }) = read(body.as_bytes()) else { panic!("{body}") };
        assert_eq!(uid, "u-1");
        assert!(finding.to_string().starts_with(&said[..said.rfind(" at ").unwrap()]), "{finding}");
        let answer = json!(answer_to_unreadable(&uid, &finding));
        assert_eq!(answer["response"]["uid"], "u-1");
        assert_eq!(answer["response"]["allowed"], false);
        assert_eq!(answer["response"]["status"]["message"], finding.to_string());
    }
}

#[test]
fn c23_an_operation_that_is_not_known_is_one_that_nobody_has_an_opinion_on() {
    let mut asked = question();
    asked["operation"] = json!("FROBNICATE");
    assert_eq!(read(&body(&asked)).unwrap().operation, None);
}

#[test]
fn a_question_is_read_with_who_asks_it_and_about_what() {
    let review = read(&body(&question())).unwrap();
    assert_eq!((review.name.as_str(), review.namespace.as_str(), review.user.as_str()), ("a", "team-a", "alice"));
    assert_eq!(review.operation, Some(Operation::Update));
    assert!(review.dry_run);
    assert_eq!(review.object, Some(json!({"metadata": {"name": "a"}})));
    assert_eq!(review.old_object, None);
}

#[test]
fn an_object_whose_name_the_server_is_to_make_is_called_by_what_it_begins_with() {
    let mut asked = question();
    asked["name"] = json!("");
    asked["object"]["metadata"] = json!({"generateName": "a-"});
    assert_eq!(read(&body(&asked)).unwrap().name, "a-");
}

fn finding(field: &str, message: &str) -> Finding {
    Finding { field: field.to_owned(), message: message.to_owned() }
}

#[test]
fn a_refusal_has_the_shape_of_the_servers_own() {
    let review = read(&body(&question())).unwrap();
    let violations = vec![finding("spec.a", "is wrong"), finding("spec.b", "too")];
    let answer = json!(answer(&review, &Verdict { violations, warnings: Vec::new() }));
    assert_eq!(
        answer,
        json!({
            "apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview",
            "response": {"uid": "u-1", "allowed": false, "status": {
                "status": "Failure", "code": 422, "reason": "Invalid", "message": "spec.a: is wrong; spec.b: too",
                "details": {"group": "numaplane.numaproj.io", "kind": "PipelineRollout", "name": "a", "causes": [
                    {"reason": "FieldValueInvalid", "field": "spec.a", "message": "is wrong"},
                    {"reason": "FieldValueInvalid", "field": "spec.b", "message": "too"},
                ]},
            }},
        })
    );
}

#[test]
fn what_is_admitted_carries_its_warnings() {
    let review = read(&body(&question())).unwrap();
    let verdict = Verdict { violations: Vec::new(), warnings: vec!["careful".to_owned(), "careful".to_owned()] };
    let answer = json!(answer(&review, &verdict));
    assert_eq!(answer["response"], json!({"uid": "u-1", "allowed": true, "status": {}, "warnings": ["careful"]}));
}

#[test]
fn a_thousand_violations_are_not_all_named() {
    let review = read(&body(&question())).unwrap();
    let violations = (0..1000).map(|n| finding(&format!("spec.v[{n}]"), "x")).collect();
    let answer = json!(answer(&review, &Verdict { violations, warnings: Vec::new() }));
    let status = &answer["response"]["status"];
    let causes = status["details"]["causes"].as_array().unwrap();
    assert_eq!((causes.len(), &causes[50]["message"]), (51, &json!("and 950 more mistakes")));
    assert!(status["message"].as_str().unwrap().ends_with("spec.v[19]: x; and 980 more"));
}

#[test]
fn warnings_come_through_the_header_in_which_they_travel() {
    let shown = |text: &str| warnings(&[text.to_owned()]).pop().unwrap_or_default();
    assert_eq!(shown("two\nlines,\ta tab \u{7f} and\r\nmore"), "two lines, a tab and more");
    assert_eq!(shown("caf\u{e9} \u{1f600}"), r"caf\u{e9} \u{1f600}");
    assert_eq!(shown(" \n "), "");
    let long = "word ".repeat(100);
    assert_eq!(shown(&long), format!("{}word ...", "word ".repeat(49)));
    for text in ["x".repeat(300), "\u{e9}".repeat(300), format!("{} {}", "x".repeat(250), "y".repeat(250))] {
        let line = shown(&text);
        assert!(line.len() <= 256 && line.is_ascii() && line.ends_with(" ..."), "{line}");
    }
    assert_eq!(shown(&"x".repeat(256)), "x".repeat(256));
    let many: Vec<String> = (0..12).map(|n| format!("warning {n}")).collect();
    assert_eq!(warnings(&many).len(), 10);
    assert_eq!(warnings(&many)[9], "and 3 more warnings");
}

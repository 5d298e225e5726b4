//! What a ConfigMap may say, every mistake that can be made in one, and what holds then.

use std::{collections::BTreeMap, sync::Arc};

use serde_json::json;

use crate::changes::{Change, Difference, Kind, List, Lists, Rule, Rulebook, Rules, Written, classify, parse};

fn written(entries: &[(&str, &str)]) -> Written {
    let data: BTreeMap<_, _> = entries.iter().map(|(key, text)| ((*key).to_owned(), (*text).to_owned())).collect();
    parse(&data)
}

fn told(written: &Written) -> Vec<String> {
    written.faults().map(|fault| fault.at("here")).collect()
}

fn rule(path: &str, include_subfields: bool) -> Rule {
    Rule { path: path.to_owned(), include_subfields }
}

#[test]
fn lists_are_read_as_they_are_written() {
    let text = "# why\nrecreate: []\ndataLoss:\n  - path: spec.vertices.udf\n    includeSubfields: true\n  \
                - {path: spec.edges, includeSubfields: }\n";
    let expected = Lists {
        recreate: Some(Vec::new()),
        data_loss: Some(vec![rule("spec.vertices.udf", true), rule("spec.edges", false)]),
        progressive: None,
    };
    let read =
        written(&[("pipeline", text), ("MonoVertex", ""), ("numaflowcontroller", "dataLoss: [{path: spec.version}]")]);
    assert_eq!(told(&read), Vec::<String>::new());
    assert_eq!(read.kinds.get(&Kind::Pipeline), Some(&Ok(expected.clone())));
    assert_eq!(read.kinds.get(&Kind::MonoVertex), Some(&Ok(Lists::default())));
    assert_eq!(read.kinds.get(&Kind::InterStepBufferService), None);
    // A list that is left out is as built in; one that is empty is empty.
    let rules = Rules::built_in(Kind::Pipeline).with(&Lists { recreate: None, ..expected });
    assert_eq!(rules.recreate, Rules::built_in(Kind::Pipeline).recreate);
    assert_eq!(rules.data_loss.len(), 2);
}

#[test]
fn whatever_is_wrong_is_told_with_key_and_line() {
    for (key, text, expected) in [
        (
            "pipelines",
            "",
            "here, key \"pipelines\": this is not a kind; those there may be are pipeline, interstepbufferservice, \
             monovertex and numaflowcontroller; correct or remove it",
        ),
        ("pipeline", "a: [1,\n", "here, key \"pipeline\", line 1: this is not YAML: unclosed bracket '['"),
        ("pipeline", "{}\n---\n{}\n", "here, key \"pipeline\", line 3: a second document begins here; keep one"),
        (
            "pipeline",
            "spec.edges\n",
            "here, key \"pipeline\", line 1: this is text; it must be a map with recreate, dataLoss and progressive",
        ),
        (
            "pipeline",
            "recreate: []\ndataloss: []\n",
            "here, key \"pipeline\", line 2: there is no list dataloss; those there may be are recreate, dataLoss and \
             progressive",
        ),
        (
            "pipeline",
            "recreate: []\nrecreate: []\n",
            "here, key \"pipeline\", line 2: recreate is given twice; remove one of the two",
        ),
        (
            "pipeline",
            "recreate: spec.edges\n",
            "here, key \"pipeline\", line 1: recreate is text; it must be a list with entries like {path: spec.…, \
             includeSubfields: false}",
        ),
        (
            "pipeline",
            "recreate:\n- spec.edges\n",
            "here, key \"pipeline\", line 2: an entry of recreate is text; it must be like {path: spec.…, \
             includeSubfields: false}",
        ),
        (
            "pipeline",
            "recreate:\n- includeSubfields: true\n",
            "here, key \"pipeline\", line 2: an entry of recreate has no path; it is like {path: spec.…, \
             includeSubfields: false}",
        ),
        (
            "pipeline",
            "recreate:\n- path: spec.edges\n  subfields: true\n",
            "here, key \"pipeline\", line 3: an entry of recreate has no key subfields; it is like {path: spec.…, \
             includeSubfields: false}",
        ),
        (
            "pipeline",
            "recreate:\n- path: spec.edges\n  includeSubfields: \"true\"\n",
            "here, key \"pipeline\", line 3: includeSubfields is text; it must be true or false",
        ),
        (
            "pipeline",
            "recreate:\n- path: [a]\n",
            "here, key \"pipeline\", line 2: path is a list; it must be text like spec.edges",
        ),
        (
            "pipeline",
            "---\nrecreate:\n- path: vertices\n",
            "here, key \"pipeline\", line 3: path \"vertices\" does not begin with spec; write it from there, like \
             spec.vertices.udf.container.image",
        ),
        (
            "pipeline",
            "recreate:\n- path: spec.vertices[0].udf\n",
            "here, key \"pipeline\", line 2: path \"spec.vertices[0].udf\" has \"vertices[0]\"; leave it out: a path goes \
             through all entries of a list by itself",
        ),
        (
            "pipeline",
            "recreate:\n- path: spec..udf\n",
            "here, key \"pipeline\", line 2: path \"spec..udf\" has a dot too many; write names with one dot between them",
        ),
        (
            "pipeline",
            "recreate:\n- path: spec.a b\n",
            "here, key \"pipeline\", line 2: path \"spec.a b\" has \"a b\", which is not the name of a field",
        ),
        (
            "monovertex",
            "dataLoss:\n- path: spec.vertices.source.kafka\n",
            "here, key \"monovertex\", line 2: path \"spec.vertices.source.kafka\" is a field of Pipeline, and MonoVertex \
             has no spec.vertices; remove it, or correct the path",
        ),
        (
            "pipeline",
            "dataLoss:\n- path: spec.lifecycle.desiredPhase\n",
            "here, key \"pipeline\", line 2: path \"spec.lifecycle.desiredPhase\" never counts as a change, because it \
             says when to pause; remove it",
        ),
    ] {
        assert_eq!(told(&written(&[(key, text)])), [expected], "{text}");
    }
    let twice = written(&[("Pipeline", ""), ("pipeline", "")]);
    assert_eq!(told(&twice), ["here, key \"pipeline\": the same kind has another key; remove one of the two"]);
    // Everything at once.
    assert_eq!(told(&written(&[("pipeline", "a: 1\nrecreate:\n- b\n- {path: c}\n"), ("x", "")])).len(), 4);
}

/// As Numaplane's own is written, with its slips.
#[test]
fn a_config_map_of_numaplane_does_what_it_was_meant_to() {
    let read = written(&[
        (
            "pipeline",
            "dataLoss:\n- path: spec.edges.from\n- path: spec.vertices.source.udsource.container.envfrom\n  \
             includeSubfields: true\nrecreate:\n- path: spec.interStepBufferServiceName\n",
        ),
        ("interstepbufferservice", "recreate:\n- path: spec\n- path: spec.redis.native.replicas\n"),
        ("monovertex", "progressive:\n- path: spec.sink.udsink.container.env\n"),
        ("numaflowcontroller", "dataLoss:\n- path: spec\n  includeSubfields: true\n"),
    ]);
    assert_eq!(told(&read), Vec::<String>::new());
    let rules = Rules::built_in(Kind::Pipeline).with(read.kinds[&Kind::Pipeline].as_ref().unwrap());
    let spec = |name: &str, to: &str| {
        let container = json!({"envFrom": [{"configMapRef": {"name": name}}]});
        let vertices = json!([{"name": "in", "source": {"udsource": {"container": container}}}]);
        json!({"vertices": vertices, "edges": [{"from": "in", "to": to}]})
    };
    for (old, new) in [(spec("a", "out"), spec("b", "out")), (spec("a", "out"), spec("a", "other"))] {
        assert!(matches!(classify(&old, &new, &rules), Change::Pause(_)), "{old} {new}");
    }
}

/// What needs a new object in a pipeline and in a MonoVertex.
fn marks(book: &Rulebook) -> (String, String) {
    let mark = |kind| {
        let rules: Arc<Rules> = book.rules(kind);
        if *rules == Rules::built_in(kind) {
            return "built in".to_owned();
        }
        rules.recreate.iter().map(|rule| rule.path.as_str()).collect::<Vec<_>>().join(",")
    };
    (mark(Kind::Pipeline), mark(Kind::MonoVertex))
}

fn both(pipeline: &str, mono_vertex: &str) -> Written {
    written(&[("pipeline", pipeline), ("monovertex", mono_vertex)])
}

fn is(pipeline: &str, mono_vertex: &str) -> (String, String) {
    (pipeline.to_owned(), mono_vertex.to_owned())
}

const A: &str = "recreate: [{path: spec.a}]";
const B: &str = "recreate: [{path: spec.b}]";
const BROKEN: &str = "recreate: [{path: a}]";

#[test]
fn a_broken_kind_keeps_what_it_said_and_takes_no_other_with_it() {
    let mut book = Rulebook::default();
    assert_eq!(marks(&book), is("built in", "built in"));
    let difference = book.set("ns", "a", "1", &both(A, B));
    assert_eq!(difference, Difference { kinds: vec![Kind::Pipeline, Kind::MonoVertex], notices: Vec::new() });
    assert_eq!(marks(&book), is("spec.a", "spec.b"));
    assert_eq!(book.set("ns", "a", "1", &both(A, B)), Difference::default());

    let difference = book.set("ns", "a", "1", &both(BROKEN, A));
    assert_eq!(difference.kinds, [Kind::MonoVertex]);
    assert_eq!(
        difference.notices.iter().map(|notice| notice.text.as_str()).collect::<Vec<_>>(),
        ["ConfigMap ns/a, key \"pipeline\", line 1: path \"a\" does not begin with spec; write it from there, like \
          spec.vertices.udf.container.image (what this key said before stays in use, or else what is built in)"]
    );
    assert_eq!((marks(&book), book.invalid()), (is("spec.a", "spec.a"), 1));
    assert_eq!(book.set("ns", "a", "1", &both(BROKEN, A)), Difference::default(), "told already");
    // A key that is written wrongly is not a key that is removed.
    book.set("ns", "a", "1", &written(&[("pipelin", B), ("monovertex", A)]));
    assert_eq!(marks(&book), is("spec.a", "spec.a"));
    book.set("ns", "a", "1", &written(&[("monovertex", A)]));
    assert_eq!((marks(&book), book.invalid()), (is("built in", "spec.a"), 0));
    // Made anew under the same name, and removed: nothing of it holds on, and what is built in does.
    book.set("ns", "a", "2", &both(BROKEN, BROKEN));
    assert_eq!(marks(&book), is("built in", "built in"));
    book.set("ns", "a", "2", &both(A, B));
    assert_eq!(book.remove("ns", "a").kinds, [Kind::Pipeline, Kind::MonoVertex]);
    assert_eq!((marks(&book), book.invalid()), (is("built in", "built in"), 0));
}

#[test]
fn of_several_the_first_by_name_counts_and_the_others_are_told() {
    let mut book = Rulebook::default();
    book.set("ns", "b", "1", &both(B, B));
    let difference = book.set("ns", "a", "2", &written(&[("pipeline", A)]));
    assert_eq!(marks(&book), is("spec.a", "built in"));
    assert_eq!(
        difference.notices.iter().map(|notice| (notice.name.as_str(), notice.text.as_str())).collect::<Vec<_>>(),
        [(
            "b",
            "ConfigMap ns/b: ConfigMap ns/a has the label usde-config too, and counts because its name comes first; \
             make one of the two (nothing of this one is in use)"
        )]
    );
    assert_eq!(book.invalid(), 1);
    book.remove("ns", "a");
    assert_eq!((marks(&book), book.invalid()), (is("spec.b", "spec.b"), 0));
    // One that never was any good takes nothing from the others.
    let difference = book.set("ns", "a", "3", &written(&[("pipeline", BROKEN)]));
    assert!(difference.notices[0].text.ends_with("(nothing of it is in use)"), "{difference:?}");
    assert_eq!((marks(&book), book.invalid()), (is("spec.b", "spec.b"), 1));
}

#[test]
fn the_example_says_what_it_says_and_is_the_one_in_the_docs() {
    let (example, docs) =
        (include_str!("../../../examples/changes.yaml"), include_str!("../../../docs/configuration.md"));
    let map: k8s_openapi::api::core::v1::ConfigMap = serde_saphyr::from_str(example).unwrap();
    assert_eq!(
        map.metadata.labels.unwrap_or_default().get(crate::api::LABEL_CONFIG).unwrap(),
        crate::api::CONFIG_CHANGES
    );
    let read = parse(&map.data.unwrap_or_default());
    assert_eq!(told(&read), Vec::<String>::new());
    let kinds: Vec<Kind> = read.kinds.keys().copied().collect();
    assert_eq!(kinds, [Kind::InterStepBufferService, Kind::MonoVertex]);
    let indented: String =
        example.lines().map(|line| if line.is_empty() { "\n".to_owned() } else { format!("    {line}\n") }).collect();
    assert!(docs.contains(&indented), "docs/configuration.md shows another one");
}

/// The rows of a table in the docs: paths, and the list they are in.
fn in_docs(heading: &str) -> Vec<(String, String)> {
    let docs = include_str!("../../../docs/configuration.md");
    let section = docs.split(heading).nth(1).unwrap().split("\n#").next().unwrap();
    let rows = section.lines().filter_map(|line| line.strip_prefix("| `spec."));
    rows.map(|row| {
        let mut cells = row.split('|');
        let (path, list) = (cells.next().unwrap(), cells.next().unwrap());
        (format!("`spec.{path}"), list.trim().to_owned())
    })
    .collect()
}

#[test]
fn the_docs_have_every_path_that_is_built_in() {
    for (kind, heading) in [
        (Kind::Pipeline, "#### Pipeline"),
        (Kind::MonoVertex, "#### MonoVertex"),
        (Kind::InterStepBufferService, "#### InterStepBufferService"),
    ] {
        let rows = in_docs(heading);
        for list in List::ALL {
            for rule in Rules::built_in(kind).list(list) {
                let said = rows.iter().any(|(cell, of)| of == list.key() && covers(cell, &rule.path));
                assert!(said, "{kind}: {} is not in the docs as {}", rule.path, list.key());
            }
        }
    }
}

/// Whether one of the paths in a cell, like `` `spec.a.{b, c}`, `spec.d` ``, is this one.
fn covers(cell: &str, path: &str) -> bool {
    let cell = cell.replace(".C`", ".{image, command, args, env, envFrom, volumeMounts}`");
    cell.split('`').skip(1).step_by(2).any(|written| {
        let mut all = vec![String::new()];
        let mut rest = written;
        while let Some((before, after)) = rest.split_once('{') {
            let (choices, after) = after.split_once('}').unwrap();
            all = all
                .iter()
                .flat_map(|start| choices.split(',').map(move |one| format!("{start}{before}{}", one.trim())))
                .collect();
            rest = after;
        }
        all.iter().any(|start| format!("{start}{rest}") == path)
    })
}

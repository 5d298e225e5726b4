use super::*;

/// A good entry, indented for a list in the first column; its fullSpec begins on its third line.
fn entry(version: &str) -> String {
    format!(
        "- version: {version}\n  fullSpec: |-\n    apiVersion: v1\n    kind: ConfigMap\n    metadata:\n      name: \
         config{{{{ .InstanceSuffix }}}}\n"
    )
}

fn list(entries: &[&str]) -> String {
    format!("controllerDefinitions:\n{}", entries.concat())
}

fn parse(value: &str) -> Parsed {
    parse_config_map("numaplane-system", "defs", &BTreeMap::from([("defs.yaml".to_owned(), value.to_owned())]))
}

fn versions(parsed: &Parsed) -> Vec<&str> {
    parsed.definitions.iter().map(|located| located.definition.version.as_str()).collect()
}

/// The one error of `value`, and the versions that are good all the same.
fn error(value: &str) -> (EntryError, Vec<String>) {
    let parsed = parse(value);
    assert_eq!(parsed.errors.len(), 1, "{value}\n{:#?}", parsed.errors);
    (parsed.errors[0].clone(), versions(&parsed).into_iter().map(str::to_owned).collect())
}

#[test]
fn entries_are_read_with_their_place() {
    let value = list(&[&entry("\"1.8.0\""), "# between\n", &entry("1.8.1")]);
    let parsed = parse(&value);
    assert_eq!(parsed.errors, []);
    assert_eq!(versions(&parsed), ["1.8.0", "1.8.1"]);
    assert_eq!(
        parsed.definitions[0].definition.full_spec,
        "apiVersion: v1\nkind: ConfigMap\nmetadata:\n  name: config{{ .InstanceSuffix }}"
    );
    assert_eq!(
        parsed.definitions[1].place.to_string(),
        "ConfigMap numaplane-system/defs, key \"defs.yaml\", entry 2, line 9"
    );
}

#[test]
fn a_value_without_entries_is_no_trouble() {
    for value in ["", "\n", "# later\n", "---\n", "controllerDefinitions:\n", "controllerDefinitions: []\n"] {
        assert_eq!(parse(value), Parsed::default(), "{value:?}");
    }
    assert_eq!(parse_config_map("n", "c", &BTreeMap::new()), Parsed::default());
}

#[test]
fn entries_in_several_keys_and_documents_are_all_read() {
    let data = BTreeMap::from([
        ("a".to_owned(), format!("{}---\n{}---\n", list(&[&entry("1")]), list(&[&entry("2")]))),
        ("b".to_owned(), "{".to_owned()),
        ("c".to_owned(), list(&[&entry("3")])),
    ]);
    let parsed = parse_config_map("n", "c", &data);
    assert_eq!(versions(&parsed), ["1", "2", "3"]);
    let lines: Vec<_> = parsed.definitions.iter().map(|located| (located.place.entry, located.place.line)).collect();
    assert_eq!(lines, [(1, 2), (2, 10), (1, 2)]);
    assert_eq!(parsed.errors.len(), 1);
    assert_eq!((parsed.errors[0].key.as_str(), parsed.errors[0].line), ("b", Some(1)));
}

#[test]
fn the_version_is_what_was_written_even_if_yaml_takes_it_for_a_number() {
    for (written, version) in [
        ("1.10", "1.10"),
        ("1.8", "1.8"),
        ("2", "2"),
        ("1e3", "1e3"),
        ("010", "010"),
        ("yes", "yes"),
        ("'1.8.3'", "1.8.3"),
        ("v1.8.3", "v1.8.3"),
        ("1.8.3  # the good one", "1.8.3"),
        ("2001-01-01", "2001-01-01"),
        (".nan", ".nan"),
    ] {
        assert_eq!(versions(&parse(&list(&[&entry(written)]))), [version], "{written}");
    }
    let aliased = format!("v: &v 1.10\n{}", list(&[&entry("*v")]));
    assert_eq!(versions(&parse(&aliased)), ["1.10"]);
}

#[test]
fn a_bad_entry_never_hides_another_and_is_named_with_its_line() {
    let (a, b) = (entry("a"), entry("b"));
    for (bad, version, line, message) in [
        ("- fullSpec: x\n", None, 8, "the entry has no version (its fields are: fullSpec); add it"),
        (
            "- version: x\n  fullspec: y\n",
            Some("x"),
            8,
            "the entry has no fullSpec (its fields are: version, fullspec)",
        ),
        ("- version: x\n  fullSpec:\n    kind: X\n", Some("x"), 10, "fullSpec is a map; write the objects as text"),
        ("- version: x\n  fullSpec: []\n", Some("x"), 9, "fullSpec is a list"),
        ("- version: x\n  fullSpec:\n", Some("x"), 9, "fullSpec is empty"),
        ("- version: x\n  fullSpec: 5\n", Some("x"), 9, "fullSpec is a number"),
        ("- version: x\n  fullSpec: ''\n", Some("x"), 9, "there is no object"),
        ("- version: ''\n  fullSpec: x\n", None, 8, "version is empty"),
        ("- version:\n  fullSpec: x\n", None, 8, "version is empty"),
        ("- version: [1]\n  fullSpec: x\n", None, 8, "version is a list"),
        ("- version: {a: 1}\n  fullSpec: x\n", None, 8, "version is a map"),
        ("- version: 1.8 .3\n  fullSpec: x\n", None, 8, "version \"1.8 .3\" contains white space"),
        ("- version: x\n  fullSpec: x\n  version: y\n", Some("x"), 10, "version is given twice"),
        (
            "- version: x\n  isolated: maybe\n  fullSpec: x\n",
            Some("x"),
            9,
            "isolated is text; it must be true or false",
        ),
        ("- version: x\n  leaderElection: 1\n  fullSpec: x\n", Some("x"), 9, "leaderElection is a number"),
        ("-\n", None, 8, "the entry is empty"),
        ("- {}\n", None, 8, "the entry has no version"),
        ("- text\n", None, 8, "the entry is text; it must be a map"),
        ("- - nested\n", None, 8, "the entry is a list"),
        ("- version: x\n  fullSpec: just text\n", Some("x"), 9, "this is text, not an object"),
    ] {
        let (error, good) = error(&list(&[&a, bad, &b]));
        assert_eq!(good, ["a", "b"], "{bad}");
        assert_eq!(
            (error.entry, error.version.as_deref(), error.line),
            (Some(2), version, Some(line)),
            "{bad}: {error}"
        );
        assert!(error.message.contains(message), "{bad}: {error}");
    }
    let long = "1".repeat(64);
    let (error, _) = error(&list(&[&entry(&long)]));
    assert!(error.message.contains("more than 63 characters"), "{error}");
}

#[test]
fn the_error_of_a_broken_document_says_where_to_look() {
    let broken = entry("x") + "    ---\n    kind: [\n    ---\n    more: x\n";
    let (error, good) = error(&list(&[&entry("a"), &broken, &entry("b")]));
    assert_eq!(good, ["a", "b"]);
    assert_eq!(
        error.to_string(),
        "ConfigMap numaplane-system/defs, key \"defs.yaml\", entry 2 (version \"x\"), line 15: \
         fullSpec, document 2: this is not YAML: unclosed bracket '['"
    );
}

#[test]
fn the_line_is_that_of_the_value_wherever_the_text_stands() {
    for (spec, line) in [
        // Block scalars: the line itself.
        ("|\n    a: b\n    c: [\n", Some(5)),
        ("|-\n\n\n    # first\n    c: [\n", Some(7)),
        ("|2\n     a: b\n     c: [\n", Some(5)),
        // Folded or quoted text has lines of its own: the line of the text, and which line of it.
        (">\n    a: b\n\n    c: [\n", None),
        ("\"a: b\\nc: [\"\n", None),
    ] {
        let (error, _) = error(&list(&[&format!("- version: x\n  fullSpec: {spec}")]));
        if line.is_some() {
            assert_eq!(error.line, line, "{spec}: {error}");
        } else {
            assert!(error.to_string().ends_with(" (line 2 of fullSpec)"), "{spec}: {error}");
            assert!(error.line == Some(3) || error.line == Some(4), "{spec}: {error}");
        }
    }
}

#[test]
fn a_value_that_is_not_yaml_costs_the_broken_entry_only() {
    let (a, b) = (entry("a"), entry("b"));
    for (bad, version, line) in [
        // Indentation lost within fullSpec, to the column of fields, of dashes and of the list.
        ("- version: x\n  fullSpec: |\n    kind: A\n   metadata:\n      name: x\n", Some("x"), 11),
        ("- version: x\n  fullSpec: |\n    kind: A\n  metadata:\n    name: x\n", Some("x"), 11),
        ("- version: x\n  fullSpec: |\nkind: A\nmetadata: {}\n", Some("x"), 10),
        ("- version: x\n  fullSpec: |\n    kind: A\n---\n    kind: B\n", Some("x"), 11),
        // Quotes, brackets, tabs, anchors.
        ("- version: \"x\n  fullSpec: y\n", None, 8),
        ("- version: x\n  fullSpec: {{ y }}\n  isolated: [\n", Some("x"), 10),
        ("- version: x\n\tfullSpec: y\n", None, 8),
        ("- version: x\n  fullSpec: *nowhere\n", Some("x"), 9),
        ("- version: x\n  fullSpec: a: b\n", Some("x"), 9),
        ("- version: !!int x\n  fullSpec: y\n", None, 8),
    ] {
        let (error, good) = error(&list(&[&a, bad, &b]));
        assert_eq!(good, ["a", "b"], "{bad}\n{error}");
        assert_eq!(error.entry, Some(2), "{bad}: {error}");
        if let Some(version) = version {
            assert_eq!(error.version.as_deref(), Some(version), "{bad}: {error}");
        }
        assert!(error.line.is_some_and(|found| found.abs_diff(line) <= 1), "{bad}: {error}");
    }
}

#[test]
fn an_entry_whose_text_ends_too_early_is_not_taken_for_whole() {
    // Everything left of its place is YAML all the same; what is left of the entry would remove half of the controller.
    for tail in ["kind: B\nmetadata: {name: b}\n", "---\nkind: B\n", "---\n    kind: B\n", "  kind: B\n"] {
        let (error, good) = error(&list(&[&entry("a"), &entry("x"), tail]));
        assert_eq!(good, ["a"], "{tail:?}");
        assert_eq!((error.entry, error.version.as_deref()), (Some(2), Some("x")), "{tail:?}: {error}");
    }
}

#[test]
fn a_value_that_is_something_else_is_told_so() {
    for (value, line, message) in [
        ("just text\n", 1, "this is text; it must be a map with a list controllerDefinitions"),
        ("\n- version: a\n", 2, "this is a list"),
        ("# x\ncontrollerDefinition: []\n", 2, "there is no list controllerDefinitions"),
        ("controllerDefinitions: text\n", 1, "controllerDefinitions is text; it must be a list"),
        ("controllerDefinitions: {}\n", 1, "controllerDefinitions is a map; it must be a list"),
        ("a: [\n", 1, "this is not YAML: unclosed bracket"),
        ("controllerDefinitions: [{version: a}\n", 1, "this is not YAML"),
    ] {
        let (error, _) = error(value);
        assert_eq!((error.entry, error.line), (None, Some(line)), "{value:?}: {error}");
        assert!(error.message.contains(message), "{value:?}: {error}");
    }
    let twice = format!("{}{}", list(&[&entry("a")]), list(&[&entry("b")]));
    let (error, good) = error(&twice);
    assert!(error.message.contains("given twice"), "{error}");
    assert_eq!(good, ["a", "b"]);
    let (error, good) = self::error(&format!("x: [\n{}", list(&[&entry("a"), &entry("b")])));
    assert_eq!((error.entry, error.line), (None, Some(3)), "the bracket swallows the list: {error}");
    assert_eq!(good, ["a", "b"]);
}

#[test]
fn settings_and_unknown_fields_are_read_and_tolerated() {
    let parsed = parse(&list(&[
        &(entry("a") + "  isolated: true\n  leaderElection: 'false'\n  note: {any: thing}\n  5: x\n"),
        &(entry("b") + "  isolated:\n"),
    ]));
    assert_eq!(parsed.errors, []);
    let settings: Vec<_> =
        parsed.definitions.iter().map(|it| (it.definition.isolated, it.definition.leader_election)).collect();
    assert_eq!(settings, [(Some(true), Some(false)), (None, None)]);
}

#[test]
fn windows_line_ends_and_json_are_read() {
    let windows = list(&[&entry("a"), &entry("b")]).replace('\n', "\r\n");
    assert_eq!(versions(&parse(&windows)), ["a", "b"]);
    let json = r#"{"controllerDefinitions": [{"version": "a", "fullSpec": "{\"apiVersion\": \"v1\", \"kind\": \"X\", \"metadata\": {\"name\": \"x\"}}"}]}"#;
    assert_eq!(versions(&parse(json)), ["a"]);
}

#[test]
fn a_definition_survives_being_stored() {
    let definition = Definition {
        version: "1.8.3".into(),
        full_spec: "a: <&>\n".into(),
        isolated: None,
        leader_election: Some(false),
    };
    let json = serde_json::to_string(&definition).unwrap();
    assert_eq!(json, r#"{"version":"1.8.3","fullSpec":"a: <&>\n","leaderElection":false}"#);
    assert_eq!(serde_json::from_str::<Definition>(&json).unwrap(), definition);
    assert_eq!(serde_json::from_str::<Definition>(r#"{"version":"1","fullSpec":"","later":1}"#).unwrap().version, "1");
}

#[test]
fn a_config_map_as_large_as_they_get_is_read_at_once() {
    // Entries of 100 KiB up to the limit of 1 MiB, and one value of many small things.
    let mut large = entry("1");
    let line = "    # ".to_owned() + &"x".repeat(73) + "\n";
    while large.len() < 100 << 10 {
        large += "    ---\n    apiVersion: v1\n    kind: ConfigMap\n    metadata:\n      name: more\n    data:\n      a: |\n";
        large += &("    ".to_owned() + &line).repeat(20);
    }
    let entries: Vec<_> = (0..10).map(|n| large.replacen("version: 1", &format!("version: 1.{n}"), 1)).collect();
    let value = list(&entries.iter().map(String::as_str).collect::<Vec<_>>());
    assert!(value.len() > 1_000 << 10);
    let start = std::time::Instant::now();
    let parsed = parse(&value);
    let took = start.elapsed();
    assert_eq!((parsed.definitions.len(), parsed.errors), (10, Vec::new()));
    // Generous: this is for what grows with the square of the size, in an unoptimised build on a busy machine.
    assert!(took.as_secs() < 10, "{took:?}");

    let many = format!("{}  x: [{}]\n", list(&[&entry("1")]), "0,".repeat(500_000));
    assert_eq!(parse(&many).errors, []);
    let many = entry("1") + "    x: [" + &"0,".repeat(500_000) + "]\n";
    assert_eq!(parse(&list(&[&many])).errors, []);
    let junk = list(&["- [\n".repeat(200_000).as_str()]);
    assert!(!parse(&junk).errors.is_empty());
}

#[test]
fn no_text_brings_the_reader_down() {
    use proptest::prelude::*;
    let pieces = "(controllerDefinitions:|- |  |\n|version: |fullSpec: |\\|\n|a|1\\.8|\"|'|\\[|\\{|\\}|---\n|&a |\\*a|!!|#|:|\t|é|kind: X\n){0,40}";
    let mut runner = proptest::test_runner::TestRunner::default();
    runner
        .run(&pieces, |text| {
            let parsed = parse(&text);
            for error in &parsed.errors {
                let lines = text.lines().count() as u64;
                prop_assert!(error.line.is_some_and(|line| (1..=lines + 1).contains(&line)), "{error}");
            }
            Ok(())
        })
        .unwrap();
}

#[test]
fn one_text_repeated_by_aliases_cannot_fill_the_memory() {
    let text = "x".repeat(100_000);
    let entries: String = (0..300).map(|n| format!("- {{version: \"{n}\", fullSpec: *text}}\n")).collect();
    let value = format!("controllerDefinitions:\n- {{version: first, fullSpec: &text \"{text}\"}}\n{entries}");
    let parsed = parse(&value);
    assert_eq!(parsed.definitions, []);
    assert!(parsed.errors.iter().map(|error| error.message.len()).sum::<usize>() < 100_000);
    let said = "this is not YAML: aliases make it more than 4 times as long; write it out, or split it";
    assert!(parsed.errors.iter().any(|error| error.message == said), "{:?}", parsed.errors.first());
}

/// CPU that reading a value took: what else the machine does is no matter.
fn cpu(value: &str) -> (Parsed, std::time::Duration) {
    let now = || {
        let time = rustix::time::clock_gettime(rustix::time::ClockId::ThreadCPUTime);
        std::time::Duration::try_from(time).unwrap()
    };
    let before = now();
    let parsed = parse(value);
    (parsed, now().saturating_sub(before))
}

#[test]
fn an_entry_with_very_many_fields_takes_no_longer_than_its_text() {
    let fields: String = (0..100_000).map(|n| format!("  f{n}: x\n")).collect();
    let (parsed, took) = cpu(&list(&[&format!("- version: \"1\"\n{fields}"), &entry("2")]));
    assert_eq!((versions(&parsed), parsed.errors.len()), (vec!["2"], 1));
    // Generous: with the square of their number it would be a minute.
    assert!(took.as_secs() < 10, "{took:?}");
}

#[test]
fn very_many_documents_behind_a_dropped_line_break_take_no_longer_than_their_text() {
    let documents = "    ---\n    {apiVersion: v1, kind: X, metadata: {name: x}}\n".repeat(20_000);
    let comment = "    # {{ .InstanceID -}}\n\n    # more\n";
    let entry = format!("- version: \"1\"\n  fullSpec: |\n{comment}{documents}    ---\n    []\n");
    let (parsed, took) = cpu(&list(&[&entry]));
    assert_eq!(parsed.errors[0].line, Some(40_008), "{:?}", parsed.errors);
    assert!(took.as_secs() < 10, "{took:?}");
}

//! The two variables of a definition, in the spellings Go templates allow; everything else stays as it is written.
//!
//! Definitions are Go templates over `.InstanceSuffix` and `.InstanceID`. They carry text that has braces of its own
//! (alerts with `{{ $labels.pod }}`, scripts, other people's templates), which must reach the cluster byte for byte. So
//! this is Go's lexer, and of its language the two variables alone: plain, after `$`, in parentheses, with spaces and
//! line breaks, with trim markers. Quoted text and comments inside other actions are skipped as Go skips them, so that
//! a variable named in them stays.

use std::borrow::Cow;

/// Whose objects a definition is rendered for.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Instance {
    /// Value of `.InstanceID`: the ID of the controller instance, empty for the one without a name.
    pub id: String,
    /// Value of `.InstanceSuffix`: what the names of the objects end with.
    pub suffix: String,
}

impl Instance {
    /// The production instance `id`: suffix `-id`, or none where the ID is empty.
    #[must_use]
    pub fn production(id: &str) -> Self {
        let suffix = if id.is_empty() { String::new() } else { format!("-{id}") };
        Self { id: id.to_owned(), suffix }
    }
}

/// Puts the two variables into `text`; every other byte stays.
#[must_use]
pub fn render_template(text: &str, instance: &Instance) -> String {
    Rendering::new(text, instance).text.into_owned()
}

/// Longest action that is looked through for its end. Longer ones are text like any other; without a bound, text full
/// of opening braces would be read once for each of them.
const LONGEST_ACTION: usize = 1024;

/// Rendered text that remembers where line breaks went.
#[derive(Clone, Debug)]
pub(super) struct Rendering<'t> {
    /// The result.
    pub text: Cow<'t, str>,
    /// Where rendering dropped line breaks: (first line of the result that begins behind them, how many so far).
    dropped: Vec<(u64, u64)>,
}

impl<'t> Rendering<'t> {
    /// Renders `text` for `instance`.
    pub fn new(text: &'t str, instance: &Instance) -> Self {
        if !text.contains("{{") {
            return Self { text: Cow::Borrowed(text), dropped: Vec::new() };
        }
        let mut out = String::with_capacity(text.len());
        // (offset in the result, line breaks dropped there)
        let mut dropped: Vec<(usize, u64)> = Vec::new();
        // Trimming reaches back to the last action, not into it.
        let mut since_action = 0;
        let mut comments_end = true;
        let mut rest = text;
        while let Some(at) = rest.find("{{") {
            out.push_str(&rest[..at]);
            rest = &rest[at..];
            match Action::read(rest, &mut comments_end) {
                Action::None => {
                    out.push_str("{{");
                    rest = &rest[2..];
                }
                Action::Other { length } => {
                    out.push_str(&rest[..length]);
                    rest = &rest[length..];
                    since_action = out.len();
                }
                Action::Variable { length, variable, trim_before, trim_after } => {
                    let mut breaks = line_breaks(&rest[..length]);
                    rest = &rest[length..];
                    if trim_before {
                        let kept = since_action + out[since_action..].trim_end_matches(SPACE).len();
                        breaks += line_breaks(&out[kept..]);
                        out.truncate(kept);
                    }
                    out.push_str(match variable {
                        Variable::Id => &instance.id,
                        Variable::Suffix => &instance.suffix,
                    });
                    if trim_after {
                        let trimmed = rest.trim_start_matches(SPACE);
                        breaks += line_breaks(&rest[..rest.len() - trimmed.len()]);
                        rest = trimmed;
                    }
                    if breaks > 0 {
                        dropped.push((out.len(), breaks));
                    }
                    since_action = out.len();
                }
            }
        }
        out.push_str(rest);
        let (mut line, mut total, mut counted) = (1, 0, 0);
        let dropped = dropped.into_iter().map(|(offset, breaks)| {
            line += line_breaks(&out[counted..offset]);
            (counted, total) = (offset, total + breaks);
            let begins_here = out[..offset].ends_with('\n') || offset == 0;
            (if begins_here { line } else { line + 1 }, total)
        });
        let dropped = dropped.collect();
        Self { text: Cow::Owned(out), dropped }
    }

    /// The line of the template that became `line` of the result (both 1-based).
    pub fn template_line(&self, line: u64) -> u64 {
        let behind = self.dropped.partition_point(|(first, _)| *first <= line);
        line + behind.checked_sub(1).map_or(0, |last| self.dropped[last].1)
    }
}

/// What Go's templates take for space.
const SPACE: [char; 4] = [' ', '\t', '\r', '\n'];

fn is_space(byte: Option<&u8>) -> bool {
    matches!(byte, Some(b' ' | b'\t' | b'\r' | b'\n'))
}

fn line_breaks(text: &str) -> u64 {
    text.bytes().filter(|byte| *byte == b'\n').count() as u64
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Variable {
    Id,
    Suffix,
}

/// What stands at an opening `{{`. Lengths are in bytes, braces included.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Action {
    /// One of our variables.
    Variable { length: usize, variable: Variable, trim_before: bool, trim_after: bool },
    /// Another action, or a comment.
    Other { length: usize },
    /// Two braces that begin no action.
    None,
}

impl Action {
    /// Reads what stands at the start of `text`, which begins with `{{`. `comments_end` turns false once the rest of
    /// the text is known to hold no end of a comment.
    fn read(text: &str, comments_end: &mut bool) -> Self {
        let bytes = text.as_bytes();
        let trim_before = bytes.get(2) == Some(&b'-') && is_space(bytes.get(3));
        let start = if trim_before { 4 } else { 2 };
        if text[start..].starts_with("/*") {
            return Self::comment(text, start, comments_end);
        }
        let Some((end, length, trim_after)) = end_of_action(bytes, start) else { return Self::None };
        match variable(&text[start..end]) {
            Some(variable) => Self::Variable { length, variable, trim_before, trim_after },
            None => Self::Other { length },
        }
    }

    fn comment(text: &str, start: usize, comments_end: &mut bool) -> Self {
        let end = if *comments_end { text[start..].find("*/") } else { None };
        let Some(end) = end else {
            *comments_end = false;
            return Self::None;
        };
        match closing(text.as_bytes(), start + end + 2) {
            Some((length, _)) => Self::Other { length },
            None => Self::None,
        }
    }
}

/// Where the action closes if it closes at `at`: (length with the braces, whether it trims what follows).
fn closing(bytes: &[u8], at: usize) -> Option<(usize, bool)> {
    if bytes[at..].starts_with(b"}}") {
        return Some((at + 2, false));
    }
    (is_space(bytes.get(at)) && bytes[at + 1..].starts_with(b"-}}")).then_some((at + 4, true))
}

/// Finds the end of the action whose content begins at `start`: (end of the content, length with the braces, trims what
/// follows). `None` where Go would call it an error: no end, a brace outside quotes, an open parenthesis or quote.
fn end_of_action(bytes: &[u8], start: usize) -> Option<(usize, usize, bool)> {
    let bytes = &bytes[..bytes.len().min(LONGEST_ACTION)];
    let mut open = 0_usize;
    let mut at = start;
    while at < bytes.len() {
        if let Some((length, trim_after)) = closing(bytes, at) {
            return (open == 0).then_some((at, length, trim_after));
        }
        match bytes[at] {
            b'{' | b'}' => return None,
            b'(' => open += 1,
            b')' => open = open.checked_sub(1)?,
            b'`' => at += 1 + bytes[at + 1..].iter().position(|byte| *byte == b'`')?,
            quote @ (b'"' | b'\'') => at = end_of_quote(bytes, at, quote)?,
            _ => {}
        }
        at += 1;
    }
    None
}

/// The position of the quote that closes the one at `at`; quotes end with their line.
fn end_of_quote(bytes: &[u8], mut at: usize, quote: u8) -> Option<usize> {
    loop {
        at += 1;
        match bytes.get(at)? {
            b'\\' => at += 1,
            b'\n' => return None,
            byte if *byte == quote => return Some(at),
            _ => {}
        }
    }
}

/// The variable that the content of an action names and nothing else.
fn variable(content: &str) -> Option<Variable> {
    let mut content = content.trim_matches(SPACE);
    while let Some(inner) = content.strip_prefix('(').and_then(|rest| rest.strip_suffix(')')) {
        content = inner.trim_matches(SPACE);
    }
    match content.strip_prefix('$').unwrap_or(content) {
        ".InstanceID" => Some(Variable::Id),
        ".InstanceSuffix" => Some(Variable::Suffix),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn render(text: &str) -> String {
        render_template(text, &Instance::production("prod"))
    }

    #[test]
    fn the_suffix_of_an_instance_without_id_is_empty() {
        assert_eq!(Instance::production(""), Instance { id: String::new(), suffix: String::new() });
        assert_eq!(Instance::production("a").suffix, "-a");
        assert_eq!(render_template("numaflow{{ .InstanceSuffix }}", &Instance::production("")), "numaflow");
    }

    #[test]
    fn every_spelling_that_go_allows_is_rendered() {
        for (text, expected) in [
            ("{{.InstanceID}}", "prod"),
            ("{{ .InstanceID }}", "prod"),
            ("{{.InstanceSuffix}}", "-prod"),
            ("a{{ .InstanceSuffix }}b", "a-prodb"),
            ("{{\t.InstanceID\t}}", "prod"),
            ("{{\n  .InstanceID\r\n}}", "prod"),
            ("{{ $.InstanceID }}", "prod"),
            ("{{$.InstanceSuffix}}", "-prod"),
            ("{{ (.InstanceID) }}", "prod"),
            ("{{ ( ( $.InstanceID ) ) }}", "prod"),
            ("a  {{- .InstanceID }} b", "aprod b"),
            ("a {{ .InstanceID -}}  \n\t b", "a prodb"),
            ("a \n {{- .InstanceID -}} \n b", "aprodb"),
            ("a {{-\n.InstanceID\n-}} b", "aprodb"),
            ("a {{- (.InstanceID) -}} b", "aprodb"),
            ("{{ .InstanceID -}} {{- .InstanceSuffix }}", "prod-prod"),
            ("{{ .InstanceID }} {{- .InstanceSuffix }}", "prod-prod"),
            ("{{ .InstanceID }}{{ .InstanceSuffix }}", "prod-prod"),
            ("a: {{{ .InstanceID }}}", "a: {{{ .InstanceID }}}"),
            ("a: {b: {{ .InstanceID }}}", "a: {b: prod}"),
            ("é {{ .InstanceID }} ü", "é prod ü"),
        ] {
            assert_eq!(render(text), expected, "{text:?}");
        }
    }

    #[test]
    fn everything_else_in_braces_stays_byte_for_byte() {
        for text in [
            "{{ $labels.pod }} is {{ $value | humanize }}",
            "{{ .Values.x }}  {{- if .Values.y -}}  x  {{- end }}",
            "{{ .InstanceId }} {{ .instanceID }} {{ InstanceID }} {{ .InstanceID.x }} {{ .InstanceIDs }}",
            "{{ . InstanceID }} {{ $ .InstanceID }} {{ $x.InstanceID }}",
            "{{ .InstanceID | quote }} {{ printf \"%s\" .InstanceID }} {{ if .InstanceID }}x{{ end }}",
            "{{ .InstanceID-}} {{-.InstanceID }} {{ -.InstanceID }}",
            "{{/* {{ .InstanceID }} */}} {{- /* .InstanceID */ -}}",
            "{{ \"{{ .InstanceID }}\" }} {{ `{{ .InstanceID }}` }} {{ print \"\\\"}}\" }}",
            "{{ (.InstanceID }} {{ .InstanceID) }}",
            "{ { .InstanceID } } {.InstanceID} .InstanceID ${.InstanceID} {% .InstanceID %}",
            "{{}} {{ }} {{-}} {{- -}} }} {{",
            "{{ unclosed",
            "{{/* unclosed",
            "{{ \"unclosed }}",
            "{{ 'it is'",
            "{{-",
            "{",
        ] {
            assert_eq!(render(text), text);
        }
    }

    #[test]
    fn braces_that_are_never_closed_do_not_swallow_a_variable_behind_them() {
        for before in ["{{ \n", "{{/* \n", "{{ it's \n", "{{ \" \n", "{{ ` \n", "{{ ( ", "{{", "}}{{x ", "{{ a } "] {
            assert_eq!(render(&format!("{before}{{{{ .InstanceID }}}}")), format!("{before}prod"), "{before:?}");
        }
    }

    #[test]
    fn the_trim_marker_of_a_variable_stops_at_the_action_before() {
        assert_eq!(render("{{ x }} \n {{- .InstanceID }}"), "{{ x }}prod");
        assert_eq!(render("{{ .InstanceID -}} \n {{ x }}"), "prod{{ x }}");
        assert_eq!(render("{{ x -}} {{ .InstanceID }}"), "{{ x -}} prod");
    }

    #[test]
    fn lines_of_the_result_lead_back_to_lines_of_the_template() {
        let text = "a\n\n  {{- .InstanceID -}}\n\nb\nc{{\n.InstanceSuffix\n}}\nd\n";
        let rendering = Rendering::new(text, &Instance::production("p"));
        assert_eq!(rendering.text, "apb\nc-p\nd\n");
        assert_eq!([1, 2, 3].map(|line| rendering.template_line(line)), [1, 6, 9]);
    }

    #[test]
    fn text_full_of_braces_takes_no_longer_than_other_text() {
        for unit in ["{{", "{{/*", "{{ `", "{{ \"", "{{ \"a\" ", "{{ ((", "{{ aaaaaaaaaaaaaaaaaaaa", "{{` `"] {
            let text = unit.repeat(200_000);
            assert_eq!(render(&text), text);
        }
    }

    proptest! {
        #[test]
        fn text_without_the_variables_is_never_touched(text in "([{}]{0,3}|[ \\-\n\t]|[a-z$.()\"'`/*|]|é){0,40}") {
            prop_assert_eq!(render(&text), text);
        }

        #[test]
        fn any_text_can_be_rendered_and_keeps_its_lines(text in "(\\{\\{-? ?|\\.InstanceID|\\.InstanceSuffix| ?-?\\}\\}|[ \n\"x(]){0,30}") {
            let rendering = Rendering::new(&text, &Instance::production("p"));
            let last = rendering.text.split('\n').count() as u64;
            prop_assert!(rendering.template_line(last) <= text.split('\n').count() as u64);
        }
    }
}

//! The entries of a value that is not YAML as a whole: cut at the lines where entries begin, each is read on its own,
//! so that a slip in one costs that one.

use super::entries::LIST;

/// Fields by which the first line of an entry is told from a list inside a `fullSpec` that lost its indentation.
const FIELDS: [&str; 4] = ["version", "fullSpec", "isolated", "leaderElection"];

/// What looks like one entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Chunk<'t> {
    /// Lines of the text before it.
    pub lines_before: u64,
    /// From its `-` to the next entry's.
    pub text: &'t str,
}

/// Cuts `text` where entries begin. Lines between entries stay with the entry before them, so that none is ever taken
/// without its end.
pub(super) fn chunks(text: &str) -> Vec<Chunk<'_>> {
    let mut found = Vec::new();
    let mut open: Option<(usize, u64)> = None;
    let mut close = |open: &mut Option<(usize, u64)>, end: usize| {
        if let Some((start, lines_before)) = open.take() {
            found.push(Chunk { lines_before, text: &text[start..end] });
        }
    };
    // The column of the dashes, once the list has begun.
    let mut dashes: Option<Option<usize>> = None;
    let mut separator = None;
    let (mut offset, mut lines) = (0, 0);
    for line in text.split_inclusive('\n') {
        if field(line).is_some_and(|(name, _)| name == LIST) {
            close(&mut open, separator.take().unwrap_or(offset));
            dashes = Some(None);
        } else if line.starts_with("---") {
            separator = separator.or(Some(offset));
        } else if let (Some(column), Some((indentation, rest))) = (dashes, item(line)) {
            let begins =
                rest.is_empty() || rest.starts_with('#') || field(rest).is_some_and(|(name, _)| FIELDS.contains(&name));
            if begins && column.is_none_or(|column| column == indentation) {
                close(&mut open, offset);
                (open, dashes, separator) = (Some((offset, lines)), Some(Some(indentation)), None);
            }
        }
        offset += line.len();
        lines += 1;
    }
    close(&mut open, offset);
    found
}

/// The version of an entry that is not YAML, if a line says it.
pub(super) fn version(chunk: &str) -> Option<String> {
    let mut column = None;
    for line in chunk.lines() {
        let content = match column {
            None => item(line).map_or(line, |(_, rest)| rest),
            Some(_) => line,
        };
        let content = content.trim();
        if content.is_empty() || content.starts_with('#') {
            continue;
        }
        // The fields of an entry stand below each other; what stands elsewhere is inside one of them.
        let here = line.trim_end().len() - content.len();
        if *column.get_or_insert(here) != here {
            continue;
        }
        if let Some(("version", value)) = field(content) {
            let value = value.split(" #").next().unwrap_or(value).trim();
            let value = value.trim_matches(['"', '\'']);
            // What is no plain text may be the very slip that makes the entry unreadable.
            let is_plain = value.bytes().all(|byte| byte.is_ascii_alphanumeric() || b".-_+".contains(&byte));
            return is_plain.then(|| value.to_owned());
        }
    }
    None
}

/// The indentation of a list item and what follows its dash.
fn item(line: &str) -> Option<(usize, &str)> {
    let dash = line.trim_start_matches(' ');
    let rest = dash.strip_prefix('-')?;
    (rest.trim().is_empty() || rest.starts_with(' ')).then(|| (line.len() - dash.len(), rest.trim()))
}

/// Name and value of a field, quoted or not.
fn field(line: &str) -> Option<(&str, &str)> {
    let (name, value) = line.split_once(':')?;
    let name = name.trim_end();
    let bare = |quote| name.strip_prefix(quote).and_then(|rest: &str| rest.strip_suffix(quote));
    Some((bare('"').or_else(|| bare('\'')).unwrap_or(name), value))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn entries_are_cut_where_they_begin_and_nowhere_else() {
        let text = "# head\ncontrollerDefinitions: # all\n  # first\n  - version: a\n    fullSpec: |\n      - x\n  - kind: lost\n\n  -\n    version: b\n  - \"fullSpec\": c\n   - version: d\n";
        let found: Vec<_> = chunks(text).iter().map(|chunk| (chunk.lines_before, chunk.text)).collect();
        assert_eq!(
            found,
            [
                (3, "  - version: a\n    fullSpec: |\n      - x\n  - kind: lost\n\n"),
                (8, "  -\n    version: b\n"),
                (10, "  - \"fullSpec\": c\n   - version: d\n"),
            ]
        );
        let two = "controllerDefinitions:\n- version: a\n---\n# next\ncontrollerDefinitions:\n  - version: b\n";
        let found: Vec<_> = chunks(two).iter().map(|chunk| (chunk.lines_before, chunk.text)).collect();
        assert_eq!(found, [(1, "- version: a\n"), (5, "  - version: b\n")]);
        for text in ["", "- version: a\n", "controllerDefinitions: [{version: a}\n", "other:\n- version: a\n"] {
            assert_eq!(chunks(text), [], "{text:?}");
        }
    }

    #[test]
    fn the_version_of_a_broken_entry_is_found_on_its_own_line() {
        for (chunk, expected) in [
            ("- version: 1.8.3\n  fullSpec: [\n", Some("1.8.3")),
            ("  - 'version' : \"1.8.3\"  # why\n", Some("1.8.3")),
            ("-\n  # why\n  fullSpec: |\n    version: latest\n  version: '1'\n", Some("1")),
            ("- fullSpec: |\n    version: latest\n", None),
            ("- fullSpec: x\n", None),
            ("- version: [1.8.3\n", None),
            ("-", None),
        ] {
            assert_eq!(version(chunk).as_deref(), expected, "{chunk:?}");
        }
    }
}

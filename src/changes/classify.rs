//! From where two specs differ to what that needs.

use std::fmt;

use serde_json::Value;

use super::{
    List, Rule, Rules,
    compare::{Difference, Step, differences},
};

/// What a change needs: the most that any of its fields needs. Each has the fields that need it, in their order.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Change {
    /// There is none.
    None,
    /// It can be applied as it is.
    Direct(Vec<Field>),
    /// What flows has to stop, and to drain if it can, before it is applied.
    Pause(Vec<Field>),
    /// As with a pause, but a new object has to take the place of the old.
    Recreate(Vec<Field>),
}

impl Change {
    /// The fields that need it.
    #[must_use]
    pub fn fields(&self) -> &[Field] {
        match self {
            Self::None => &[],
            Self::Direct(fields) | Self::Pause(fields) | Self::Recreate(fields) => fields,
        }
    }
}

/// A field that changes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Field {
    /// Where, as people write it: `spec.vertices[cat].udf.container.image`, `spec.edges[in->cat]`. Where something comes
    /// or goes as a whole, it is that.
    pub path: String,
    /// The list that names it, and the path in that list; `None` if no list does.
    pub matched: Option<(List, String)>,
}

impl fmt::Display for Field {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.path)?;
        match &self.matched {
            Some((list, rule)) => write!(f, " ({}: {rule})", list.key()),
            None => Ok(()),
        }
    }
}

/// What it needs to change an object with the spec `old` into one with the spec `new`.
///
/// `old` is what was last applied, not what the server made of it: a field that only `old` has was removed by the user,
/// and what a server fills in would look like that. `lifecycle.desiredPhase` and `lifecycle.pauseGracePeriodSeconds` do
/// not count.
#[must_use]
pub fn classify(old: &Value, new: &Value, rules: &Rules) -> Change {
    let (mut direct, mut pause, mut recreate) = (Vec::new(), Vec::new(), Vec::new());
    for difference in differences(old, new) {
        let matched = strongest(&difference, rules);
        let fields = match matched {
            None => &mut direct,
            Some((List::Progressive | List::DataLoss, _)) => &mut pause,
            Some((List::Recreate, _)) => &mut recreate,
        };
        let matched = matched.map(|(list, rule)| (list, rule.path.clone()));
        fields.push(Field { path: difference.path(), matched });
    }
    if !recreate.is_empty() {
        Change::Recreate(recreate)
    } else if !pause.is_empty() {
        Change::Pause(pause)
    } else if !direct.is_empty() {
        Change::Direct(direct)
    } else {
        Change::None
    }
}

/// How a rule is about a difference.
#[derive(PartialEq, Eq)]
enum About {
    /// It names the place, or what is around it.
    Place,
    /// It names something in what came or went there.
    Content,
}

/// The strongest rule about a difference. An entry that comes or goes is judged by the rules about its list, and only
/// without one by those about what it holds: else a new vertex would be judged as if each of its fields had changed.
fn strongest<'r>(difference: &Difference<'_>, rules: &'r Rules) -> Option<(List, &'r Rule)> {
    let mut content = None;
    for list in List::ALL {
        for rule in rules.list(list) {
            match about(rule, difference) {
                Some(About::Place) => return Some((list, rule)),
                Some(About::Content) if !difference.is_entry() => return Some((list, rule)),
                Some(About::Content) => content = content.or(Some((list, rule))),
                None => {}
            }
        }
    }
    content
}

fn about(rule: &Rule, difference: &Difference<'_>) -> Option<About> {
    let mut wanted = rule.fields().peekable();
    let mut in_value = false;
    let mut steps = difference.steps.iter().peekable();
    while let Some(step) = steps.next() {
        let Step::Field(name) = step else { continue };
        if !wanted.next()?.eq_ignore_ascii_case(name) {
            return None;
        }
        if wanted.peek().is_none() {
            in_value = matches!(steps.peek(), Some(Step::Entry { own: false, .. }));
            break;
        }
    }
    if wanted.peek().is_none() {
        // What is left goes into the field that the rule names.
        let below = steps.any(|step| matches!(step, Step::Field(_)));
        return (!below || in_value || rule.include_subfields).then_some(About::Place);
    }
    let rest: Vec<&str> = wanted.collect();
    let holds = |value: Option<&Value>| value.is_some_and(|value| has(value, &rest));
    (holds(difference.old) || holds(difference.new)).then_some(About::Content)
}

/// Whether there is such a field in a value, through all lists.
fn has(value: &Value, path: &[&str]) -> bool {
    match (value, path) {
        (Value::Null, _) => false,
        (_, []) => true,
        (Value::Array(entries), _) => entries.iter().any(|entry| has(entry, path)),
        (Value::Object(map), [first, rest @ ..]) => {
            map.iter().any(|(name, value)| name.eq_ignore_ascii_case(first) && has(value, rest))
        }
        _ => false,
    }
}

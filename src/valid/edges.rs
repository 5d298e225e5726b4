//! The edges of a pipeline, and the graph that they make of its vertices.

use std::collections::{BTreeMap, HashMap, HashSet};

use super::{
    Findings,
    names::nearest,
    place::Place,
    slips::{self, OF_EDGE},
    vertex::REFUSED,
    vertices::{Role, Vertex},
};
use crate::words::{meant, quoted};

/// Looks at the edges of a pipeline with these vertices.
pub(super) fn edges(found: &mut Findings, spec: &Place<'_>, vertices: &[Vertex<'_>]) {
    let written = spec.objects(found, "edges");
    if spec.lacks("edges") {
        found.violation(spec.path_of("edges"), "is empty; edges lead from the source of a pipeline to its sink");
    }
    if written.is_empty() || vertices.is_empty() {
        return;
    }
    let before = found.violations.len();
    let mut graph = Graph::of(vertices);
    let mut known: HashMap<(usize, usize), &Place<'_>> = HashMap::new();
    for edge in &written {
        let ends = [graph.end(found, edge, "from"), graph.end(found, edge, "to")];
        roles(found, edge, ends, vertices);
        slips::fields(found, edge, &OF_EDGE);
        if let Some(conditions) = edge.object(found, "conditions")
            && conditions.object(found, "tags").is_none_or(|tags| tags.lacks("values"))
        {
            let words = format!("names no tag values, and nothing goes this way; {REFUSED}");
            found.warning(conditions.path_of("tags"), words);
        }
        let [Some(from), Some(to)] = ends else { continue };
        if let Some(first) = known.get(&(from, to)) {
            found.violation(
                edge.path.clone(),
                format!("leads from and to the same as {}; remove one of them", first.path),
            );
            continue;
        }
        known.insert((from, to), edge);
        graph.add(from, to);
    }
    graph.lonely(found, vertices);
    if found.violations.len() == before && graph.by_name.len() == vertices.len() {
        graph.whole(found, spec, vertices);
        graph.cycles(found, vertices);
    }
}

/// Nothing goes into a source, nor out of a sink.
fn roles(found: &mut Findings, edge: &Place<'_>, ends: [Option<usize>; 2], vertices: &[Vertex<'_>]) {
    let is = |end: Option<usize>, role: Role| end.map(|n| &vertices[n]).filter(|v| v.role == role);
    if let Some(sink) = is(ends[0], Role::Sink) {
        let name = quoted(sink.name.unwrap_or_default());
        found.violation(edge.path_of("from"), format!("{name} is a sink, and no edge leads out of a sink"));
    }
    if let Some(source) = is(ends[1], Role::Source) {
        let name = quoted(source.name.unwrap_or_default());
        found.violation(edge.path_of("to"), format!("{name} is a source, and no edge leads into a source"));
    }
}

/// The vertices by their numbers, and where edges lead.
struct Graph<'v> {
    by_name: BTreeMap<&'v str, usize>,
    from: Vec<Vec<usize>>,
    to: Vec<Vec<usize>>,
    /// Vertices at which an edge begins, and at which one ends; or was probably meant to.
    met: [HashSet<usize>; 2],
}

impl<'v> Graph<'v> {
    fn of(vertices: &[Vertex<'v>]) -> Self {
        let mut by_name = BTreeMap::new();
        for (number, vertex) in vertices.iter().enumerate() {
            if let Some(name) = vertex.name {
                by_name.entry(name).or_insert(number);
            }
        }
        let none = vec![Vec::new(); vertices.len()];
        Self { by_name, from: none.clone(), to: none, met: [HashSet::new(), HashSet::new()] }
    }

    /// The vertex at one end of an edge.
    fn end(&mut self, found: &mut Findings, edge: &Place<'_>, end: &str) -> Option<usize> {
        let Some(name) = edge.text(found, end) else {
            if edge.lacks(end) {
                found.violation(edge.path_of(end), "is missing; an edge leads from one vertex to another");
            }
            return None;
        };
        let known = self.by_name.get(name).copied();
        let mut probably = known;
        if known.is_none() {
            let nearest = nearest(found, name, self.by_name.keys().copied());
            probably = nearest.and_then(|nearest| self.by_name.get(nearest).copied());
            found.violation(edge.path_of(end), format!("no vertex is called {}{}", quoted(name), meant(nearest)));
        }
        // Nobody has to be told of that vertex, too.
        self.met[usize::from(end == "to")].extend(probably);
        known
    }

    fn add(&mut self, from: usize, to: usize) {
        self.from[from].push(to);
        self.to[to].push(from);
    }

    /// Vertices that no edge leads to, or from, where one has to.
    fn lonely(&self, found: &mut Findings, vertices: &[Vertex<'v>]) {
        for (number, vertex) in vertices.iter().enumerate() {
            // Of two with one name, edges mean the first.
            let Some(name) = vertex.name.filter(|name| self.by_name.get(name) == Some(&number)) else { continue };
            let [from, to] = [0, 1].map(|end: usize| !self.met[end].contains(&number));
            let lacks = match vertex.role {
                Role::Source => (false, from),
                Role::Sink => (to, false),
                Role::Function { .. } => (to, from),
                Role::Unclear => (to && from, to && from),
            };
            let words = match lacks {
                (true, true) => "no edge leads to it or from it",
                (true, false) => "no edge leads to it",
                (false, true) => "no edge leads from it",
                (false, false) => continue,
            };
            found.violation(vertex.place.path.clone(), format!("vertex {}: {words}", quoted(name)));
        }
    }

    /// One pipeline, not several.
    fn whole(&self, found: &mut Findings, spec: &Place<'_>, vertices: &[Vertex<'_>]) {
        let reached = self.reached([0], |n| self.from[n].iter().chain(&self.to[n]));
        let Some(apart) = reached.iter().position(|reached| !reached) else { return };
        let name = |number: usize| quoted(vertices.get(number).and_then(|v| v.name).unwrap_or_default());
        found.violation(
            spec.path_of("edges"),
            format!(
                "no edges connect {} with {}: Numaflow runs one pipeline, not several; make a PipelineRollout for each",
                name(0),
                name(apart)
            ),
        );
    }

    /// After a cycle, data comes late, and nothing can be reduced any more.
    fn cycles(&self, found: &mut Findings, vertices: &[Vertex<'_>]) {
        let numbers = 0..vertices.len();
        let sources = numbers.clone().filter(|n| vertices[*n].role == Role::Source);
        let reached = self.reached(sources, |n| self.from[n].iter());
        // What is left when everything that nothing leads to any more is taken away again and again: cycles, and what follows.
        let mut into: Vec<usize> = self.to.iter().map(|from| from.iter().filter(|n| reached[**n]).count()).collect();
        let mut free: Vec<usize> = numbers.clone().filter(|n| reached[*n] && into[*n] == 0).collect();
        let mut left = reached.clone();
        while let Some(number) = free.pop() {
            left[number] = false;
            for next in &self.from[number] {
                into[*next] -= 1;
                if into[*next] == 0 {
                    free.push(*next);
                }
            }
        }
        for number in numbers.filter(|n| left[*n] && vertices[*n].role == Role::Function { reduces: true }) {
            found.violation(
                vertices[number].place.path_of("udf.groupBy"),
                "is in a cycle of edges, or comes after one; data comes late then, and Numaflow reduces none: remove the edge that \
                 leads back",
            );
        }
    }

    /// The vertices that can be reached from these.
    fn reached<'g, I: Iterator<Item = &'g usize>>(
        &'g self,
        from: impl IntoIterator<Item = usize>,
        next: impl Fn(usize) -> I,
    ) -> Vec<bool> {
        let mut reached = vec![false; self.from.len()];
        let mut ahead: Vec<usize> = from.into_iter().filter(|n| *n < reached.len()).collect();
        while let Some(number) = ahead.pop() {
            if !std::mem::replace(&mut reached[number], true) {
                ahead.extend(next(number).copied().filter(|n| !reached[*n]));
            }
        }
        reached
    }
}

//! How deep what others write may be nested, and a client's layer that keeps the rest out.
//!
//! Where a field takes anything (`x-kubernetes-preserve-unknown-fields`), the API server stores thousands of levels, and a
//! parser that goes down with them gives up, or runs out of stack. One such object would make every list that it is in
//! unreadable, and so stop the work for all others. So what is too deep is cut off before anything is parsed; what is left is
//! still deep enough to be refused for it, in words.

use std::{
    borrow::Cow,
    pin::Pin,
    task::{Context, Poll},
};

use bytes::Bytes;
use http::{Request, Response, header::CONTENT_TYPE};
use http_body::Frame;
use http_body_util::{BodyExt as _, combinators::MapFrame};
use serde_json::Value;
use tower::{Layer, Service};

/// Most levels of what a user writes. Numaflow's own fields have a dozen.
pub const MOST: usize = 64;
/// Most levels of what is parsed: with room for lists and events around an object, and for what a spec stands in; less than
/// `serde_json` takes, which is 127.
const PARSED: usize = 96;

/// What stands too deep in a value, under one of its fields: the first such field.
#[must_use]
pub fn too_deep(value: &Value) -> Option<&str> {
    let fields = value.as_object()?;
    fields.iter().find(|(_, value)| depth(value) + 1 > MOST).map(|(field, _)| field.as_str())
}

/// Levels of objects and lists. What is asked was parsed, so that going down is safe.
fn depth(value: &Value) -> usize {
    match value {
        Value::Array(entries) => 1 + entries.iter().map(depth).max().unwrap_or_default(),
        Value::Object(fields) => 1 + fields.values().map(depth).max().unwrap_or_default(),
        _ => 0,
    }
}

/// JSON without what no parser would take: `null` stands in its place.
#[must_use]
pub fn cut(json: &str) -> Cow<'_, str> {
    match Cutter::default().cut(json.as_bytes()) {
        None => Cow::Borrowed(json),
        // Whole objects and lists were left out, so that what was UTF-8 is UTF-8.
        Some(kept) => Cow::Owned(String::from_utf8_lossy(&kept).into_owned()),
    }
}

/// Cuts JSON that comes in pieces, one document after the other. No parser: whether it is JSON is found out by whoever reads
/// what is left.
#[derive(Clone, Debug, Default)]
struct Cutter {
    depth: usize,
    in_text: bool,
    escaped: bool,
}

impl Cutter {
    /// What is left of a piece; `None` where all of it is.
    fn cut(&mut self, piece: &[u8]) -> Option<Vec<u8>> {
        let mut kept: Option<Vec<u8>> = (self.depth > PARSED).then(Vec::new);
        for (at, byte) in piece.iter().enumerate() {
            let mut keep = self.depth <= PARSED;
            if self.in_text {
                self.in_text = self.escaped || *byte != b'"';
                self.escaped = !self.escaped && *byte == b'\\';
            } else {
                match byte {
                    b'"' => self.in_text = true,
                    b'{' | b'[' => {
                        self.depth += 1;
                        if self.depth == PARSED + 1 {
                            kept.get_or_insert_with(|| piece[..at].to_vec()).extend_from_slice(b"null");
                        }
                        keep = self.depth <= PARSED;
                    }
                    b'}' | b']' => self.depth = self.depth.saturating_sub(1),
                    _ => {}
                }
            }
            if keep && let Some(kept) = &mut kept {
                kept.push(*byte);
            }
        }
        kept
    }
}

/// The layer of a client: no answer is nested deeper than can be parsed.
#[derive(Clone, Copy, Debug, Default)]
pub struct Nesting;

impl<S> Layer<S> for Nesting {
    type Service = Shallow<S>;

    fn layer(&self, inner: S) -> Shallow<S> {
        Shallow { inner }
    }
}

/// A client's service with answers that can be parsed.
#[derive(Clone, Debug)]
pub struct Shallow<S> {
    inner: S,
}

/// A body that is cut as it comes in.
type Cut<B> = MapFrame<B, Box<dyn FnMut(Frame<Bytes>) -> Frame<Bytes> + Send>>;

impl<S, Q, B> Service<Request<Q>> for Shallow<S>
where
    S: Service<Request<Q>, Response = Response<B>>,
    S::Future: Send + 'static,
    B: http_body::Body<Data = Bytes>,
{
    type Response = Response<Cut<B>>;
    type Error = S::Error;
    type Future = Pin<Box<dyn Future<Output = Result<Self::Response, S::Error>> + Send>>;

    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<Result<(), S::Error>> {
        self.inner.poll_ready(context)
    }

    fn call(&mut self, request: Request<Q>) -> Self::Future {
        let answered = self.inner.call(request);
        Box::pin(async move {
            let response = answered.await?;
            let kind = response.headers().get(CONTENT_TYPE).and_then(|kind| kind.to_str().ok());
            let json = kind.is_some_and(|kind| kind.starts_with("application/json"));
            let mut cutter = json.then(Cutter::default);
            Ok(response.map(|body| {
                let cut = move |frame: Frame<Bytes>| match (frame.into_data(), &mut cutter) {
                    (Ok(piece), Some(cutter)) => Frame::data(cutter.cut(&piece).map_or(piece, Bytes::from)),
                    (Ok(piece), None) => Frame::data(piece),
                    (Err(frame), _) => frame,
                };
                body.map_frame(Box::new(cut) as Box<dyn FnMut(Frame<Bytes>) -> Frame<Bytes> + Send>)
            }))
        })
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::json;

    use super::*;

    fn nested(levels: usize) -> String {
        format!("{}1{}", "{\"a\":".repeat(levels), "}".repeat(levels))
    }

    #[test]
    fn an_object_that_no_parser_takes_does_not_hide_those_beside_it() {
        for levels in [1, PARSED, PARSED + 1, 127, 128, 10_000] {
            let list = format!("{{\"items\":[{},{{\"b\":\"}}]\\\"\"}},{}]}}\n", nested(levels), nested(levels));
            let read: Value = serde_json::from_str(&cut(&list)).unwrap();
            assert_eq!(read["items"][1], json!({"b": "}]\""}), "{levels}");
            assert_eq!(read["items"][0], read["items"][2]);
            assert_eq!(depth(&read["items"][0]), levels.min(PARSED - 2));
        }
    }

    #[test]
    fn what_is_too_deep_is_named_by_its_field_and_stays_so_when_it_was_cut() {
        let spec = |levels| format!("{{\"first\":{},\"second\":{}}}", nested(3), nested(levels));
        let field = |levels| too_deep(&serde_json::from_str(&cut(&spec(levels))).unwrap()).map(str::to_owned);
        assert_eq!(field(MOST - 1), None);
        for levels in [MOST, PARSED, 10_000] {
            assert_eq!(field(levels).as_deref(), Some("second"));
        }
    }

    proptest! {
        /// However an answer is cut into pieces by the network, and whatever is in it.
        #[test]
        fn pieces_are_cut_as_the_whole_is(
            text in "([\\[\\]{},:1\"\\\\a\n]|\\[{30}|\\]{30}|\\{\"a\":){0,40}", sizes in prop::collection::vec(1..50usize, 1..20)
        ) {
            let mut cutter = Cutter::default();
            let mut rest = text.as_bytes();
            let mut pieces = Vec::new();
            for size in sizes.iter().cycle() {
                if rest.is_empty() {
                    break;
                }
                let (piece, next) = rest.split_at((*size).min(rest.len()));
                pieces.extend(cutter.cut(piece).unwrap_or_else(|| piece.to_vec()));
                rest = next;
            }
            prop_assert_eq!(String::from_utf8(pieces).unwrap(), cut(&text).into_owned());
        }

        #[test]
        fn what_can_be_parsed_is_left_as_it_is(levels in 0..PARSED, text in ".*") {
            let json = format!("{}{}{}", "[".repeat(levels), json!(text), "]".repeat(levels));
            prop_assert!(matches!(cut(&json), Cow::Borrowed(_)));
        }
    }
}

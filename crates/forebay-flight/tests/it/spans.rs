//! What the spans of a pool were for. Listening before anything else happens: what is first heard of while
//! nobody listens may stay unheard.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Once;

use parking_lot::Mutex;
use tracing::field::{Field, Visit};
use tracing::{Event, Metadata, Subscriber, span};

/// By endpoint, for those that are watched.
static SEEN: Mutex<BTreeMap<String, Vec<String>>> = Mutex::new(BTreeMap::new());
static LISTEN: Once = Once::new();

pub(crate) fn listen() {
    LISTEN.call_once(|| tracing::subscriber::set_global_default(Spans).expect("nobody else listens"));
}

pub(crate) fn watch(endpoint: String) {
    SEEN.lock().insert(endpoint, Vec::new());
}

pub(crate) fn seen(endpoint: &str) -> Vec<String> {
    SEEN.lock()[endpoint].clone()
}

struct Spans;

#[derive(Default)]
struct Fields {
    what: String,
    endpoint: String,
}

impl Visit for Fields {
    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        if field.name() == "endpoint" {
            self.endpoint = format!("{value:?}");
        }
    }

    fn record_str(&mut self, field: &Field, value: &str) {
        if field.name() == "what" {
            self.what = value.to_owned();
        }
    }
}

impl Subscriber for Spans {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        metadata.is_span() && metadata.target().starts_with("forebay_flight")
    }

    fn new_span(&self, attributes: &span::Attributes<'_>) -> span::Id {
        let mut fields = Fields::default();
        attributes.record(&mut fields);
        if let Some(seen) = SEEN.lock().get_mut(&fields.endpoint) {
            seen.push(fields.what);
        }
        span::Id::from_u64(1)
    }

    fn record(&self, _: &span::Id, _: &span::Record<'_>) {}
    fn record_follows_from(&self, _: &span::Id, _: &span::Id) {}
    fn event(&self, _: &Event<'_>) {}
    fn enter(&self, _: &span::Id) {}
    fn exit(&self, _: &span::Id) {}
}

//! What does the OpenAPI document say, which is made from the routes that are served?

use std::sync::OnceLock;

use bytes::Bytes;
use client::json::{ConfigKind, config_fields};
use http::StatusCode;
use serde_json::{Map, Value, json};
use wire::limits::{
    BATCH_RECORDS_MAX, BUCKET_NAME_BYTES_MAX, BUCKET_NAME_BYTES_MIN, CREATION_TOKEN_BYTES_MAX, FENCING_TOKEN_BYTES_MAX,
    KEY_BYTES_MAX, LOCATION_BYTES_MAX, RECORD_HEADERS_MAX,
};
use wire::reason::Reason;

use super::answer::fresh;
use super::query::{Param, Takes as Of};
use super::route::{Ask, EVENTS, Gives, JSON, NDJSON, OCTETS, Outcome, Route, Takes};
use super::routes::ROUTES;

/// The document, as it is served.
pub(super) async fn document(_ask: Ask) -> Outcome {
    static DOCUMENT: OnceLock<Bytes> = OnceLock::new();
    let text = DOCUMENT.get_or_init(|| Bytes::from(whole().to_string()));
    Ok(fresh(StatusCode::OK, JSON, text.clone()))
}

fn whole() -> Value {
    let mut paths = Map::new();
    for route in ROUTES {
        let path = paths.entry(route.path).or_insert_with(|| json!({}));
        path[route.method.as_str().to_ascii_lowercase()] = operation(route);
    }
    json!({
        "openapi": "3.1.0",
        "info": {
            "title": "nova",
            "version": env!("CARGO_PKG_VERSION"),
            "description": "Durable streams over HTTP. A key in a path is one percent-encoded segment.",
            "license": {"name": "Apache-2.0", "identifier": "Apache-2.0"},
        },
        "paths": paths,
        "components": {"schemas": schemas()},
    })
}

fn operation(route: &Route) -> Value {
    let mut parameters: Vec<Value> = Vec::new();
    if route.path.contains("{bucket}") {
        parameters.push(json!({"name": "bucket", "in": "path", "required": true, "schema": bucket_name()}));
    }
    if route.path.contains("{key}") {
        let schema = json!({"type": "string", "minLength": 1, "maxLength": KEY_BYTES_MAX, "pattern": "^[^\\u0000]+$"});
        parameters.push(json!({"name": "key", "in": "path", "required": true, "schema": schema}));
    }
    parameters.extend(route.params.iter().map(parameter));
    if route.takes == Takes::Records {
        parameters.push(header("Idempotency-Key", "A batch sent again under the same key is stored once."));
    }
    if route.gives == Gives::Records {
        parameters.push(header("Last-Event-ID", "The last record that arrived; a subscription goes on after it."));
    }
    let mut operation = json!({
        "operationId": route.id,
        "summary": route.doc,
        "parameters": parameters,
        "responses": responses(route),
    });
    if let Some(body) = request_body(route.takes) {
        operation["requestBody"] = body;
    }
    operation
}

fn header(name: &str, doc: &str) -> Value {
    json!({"name": name, "in": "header", "required": false, "description": doc, "schema": {"type": "string"}})
}

fn parameter(param: &Param) -> Value {
    let schema = match param.takes {
        Of::Count(most) => json!({"type": "integer", "minimum": 0, "maximum": most}),
        Of::Stamp => json!({"type": "integer", "format": "int64", "minimum": i64::MIN, "maximum": i64::MAX}),
        Of::Flag => json!({"type": "boolean"}),
        Of::Word(words) => json!({"type": "string", "enum": words}),
        Of::Text => json!({"type": "string"}),
    };
    json!({"name": param.name, "in": "query", "required": false, "description": param.doc, "schema": schema})
}

fn of(name: &str) -> Value {
    json!({"$ref": format!("#/components/schemas/{name}")})
}

fn request_body(takes: Takes) -> Option<Value> {
    let object = |name: &str, required: bool| json!({"required": required, "content": {JSON: {"schema": of(name)}}});
    Some(match takes {
        Takes::Nothing => return None,
        Takes::BucketMake => object("BucketMake", false),
        Takes::BucketPatch => object("BucketPatch", true),
        Takes::StreamConfig => object("StreamConfig", false),
        Takes::Trim => object("Trim", true),
        Takes::Fence => object("Fence", true),
        Takes::Records => json!({"required": true, "content": {
            JSON: {"schema": of("Append")},
            NDJSON: {"schema": {"type": "string", "description": "A record a line."}},
            OCTETS: {"schema": {"type": "string", "format": "binary", "description": "The body of one record."}},
        }}),
    })
}

fn responses(route: &Route) -> Value {
    let json_of = |schema: Value| json!({JSON: {"schema": schema}});
    let (status, content) = match route.gives {
        Gives::Nothing => ("204", None),
        Gives::Bucket => ("200", Some(json_of(of("Bucket")))),
        Gives::NewBucket => ("201", Some(json_of(of("Bucket")))),
        Gives::Buckets => ("200", Some(json_of(of("Buckets")))),
        Gives::Stream => ("200", Some(json_of(of("Stream")))),
        Gives::NewStream => ("201", Some(json_of(of("Stream")))),
        Gives::Streams => ("200", Some(json_of(of("Streams")))),
        Gives::Ack => ("200", Some(json_of(of("Ack")))),
        Gives::Place => ("200", Some(json_of(of("Position")))),
        Gives::TrimPoint => ("200", Some(json_of(of("TrimPoint")))),
        Gives::Token => ("200", Some(json_of(of("Fence")))),
        Gives::Document => ("200", Some(json_of(json!({"type": "object"})))),
        Gives::Text => ("200", Some(json!({"application/openmetrics-text": {"schema": {"type": "string"}}}))),
        Gives::Records => (
            "200",
            Some(json!({
                JSON: {"schema": of("Page")},
                NDJSON: {"schema": {"type": "string"}},
                OCTETS: {"schema": {"type": "string", "format": "binary"}},
                EVENTS: {"schema": {"type": "string"}},
            })),
        ),
    };
    let mut responses = Map::new();
    let mut yes = json!({"description": "Done."});
    if let Some(content) = content {
        yes["content"] = content;
    }
    responses.insert(status.to_owned(), yes);
    if route.gives == Gives::Records {
        responses.insert("204".to_owned(), json!({"description": "No record, where one was asked for as bytes."}));
    }
    if route.id == "ready" {
        let no = json!({"description": "Not ready.", "content": json_of(json!({"type": "object"}))});
        responses.insert("503".to_owned(), no);
        return responses.into();
    }
    for status in statuses() {
        let no = json!({"description": words_of(status), "content": json_of(of("Error"))});
        responses.entry(status.to_string()).or_insert(no);
    }
    responses.into()
}

/// The statuses of all refusals, and those that HTTP itself has for what is wrong.
fn statuses() -> Vec<u16> {
    let mut statuses: Vec<u16> = Reason::ALL.iter().filter_map(|reason| reason.http_status()).collect();
    statuses.extend([406, 408, 415]);
    statuses.sort_unstable();
    statuses.dedup();
    statuses
}

fn words_of(status: u16) -> String {
    let words: Vec<_> =
        Reason::ALL.iter().filter(|reason| reason.http_status() == Some(status)).map(|reason| reason.word()).collect();
    if words.is_empty() { "invalid".to_owned() } else { words.join(", ") }
}

fn bucket_name() -> Value {
    json!({"type": "string", "minLength": BUCKET_NAME_BYTES_MIN, "maxLength": BUCKET_NAME_BYTES_MAX,
        "pattern": "^[a-z0-9][a-z0-9-]*[a-z0-9]$"})
}

/// The fields of a configuration, each with `prefix` in front; what is asked may be null, which is absent.
fn config(prefix: &str, may_be_null: bool) -> Map<String, Value> {
    let mut fields = Map::new();
    let kind = |name: &str| if may_be_null { json!([name, "null"]) } else { json!(name) };
    let word = |words: &[&str]| {
        let mut words: Vec<Value> = words.iter().map(|word| json!(word)).collect();
        words.extend(may_be_null.then_some(Value::Null));
        json!({"enum": words})
    };
    for field in config_fields() {
        let mut schema = match field.kind {
            ConfigKind::Class(_) => word(&["express", "standard"]),
            ConfigKind::Policy(_) => word(&["any", "fenced"]),
            ConfigKind::Mode(_) => word(&["client-prefer", "client-require", "arrival"]),
            ConfigKind::Switch(_) => json!({"type": kind("boolean")}),
            ConfigKind::Wide(_) => json!({"type": kind("integer"), "minimum": 0, "maximum": u64::MAX}),
            ConfigKind::Narrow(_) => json!({"type": kind("integer"), "minimum": 0, "maximum": u32::MAX}),
        };
        schema["description"] = json!(field.doc);
        fields.insert(format!("{prefix}{}", field.name), schema);
    }
    fields
}

/// An object that takes these fields and no others, in an answer all of them.
fn object(fields: Map<String, Value>, in_answer: bool) -> Value {
    let required: Vec<String> = fields.keys().filter(|_| in_answer).cloned().collect();
    json!({"type": "object", "properties": fields, "required": required, "additionalProperties": false})
}

fn joined(mut fields: Map<String, Value>, more: Value) -> Map<String, Value> {
    if let Value::Object(more) = more {
        fields.extend(more);
    }
    fields
}

fn schemas() -> Value {
    let whole = || json!({"type": "integer", "minimum": 0, "maximum": u64::MAX});
    let stamp = || json!({"type": "integer", "format": "int64"});
    let text = || json!({"type": "string"});
    let switch = || json!({"type": ["boolean", "null"]});
    let bounded = |bytes: usize| json!({"type": ["string", "null"], "maxLength": bytes});
    let flags = || json!({"create_stream_on_append": switch(), "create_stream_on_read": switch()});
    let tokens = json!({"location": bounded(LOCATION_BYTES_MAX), "creation_token": bounded(CREATION_TOKEN_BYTES_MAX)});
    let pair = json!({"type": "array", "prefixItems": [text(), text()], "minItems": 2, "maxItems": 2});
    let headers = json!({"type": "array", "items": pair, "maxItems": RECORD_HEADERS_MAX});
    let cursor = || json!({"type": ["string", "null"]});
    let fields = |value: Value| joined(Map::new(), value);
    let bucket = json!({"bucket_id": text(), "name": bucket_name(), "location": text(), "creation_token": text(),
        "create_stream_on_append": {"type": "boolean"}, "create_stream_on_read": {"type": "boolean"},
        "created_at": stamp(), "deleted_at": {"type": ["integer", "null"]}});
    let stream = json!({"stream_id": text(), "bucket": bucket_name(), "key": text(), "tail": of("Position"),
        "trim_point": whole(), "settled": whole(), "bytes": whole(), "created_at": stamp()});
    json!({
        "Position": object(fields(json!({"seq_num": whole(), "timestamp_ms": stamp()})), true),
        "Ack": object(fields(json!({"start": of("Position"), "end": of("Position"), "tail": of("Position"),
            "class": {"enum": ["express", "standard"]}})), true),
        "BucketMake": object(joined(joined(config("default_", true), flags()), tokens), false),
        "BucketPatch": object(joined(config("default_", true), flags()), false),
        "Bucket": object(joined(config("default_", false), bucket), true),
        "Buckets": object(fields(json!({"buckets": {"type": "array", "items": of("Bucket")}, "next": cursor()})), true),
        "StreamConfig": object(config("", true), false),
        "Stream": object(joined(config("", false), stream), true),
        "Streams": object(fields(json!({"streams": {"type": "array", "items": of("Stream")}, "next": cursor()})), true),
        "NewRecord": {"type": "object", "required": ["body"], "additionalProperties": false, "properties": {
            "body": text(), "headers": headers, "timestamp_ms": {"type": ["integer", "null"], "format": "int64"},
            "seq_num": {"type": ["integer", "null"], "minimum": 0, "maximum": u64::MAX, "description": "Passed over, so that what was read can be appended."}}},
        "Append": {"type": "object", "required": ["records"], "additionalProperties": false, "properties": {
            "records": {"type": "array", "items": of("NewRecord"), "minItems": 1, "maxItems": BATCH_RECORDS_MAX},
            "match_seq_num": {"type": ["integer", "null"], "minimum": 0, "maximum": u64::MAX},
            "fencing_token": {"type": ["string", "null"], "maxLength": FENCING_TOKEN_BYTES_MAX}}},
        "Record": object(fields(json!({"seq_num": whole(), "timestamp_ms": stamp(), "headers": headers, "body": text()})), true),
        "Page": object(fields(json!({"records": {"type": "array", "items": of("Record")}, "start": whole(), "end": whole(),
            "tail": of("Position"), "trim_point": whole(), "at_tail": {"type": "boolean"},
            "stream_id": {"type": ["string", "null"]}})), true),
        "Trim": {"oneOf": [
            {"type": "object", "additionalProperties": false, "required": ["seq_num"],
                "properties": {"seq_num": whole(), "from_ms": {"type": "null"}}},
            {"type": "object", "additionalProperties": false, "required": ["from_ms"],
                "properties": {"from_ms": stamp(), "seq_num": {"type": "null"}}}]},
        "TrimPoint": object(fields(json!({"trim_point": whole()})), true),
        "Fence": object(fields(json!({"fencing_token": {"type": "string", "maxLength": FENCING_TOKEN_BYTES_MAX}})), true),
        "Error": {"type": "object", "additionalProperties": false,
            "required": ["code", "message", "retryable", "no_side_effect", "request_id"],
            "properties": {
                "code": {"enum": Reason::ALL.iter().map(|reason| reason.word()).collect::<Vec<_>>()},
                "message": text(), "retryable": {"type": "boolean"}, "no_side_effect": {"type": "boolean"},
                "request_id": text(), "resent": {"type": "boolean"}, "tail": of("Position"), "trim_point": whole(),
                "fencing_token": text(), "leader": text(), "retry_after_ms": whole()}},
    })
}

#[cfg(test)]
mod tests {
    use super::whole;
    use serde_json::Value;

    fn references<'a>(value: &'a Value, found: &mut Vec<&'a str>) {
        match value {
            Value::Object(object) => {
                found.extend(object.get("$ref").and_then(Value::as_str));
                object.values().for_each(|value| references(value, found));
            }
            Value::Array(list) => list.iter().for_each(|value| references(value, found)),
            _ => {}
        }
    }

    #[test]
    fn every_schema_that_is_named_is_there() {
        let document = whole();
        let mut found = Vec::new();
        references(&document, &mut found);
        assert!(found.len() > 20);
        for name in found {
            assert!(document.pointer(name.trim_start_matches('#')).is_some(), "{name}");
        }
        assert!(document["paths"]["/v1/buckets/{bucket}/streams/{key}/records"]["get"]["parameters"].is_array());
    }
}

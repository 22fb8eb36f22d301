//! What does the query of a URL ask for, of what its route takes?

use wire::refusal::Refusal;

use super::percent;

/// What a parameter takes.
#[derive(Debug, Clone, Copy)]
pub(super) enum Takes {
    /// A whole number from 0 up to this.
    Count(u64),
    /// Milliseconds, which may lie before 1970.
    Stamp,
    /// `true` or `false`; true when it stands alone.
    Flag,
    /// Any text.
    Text,
    /// One of these words.
    Word(&'static [&'static str]),
}

/// A parameter of a route.
#[derive(Debug, Clone, Copy)]
pub(super) struct Param {
    pub(super) name: &'static str,
    pub(super) doc: &'static str,
    pub(super) takes: Takes,
}

#[derive(Debug)]
enum Value {
    Count(u64),
    Stamp(i64),
    Flag(bool),
    Text(String),
}

/// The parameters that were given, each as its kind.
#[derive(Debug, Default)]
pub(super) struct Query(Vec<(&'static str, Value)>);

impl Query {
    /// Reads a query; `+` is a space, as forms write it.
    ///
    /// # Errors
    /// `invalid` for a parameter that the route doesn't take, one that is given twice, and a value that is of another kind.
    pub(super) fn parse(raw: Option<&str>, params: &[Param]) -> Result<Self, Refusal> {
        let mut query = Self::default();
        for pair in raw.unwrap_or_default().split('&').filter(|pair| !pair.is_empty()) {
            let (name, text) = pair.split_once('=').map_or((pair, None), |(name, text)| (name, Some(text)));
            let name = percent::decode_text("a query parameter's name", &name.replace('+', " "))?;
            let Some(param) = params.iter().find(|param| param.name == name) else {
                return Err(unknown(&name, params));
            };
            if query.value(param.name).is_some() {
                return Err(Refusal::invalid(format!("query parameter '{name}' is given twice")));
            }
            let what = format!("query parameter '{name}'");
            let text = text.map(|text| percent::decode_text(&what, &text.replace('+', " "))).transpose()?;
            query.0.push((param.name, value(param, text)?));
        }
        Ok(query)
    }

    fn value(&self, name: &str) -> Option<&Value> {
        self.0.iter().find(|(given, _)| *given == name).map(|(_, value)| value)
    }

    pub(super) fn has(&self, name: &str) -> bool {
        self.value(name).is_some()
    }

    pub(super) fn count(&self, name: &str) -> Option<u64> {
        match self.value(name)? {
            Value::Count(count) => Some(*count),
            _ => None,
        }
    }

    pub(super) fn stamp(&self, name: &str) -> Option<i64> {
        match self.value(name)? {
            Value::Stamp(stamp) => Some(*stamp),
            _ => None,
        }
    }

    pub(super) fn flag(&self, name: &str) -> bool {
        matches!(self.value(name), Some(Value::Flag(true)))
    }

    pub(super) fn text(&self, name: &str) -> Option<&str> {
        match self.value(name)? {
            Value::Text(text) => Some(text),
            _ => None,
        }
    }

    /// A number of rows, records or bytes of a page, where more than fits is as much as fits.
    pub(super) fn page_bound(&self, name: &str) -> u32 {
        self.count(name).map_or(0, |count| u32::try_from(count).unwrap_or(u32::MAX))
    }
}

fn unknown(name: &str, params: &[Param]) -> Refusal {
    let shown: String = name.chars().take(40).collect();
    let names: Vec<_> = params.iter().map(|param| param.name).collect();
    let takes = if names.is_empty() { "none".to_owned() } else { names.join(", ") };
    Refusal::invalid(format!("query parameter '{shown}' is unknown: this path takes {takes}"))
}

fn value(param: &Param, text: Option<String>) -> Result<Value, Refusal> {
    let given = text.as_deref();
    let wrong = |wanted: String| {
        let shown: String = given.unwrap_or_default().chars().take(40).collect();
        Refusal::invalid(format!("query parameter '{}' is '{shown}': it takes {wanted}", param.name))
    };
    // The standard parser takes a sign that no JSON number has.
    let digits = given.filter(|text| !text.starts_with('+'));
    match param.takes {
        Takes::Count(highest) => {
            let count = digits.and_then(|text| text.parse().ok()).filter(|count| *count <= highest);
            count.map(Value::Count).ok_or_else(|| wrong(format!("a whole number from 0 to {highest}")))
        }
        Takes::Stamp => {
            let stamp = digits.and_then(|text| text.parse().ok());
            stamp.map(Value::Stamp).ok_or_else(|| wrong(format!("milliseconds from {} to {}", i64::MIN, i64::MAX)))
        }
        Takes::Flag => match given {
            None | Some("true") => Ok(Value::Flag(true)),
            Some("false") => Ok(Value::Flag(false)),
            Some(_) => Err(wrong("true or false".to_owned())),
        },
        Takes::Word(words) => match given.filter(|text| words.contains(text)) {
            Some(word) => Ok(Value::Text(word.to_owned())),
            None => Err(wrong(format!("one of {}", words.join(", ")))),
        },
        Takes::Text => Ok(Value::Text(text.unwrap_or_default())),
    }
}

#[cfg(test)]
mod tests {
    use super::{Param, Query, Takes};

    const PARAMS: &[Param] = &[
        Param { name: "from", doc: "", takes: Takes::Count(u64::MAX) },
        Param { name: "wait_ms", doc: "", takes: Takes::Count(60) },
        Param { name: "from_ms", doc: "", takes: Takes::Stamp },
        Param { name: "clamp", doc: "", takes: Takes::Flag },
        Param { name: "after", doc: "", takes: Takes::Text },
        Param { name: "encoding", doc: "", takes: Takes::Word(&["utf8", "base64"]) },
    ];

    fn refused(raw: &str, says: &str) {
        let refusal = Query::parse(Some(raw), PARAMS).unwrap_err();
        assert!(refusal.message.contains(says), "{raw}: {refusal}");
    }

    #[test]
    fn each_parameter_is_read_as_its_kind() {
        let raw = "from=18446744073709551615&from_ms=-9223372036854775808&clamp&after=a+b%2Bc&encoding=base64&";
        let query = Query::parse(Some(raw), PARAMS).unwrap();
        assert_eq!(query.count("from"), Some(u64::MAX));
        assert_eq!(query.stamp("from_ms"), Some(i64::MIN));
        assert!(query.flag("clamp"));
        assert_eq!(query.text("after"), Some("a b+c"));
        assert_eq!(query.page_bound("from"), u32::MAX);
        assert!(!Query::parse(Some("clamp=false"), PARAMS).unwrap().flag("clamp"));
        assert!(!Query::parse(None, PARAMS).unwrap().has("from"));
    }

    #[test]
    fn what_is_unknown_or_twice_or_of_another_kind_is_told_with_its_name() {
        refused("form=1", "'form' is unknown: this path takes from, wait_ms");
        refused("from=1&from=1", "'from' is given twice");
        for raw in ["from=-1", "from=18446744073709551616", "from=1e3", "from=", "from", "from=%2B1"] {
            refused(raw, "'from'");
        }
        refused("wait_ms=61", "from 0 to 60");
        refused("from_ms=9223372036854775808", "'from_ms' is '9223372036854775808'");
        refused("clamp=1", "true or false");
        refused("encoding=hex", "one of utf8, base64");
        refused("after=%", "followed by two");
    }
}

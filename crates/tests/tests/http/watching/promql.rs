//! Which metrics and labels does an expression of PromQL name?
//!
//! No parser of the whole language: it tells names of metrics from functions, operators and labels, which is what must be right
//! here. What it can't make out is an error.

use std::collections::BTreeSet;

/// Words that stand where a metric might and are none.
const WORDS: &[&str] = &[
    "and",
    "or",
    "unless",
    "by",
    "without",
    "on",
    "ignoring",
    "group_left",
    "group_right",
    "bool",
    "offset",
    "inf",
    "nan",
];
/// Words before a list of labels in parentheses.
const GROUPING: &[&str] = &["by", "without", "on", "ignoring", "group_left", "group_right"];

/// A choice of series.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Selector {
    /// The metric.
    pub(super) metric: String,
    /// Conditions on labels: the label, the operator, the value.
    pub(super) labels: Vec<(String, String, String)>,
}

/// What an expression names.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Named {
    pub(super) selectors: Vec<Selector>,
    /// Labels that series are grouped or matched by.
    pub(super) grouped_by: BTreeSet<String>,
}

/// What an expression names, or why it can't be made out.
pub(super) fn named(expr: &str) -> Result<Named, String> {
    let (mut named, mut rest) = (Named::default(), expr.trim_start());
    while let Some(first) = rest.chars().next() {
        let length = if first.is_ascii_alphabetic() || first == '_' {
            of_word(rest, &mut named)?
        } else if first.is_ascii_digit() {
            rest.find(|c: char| !c.is_ascii_alphanumeric() && c != '.').unwrap_or(rest.len())
        } else if first == '[' {
            rest.find(']').ok_or("a [ that nothing closes")? + 1
        } else if "()+-*/%^<>=!,".contains(first) {
            1
        } else {
            return Err(format!("'{first}' is not expected: {rest}"));
        };
        rest = rest[length..].trim_start();
    }
    Ok(named)
}

/// Takes a word with what belongs to it, and answers how long that is.
fn of_word(rest: &str, named: &mut Named) -> Result<usize, String> {
    let end = rest.find(|c: char| !c.is_ascii_alphanumeric() && c != '_' && c != ':').unwrap_or(rest.len());
    let (word, behind) = (&rest[..end], &rest[end..]);
    let gap = behind.len() - behind.trim_start().len();
    let next = behind.trim_start().chars().next();
    if GROUPING.contains(&word) {
        let list = behind.trim_start().strip_prefix('(').ok_or_else(|| format!("{word} without a list"))?;
        let close = list.find(')').ok_or("a list that nothing closes")?;
        let labels = list[..close].split(',').map(str::trim).filter(|label| !label.is_empty());
        named.grouped_by.extend(labels.map(str::to_owned));
        return Ok(end + gap + 1 + close + 1);
    }
    if WORDS.contains(&word.to_ascii_lowercase().as_str()) || next == Some('(') {
        return Ok(end);
    }
    // An aggregation whose grouping comes before its argument: `sum by (x) (…)`.
    if GROUPING.iter().any(|grouping| behind.trim_start().starts_with(&format!("{grouping} ("))) && next != Some('{') {
        let is_aggregation = ["sum", "min", "max", "avg", "count", "topk", "bottomk", "quantile"].contains(&word);
        if is_aggregation {
            return Ok(end);
        }
    }
    let (labels, taken) = match behind.strip_prefix('{') {
        Some(inside) => conditions(inside)?,
        None => (Vec::new(), 0),
    };
    named.selectors.push(Selector { metric: word.to_owned(), labels });
    Ok(end + taken)
}

/// A condition on a label: the label, the operator, the value.
type Condition = (String, String, String);

/// The conditions behind a `{`, and how long they are with both braces.
fn conditions(inside: &str) -> Result<(Vec<Condition>, usize), String> {
    let (mut labels, mut rest) = (Vec::new(), inside);
    loop {
        rest = rest.trim_start_matches([' ', ',']);
        if let Some(behind) = rest.strip_prefix('}') {
            return Ok((labels, inside.len() - behind.len() + 1));
        }
        let end = rest.find(['=', '!']).ok_or("a label without a condition")?;
        let label = rest[..end].trim().to_owned();
        let operator = ["=~", "!~", "!=", "="].into_iter().find(|operator| rest[end..].starts_with(operator));
        let operator = operator.ok_or_else(|| format!("no operator behind {label}"))?;
        let quoted = rest[end + operator.len()..].trim_start();
        let value = quoted.strip_prefix('"').ok_or_else(|| format!("no quoted value of {label}"))?;
        let close = value.find('"').ok_or("a value that nothing closes")?;
        labels.push((label, operator.to_owned(), value[..close].to_owned()));
        rest = &value[close + 1..];
    }
}

#[test]
fn names_are_told_from_functions_words_and_labels() {
    let expr = "histogram_quantile(0.99, sum by (instance, le) (rate(a_bucket{verb=\"x\", phase=~\"p|q\"}[5m]))) > 1e3 \
                and b unless on (instance) c{d!=\"e}\"} * 2";
    let named_of = named(expr).unwrap();
    let metrics: Vec<_> = named_of.selectors.iter().map(|selector| selector.metric.as_str()).collect();
    assert_eq!(metrics, ["a_bucket", "b", "c"]);
    let condition =
        |label: &str, operator: &str, value: &str| (label.to_owned(), operator.to_owned(), value.to_owned());
    assert_eq!(named_of.selectors[0].labels, [condition("verb", "=", "x"), condition("phase", "=~", "p|q")]);
    assert_eq!(named_of.selectors[2].labels, [condition("d", "!=", "e}")]);
    assert_eq!(named_of.grouped_by.into_iter().collect::<Vec<_>>(), ["instance", "le"]);
}

#[test]
fn what_can_t_be_made_out_is_an_error() {
    for wrong in ["a[5m", "a{b}", "a{b=c}", "a{b=\"c}", "sum by x", "a ? b", "a{b=\"c\""] {
        assert!(named(wrong).is_err(), "{wrong}: {:?}", named(wrong));
    }
}

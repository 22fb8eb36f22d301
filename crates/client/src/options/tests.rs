use super::*;

fn named(addrs: &[&str]) -> Result<Vec<String>> {
    stars(&addrs.iter().map(|addr| (*addr).to_owned()).collect::<Vec<_>>()).map(|(_, stars)| stars)
}

fn refused(addrs: &[&str], says: &str) {
    let error = named(addrs).unwrap_err();
    assert_eq!(error.reason(), Reason::Invalid, "{error}");
    assert!(error.message().contains(says), "{error}");
    assert!(error.no_side_effect());
}

#[test]
fn plain_addresses_name_stars_and_the_port_may_be_left_out() {
    let found = named(&["localhost:1", "star-1", "10.0.0.1:65535", "[::1]:7", "::1", "[fe80::1]"]).unwrap();
    let due = ["localhost:1", "star-1:7781", "10.0.0.1:65535", "[::1]:7", "[::1]:7781", "[fe80::1]:7781"];
    assert_eq!(found, due);
}

#[test]
fn http_addresses_are_where_urls_start() {
    let found = named(&["http://localhost:8080", "https://a/", "http://[::1]:7/nova/"]).unwrap();
    assert_eq!(found, ["http://localhost:8080", "https://a", "http://[::1]:7/nova"]);
    for bad in ["http://", "http://u@h", "http://a?b=c", "http://a b", "https://a:x", "http://a#b"] {
        refused(&[bad], &format!("'{bad}'"));
    }
}

#[test]
fn mixed_lists_unknown_schemes_and_no_address_are_refused() {
    refused(&["http://a", "b:1"], "of one kind");
    refused(&["grpc://a:1"], "'grpc'");
    refused(&[], "at least one");
}

#[test]
fn what_is_no_address_is_refused_with_its_text() {
    for bad in ["", ":1", "a:", "a:0", "a:65536", "a:b", "a b:1", "a/b:1", "[::1", "[::1]x", "u@h:1"] {
        refused(&[bad], &format!("'{bad}'"));
    }
}

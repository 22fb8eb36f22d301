use super::{S3Failure, Verdict};

fn answer(status: u16, code: &str) -> S3Failure {
    let code = Some(code.to_owned()).filter(|code| !code.is_empty());
    S3Failure { status: Some(status), code, ..S3Failure::unanswered("why") }
}

#[test]
fn each_answer_has_its_verdict() {
    let cases = [
        (404, "NoSuchKey", Verdict::Absent),
        (404, "NoSuchBucket", Verdict::Never),
        (404, "", Verdict::Never),
        (412, "PreconditionFailed", Verdict::ConditionFailed),
        (416, "InvalidRange", Verdict::OutOfRange),
        (409, "ConditionalRequestConflict", Verdict::Again),
        (503, "SlowDown", Verdict::Again),
        (503, "ServiceUnavailable", Verdict::AgainUnknown),
        (500, "InternalError", Verdict::AgainUnknown),
        (400, "RequestTimeout", Verdict::AgainUnknown),
        (403, "RequestTimeTooSkewed", Verdict::Skewed),
        (403, "AccessDenied", Verdict::Never),
        (400, "ExpiredToken", Verdict::Never),
        (301, "PermanentRedirect", Verdict::Never),
        (501, "NotImplemented", Verdict::Never),
    ];
    for (status, code, verdict) in cases {
        assert_eq!(answer(status, code).verdict(), verdict, "{status} {code}");
    }
    assert_eq!(S3Failure::unanswered("reset").verdict(), Verdict::AgainUnknown);
}

#[test]
fn a_refusal_says_what_to_change() {
    let cases = [
        (404, "NoSuchBucket", "make the bucket b"),
        (403, "AccessDenied", "s3:PutObject"),
        (400, "ExpiredToken", "renew"),
        (403, "InvalidAccessKeyId", "AWS_ACCESS_KEY_ID"),
        (501, "NotImplemented", "conditional writes"),
        (404, "", "s3.endpoint"),
    ];
    for (status, code, part) in cases {
        let remedy = answer(status, code).remedy("b", None);
        assert!(remedy.contains(part), "{status} {code}: {remedy}");
    }
    let elsewhere = S3Failure { region: Some("eu-west-3".to_owned()), ..answer(301, "PermanentRedirect") };
    assert!(elsewhere.remedy("b", None).ends_with("set s3.region to eu-west-3"));
    let skewed = answer(403, "RequestTimeTooSkewed").remedy("b", Some(-3_600_000));
    assert!(skewed.contains("wrong by 3600 s ahead of the store's"), "{skewed}");
}

#[test]
fn a_failure_is_told_with_status_code_and_request() {
    let failure = S3Failure { request_id: Some("4442".to_owned()), ..answer(403, "AccessDenied") };
    assert_eq!(failure.to_string(), "status 403 AccessDenied: why, request 4442");
    assert_eq!(answer(502, "").to_string(), "status 502: why");
}

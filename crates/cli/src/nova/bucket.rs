//! How are the bucket verbs asked and their answers shown?

use std::io::{self, Write};

use wire::bucket::{Bucket, BucketPatch, BucketSpec};

use super::Star;
use super::args::{BucketCommand, BucketMake, BucketUpdate, Output, Page};
use super::failure::Failure;
use super::fields::show_config;
use super::row::{Cell, Row};

pub(super) async fn run(command: BucketCommand, star: &Star) -> Result<(), Failure> {
    let client = &star.client;
    match command {
        BucketCommand::Create(args) => {
            let bucket = client.create_bucket(spec(args)).await?;
            star.show(&row(&bucket))
        }
        BucketCommand::Ensure(args) => {
            let bucket = client.ensure_bucket(spec(args)).await?;
            star.show(&row(&bucket))
        }
        BucketCommand::Get(args) => star.show(&row(&client.get_bucket(&args.name).await?)),
        BucketCommand::Update(args) => update(args, star).await,
        BucketCommand::Delete(args) => {
            client.delete_bucket(&args.name).await?;
            let row = Row::new().with("name", args.name.as_str()).with("deleted", true);
            star.done(&format!("bucket {} is deleted", args.name), &row)
        }
        BucketCommand::List(page) => list(&page, star).await,
    }
}

fn spec(args: BucketMake) -> BucketSpec {
    BucketSpec {
        name: args.bucket.name,
        location: args.location,
        create_stream_on_append: args.switches.create_on_append.unwrap_or(false),
        create_stream_on_read: args.switches.create_on_read.unwrap_or(false),
        defaults: args.defaults.0,
        creation_token: args.creation_token,
    }
}

async fn update(args: BucketUpdate, star: &Star) -> Result<(), Failure> {
    let patch = BucketPatch {
        create_stream_on_append: args.switches.create_on_append,
        create_stream_on_read: args.switches.create_on_read,
        defaults: args.defaults.0,
    };
    if patch == BucketPatch::default() {
        return Err(Failure::invalid(format!(
            "nothing to change of bucket '{}' was said: nova bucket update --help lists what can be",
            args.bucket.name
        )));
    }
    let bucket = star.client.update_bucket(&args.bucket.name, patch).await?;
    star.show(&row(&bucket))
}

async fn list(page: &Page, star: &Star) -> Result<(), Failure> {
    let mut out = super::stdout();
    let (mut after, mut shown) = (page.after.clone(), 0);
    loop {
        let rows = page.next_rows(shown);
        if rows == 0 {
            return more(&after, &mut out);
        }
        let found = star.client.list_buckets(&after, rows).await?;
        for bucket in &found.buckets {
            shown += 1;
            match star.output {
                Output::Json => row(bucket).write_json(&mut out)?,
                Output::Text => writeln!(out, "{}", line(bucket))?,
            }
        }
        out.flush()?;
        if found.next.is_empty() {
            return Ok(());
        }
        after = found.next;
    }
}

/// Says where a list that was cut goes on.
pub(super) fn more(cursor: &str, out: &mut impl Write) -> Result<(), Failure> {
    out.flush()?;
    Ok(writeln!(io::stderr(), "more may follow: --after {cursor}")?)
}

fn line(bucket: &Bucket) -> String {
    let on = |set: bool, word: &'static str| if set { word } else { "" };
    let line = format!(
        "{:<32} {:<8} {:<6} {} {}",
        bucket.name.as_str(),
        bucket.defaults.class.word(),
        bucket.defaults.producer_policy.word(),
        on(bucket.create_stream_on_append, "create-on-append"),
        on(bucket.create_stream_on_read, "create-on-read"),
    );
    line.trim_end().to_owned()
}

fn row(bucket: &Bucket) -> Row {
    let row = Row::new()
        .with("name", bucket.name.as_str())
        .with("location", bucket.location.as_str())
        .with("create_stream_on_append", bucket.create_stream_on_append)
        .with("create_stream_on_read", bucket.create_stream_on_read)
        .with("creation_token", bucket.creation_token.as_str())
        .with("created_at", bucket.created_at_ms)
        .with("deleted_at", Cell::Nothing);
    show_config(&bucket.defaults, "default_", row)
}

#[cfg(test)]
mod tests {
    use super::{line, row};
    use wire::bucket::{Bucket, BucketSpec};
    use wire::config::{Class, ConfigPatch};
    use wire::ids::BucketId;
    use wire::names::BucketName;

    fn demo() -> Bucket {
        let spec = BucketSpec {
            create_stream_on_append: true,
            defaults: ConfigPatch { class: Some(Class::Express), ..ConfigPatch::default() },
            ..BucketSpec::named(BucketName::new("demo").unwrap())
        };
        Bucket::made(&spec, BucketId::from_bytes([1; 16]), 5)
    }

    #[test]
    fn a_bucket_shows_the_fields_that_its_flags_set() {
        let json = serde_json::to_value(row(&demo())).unwrap();
        assert_eq!(json["name"], "demo");
        assert_eq!(json["create_stream_on_append"], true);
        assert_eq!(json["default_class"], "express");
        assert_eq!(json["default_timestamping_mode"], "client-prefer");
        assert_eq!(json["default_retention_max_age_ms"], 0);
        assert_eq!((&json["created_at"], &json["deleted_at"]), (&5.into(), &serde_json::Value::Null));
    }

    #[test]
    fn a_list_is_a_line_a_bucket() {
        let line = line(&demo());
        assert!(line.starts_with("demo ") && line.ends_with("express  any    create-on-append"), "{line}");
    }
}

//! How does a command fail: with which line on stderr, and which exit code?

use std::fmt;
use std::io;

use wire::refusal::{Details, Refusal};

use super::args::Output;
use super::row::{Row, one_line};

/// Why a command ends before it is done.
#[derive(Debug)]
pub(super) enum Failure {
    /// Nova said no, or can't be asked.
    Refused(Box<Refused>),
    /// Something on this side went wrong: a file, a terminal.
    Local(String),
    /// SIGINT came before the end.
    Interrupted,
    /// Nobody reads the output any more; that is how pipelines end.
    PipeClosed,
}

/// A refusal and what the command knows beyond it.
#[derive(Debug)]
pub(super) struct Refused {
    pub(super) refusal: Refusal,
    /// Whether it is certain that the refused attempt changed nothing.
    pub(super) no_side_effect: bool,
    /// Whether an earlier attempt of the same batch may have landed.
    pub(super) resent: bool,
    /// Records of this command that are durable.
    pub(super) durable_records: Option<u64>,
}

impl Failure {
    /// Refused by this command itself, before anything was asked.
    pub(super) fn invalid(message: impl Into<String>) -> Self {
        Self::from(Refusal::invalid(message))
    }

    /// The same, telling how many records are durable all the same.
    #[must_use]
    pub(super) fn after(self, records: u64) -> Self {
        match self {
            Self::Refused(mut refused) => {
                refused.durable_records = Some(records);
                Self::Refused(refused)
            }
            Self::Local(message) => Self::Local(format!("{message}; {}", durable(records))),
            Self::Interrupted => Self::Local(format!("interrupted; {}", durable(records))),
            Self::PipeClosed => Self::PipeClosed,
        }
    }

    /// What the process ends with.
    pub(super) fn exit_code(&self) -> u8 {
        match self {
            Self::Refused(refused) => refused.refusal.reason.exit_code(),
            Self::Local(_) | Self::Interrupted => 1,
            Self::PipeClosed => 0,
        }
    }

    /// The line for stderr; none when there is nothing to say.
    pub(super) fn line(&self, output: Output) -> Option<String> {
        if matches!(self, Self::PipeClosed) {
            return None;
        }
        match output {
            Output::Text => Some(format!("nova: {}", one_line(&self.to_string()))),
            Output::Json => serde_json::to_string(&self.row()).ok(),
        }
    }

    fn row(&self) -> Row {
        match self {
            Self::Refused(refused) => refused.row(),
            Self::Local(message) => Row::new().with("message", message.as_str()),
            Self::Interrupted | Self::PipeClosed => Row::new().with("message", self.to_string()),
        }
    }
}

fn durable(records: u64) -> String {
    match records {
        0 => "nothing was acknowledged".to_owned(),
        1 => "1 record is durable".to_owned(),
        _ => format!("{records} records are durable"),
    }
}

impl Refused {
    fn row(&self) -> Row {
        let Refusal { reason, message, .. } = &self.refusal;
        let row = Row::new()
            .with("reason", reason.word())
            .with("message", message.as_str())
            .with("retryable", reason.retryable())
            .with("no_side_effect", self.no_side_effect);
        let row = if self.resent { row.with("resent", true) } else { row };
        let row = row.with_some("durable_records", self.durable_records);
        let Some(details) = &self.refusal.details else {
            return row;
        };
        let Details { tail, trim_point, fencing_token, leader, retry_after_ms } = &**details;
        row.with_some("tail", *tail)
            .with_some("trim_point", trim_point.map(|at| at.get()))
            .with_some("fencing_token", fencing_token.as_ref().map(|token| token.as_str()))
            .with_some("leader", leader.clone())
            .with_some("retry_after_ms", *retry_after_ms)
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Refused(refused) => {
                write!(f, "{}", refused.refusal)?;
                if refused.resent {
                    f.write_str(" (it was sent before, and may have landed then)")?;
                }
                match refused.durable_records {
                    Some(records) => write!(f, "; {}", durable(records)),
                    None => Ok(()),
                }
            }
            Self::Local(message) => f.write_str(message),
            Self::Interrupted => f.write_str("interrupted"),
            Self::PipeClosed => f.write_str("the output was closed"),
        }
    }
}

impl From<Refusal> for Failure {
    fn from(refusal: Refusal) -> Self {
        Self::Refused(Box::new(Refused {
            no_side_effect: refusal.reason.no_side_effect(),
            refusal,
            resent: false,
            durable_records: None,
        }))
    }
}

impl From<client::Error> for Failure {
    fn from(error: client::Error) -> Self {
        let details = Details {
            tail: error.tail(),
            trim_point: error.trim_point(),
            fencing_token: error.fencing_token().cloned(),
            leader: error.leader().map(str::to_owned),
            retry_after_ms: error.retry_after().map(|wait| u64::try_from(wait.as_millis()).unwrap_or(u64::MAX)),
        };
        let mut refusal = Refusal::new(error.reason(), error.message());
        refusal.details = Some(Box::new(details));
        Self::Refused(Box::new(Refused {
            refusal,
            no_side_effect: error.no_side_effect(),
            resent: error.resent(),
            durable_records: None,
        }))
    }
}

/// Of writing to standard output, or to standard error.
impl From<io::Error> for Failure {
    fn from(error: io::Error) -> Self {
        match error.kind() {
            io::ErrorKind::BrokenPipe => Self::PipeClosed,
            _ => Self::Local(format!("the output can't be written: {error}")),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::Failure;
    use crate::nova::args::Output;
    use std::io;
    use wire::ids::{Position, SeqNum};
    use wire::names::FencingToken;
    use wire::reason::Reason;
    use wire::refusal::Refusal;

    #[test]
    fn an_error_is_one_line_with_its_reason_first() {
        let failure = Failure::from(Refusal::new(Reason::NotFound, "no bucket\n'demo'"));
        assert_eq!(failure.line(Output::Text).unwrap(), "nova: not_found: no bucket\\n'demo'");
        assert_eq!(failure.exit_code(), 3);
    }

    #[test]
    fn an_error_in_json_carries_the_data_of_its_reason() {
        let refusal = Refusal::new(Reason::FencedOut, "no")
            .with_fencing_token(FencingToken::new("gen-42").unwrap())
            .with_tail(Position::new(SeqNum::new(9), 5))
            .with_trim_point(SeqNum::new(2))
            .with_retry_after_ms(70);
        let failure = Failure::from(refusal).after(3);
        assert_eq!(
            failure.line(Output::Json).unwrap(),
            "{\"reason\":\"fenced_out\",\"message\":\"no\",\"retryable\":false,\"no_side_effect\":true,\
             \"durable_records\":3,\"tail\":{\"seq_num\":9,\"timestamp_ms\":5},\"trim_point\":2,\
             \"fencing_token\":\"gen-42\",\"retry_after_ms\":70}"
        );
        assert_eq!(failure.exit_code(), 5);
    }

    #[test]
    fn an_output_that_is_full_is_told_as_such() {
        let failure = Failure::from(io::Error::from(io::ErrorKind::StorageFull));
        assert!(failure.line(Output::Text).unwrap().starts_with("nova: the output can't be written: "));
        assert_eq!(failure.exit_code(), 1);
    }

    #[test]
    fn a_closed_pipe_is_a_quiet_end() {
        let failure = Failure::from(io::Error::from(io::ErrorKind::BrokenPipe)).after(1);
        assert_eq!(failure.line(Output::Text), None);
        assert_eq!(failure.exit_code(), 0);
    }
}
